"""Provide lower bounds in seconds: of the memory, measured together with the implementations, and of network links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import ripieno._native as _native
import ripieno.host as host
from ripieno.bench.cases import BenchCase, memory_work, wire_bytes
from ripieno.bench.programs.timing import ROOTED, SEPARATE_BYTES


class PeerLimit(Protocol):
    """A lower bound that holds for all implementations."""

    @property
    def text(self) -> str:
        """Return a description."""
        ...

    def measure(self, cases: Sequence[BenchCase], budget_s: float) -> None:
        """Repeat the measurements behind the bound, if any."""
        ...

    def seconds(self, case: BenchCase) -> float | None:
        """Return the bound for a case; None if unknown."""
        ...


class UnknownLimit:
    """The bound for hosts with unknown network links."""

    text = "unknown: pass --rate, the link rate of a host"

    def measure(self, cases: Sequence[BenchCase], budget_s: float) -> None:
        """Do nothing: no bound can be measured."""

    def seconds(self, case: BenchCase) -> None:
        """Return None: no bound is known."""


@dataclass
class MachineLimit:
    """The bound for ranks of one host, from the best of all memory measurements.

    The bound is the time of one cache line between two cores, plus the minimum of additions and copies on all cores.
    """

    world_size: int
    text: str = "one cache line moves between cores, and all cores add and copy the minimum of bytes"
    _lines_s: list[float] = field(default_factory=list)
    _pass_s: dict[int, tuple[float, float]] = field(default_factory=dict)

    def measure(self, cases: Sequence[BenchCase], budget_s: float) -> None:
        """Measure the memory once more."""
        if self._core_count > 1:
            self._lines_s.append(_native.line_s())
        for size in {case.size_bytes for case in cases}:
            before = self._pass_s.get(size, (float("inf"), float("inf")))
            add_s, copy_s = _native.memory_pass(self._core_count, size, budget_s)
            self._pass_s[size] = min(before[0], add_s), min(before[1], copy_s)

    def seconds(self, case: BenchCase) -> float:
        """Return the bound for a case."""
        adds, copies = memory_work(case.collective, self.world_size)
        add_s, copy_s = self._pass_s[case.size_bytes]
        # Many small rooted calls overlap, so no call waits for a cache line.
        waits = self._core_count > 1 and (case.collective not in ROOTED or case.size_bytes >= SEPARATE_BYTES)
        line_s = min(self._lines_s) if waits else 0.0
        return line_s + (adds * add_s + copies * copy_s) / self._core_count

    @property
    def placement(self) -> str | None:
        """Return the measured times of a cache line between cores; None without a measurement.

        A virtual machine may move its cores during a run, so the fastest and the slowest time count.
        """
        if not self._lines_s:
            return None
        fastest, slowest = (host.line_text(line_s) for line_s in (min(self._lines_s), max(self._lines_s)))
        return fastest if fastest == slowest else f"{fastest}; at other times {slowest}"

    @property
    def _core_count(self) -> int:
        return min(self.world_size, host.usable_cores())


@dataclass(frozen=True)
class WireLimit:
    """The bound for one rank per host: bytes that a host's network link must carry, without headers, over its rate.

    Parameters
    ----------
    world_size
        Number of hosts.
    bits_per_s
        Rate of each network link, in each direction.
    """

    world_size: int
    bits_per_s: float
    text: str = "bytes that a network link must carry over its rate, without headers"

    def measure(self, cases: Sequence[BenchCase], budget_s: float) -> None:
        """Do nothing: the rate is known."""

    def seconds(self, case: BenchCase) -> float | None:
        """Return the bound for a case; None if it needs no bytes."""
        return 8 * wire_bytes(case.collective, case.size_bytes, self.world_size) / self.bits_per_s or None
