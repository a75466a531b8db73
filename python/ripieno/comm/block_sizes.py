"""Provide the search for the fastest block size of broadcasts; each host stores the result for its cluster.

Source: Chowdhury et al., "Performance and scalability of broadcast in Spark", figure 6.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ripieno.errors import InputError
from ripieno.files import disk
from ripieno.files.cache import stored_path
from ripieno.files.results import write_text
from ripieno.files.sources import parsed_json
from ripieno.units import duration_text, size_text

if TYPE_CHECKING:
    from ripieno.comm.costs import Costs

#: Candidates: 4 MiB, as in the paper, and its halves.
CANDIDATES_BYTES = [(4 << 20) >> halvings for halvings in range(9)]
#: Maximum default size of the broadcast value, reduced to fit the time budget, and size of the first broadcast.
SIZE_MAX_BYTES, SIZE_MIN_BYTES = 64 << 20, 1 << 20
#: A result applies to values up to this factor longer or shorter than the measured one.
SIZE_FACTOR_MAX = 4
#: Other block sizes must be faster than the default by this share, so that noise does not decide.
GAIN_MIN = 0.03


@dataclass(frozen=True)
class BlockSizes:
    """Measured times of broadcasts by their block size.

    Attributes
    ----------
    strategy : str
        The strategy of the broadcasts.
    size_bytes : int
        Size of the value in bytes.
    hosts : list of str
        The host of each rank.
    default_bytes : int
        The default block size for the value.
    seconds : dict of int to list of float
        The times until the last rank had the value, by block size.
    """

    strategy: str
    size_bytes: int
    hosts: Sequence[str]
    default_bytes: int
    seconds: Mapping[int, Sequence[float]]

    @property
    def block_bytes(self) -> int:
        """The block size with the lowest median time, or the default if no other size is clearly faster."""
        medians = {size: statistics.median(times) for size, times in self.seconds.items()}
        fastest = min(medians, key=lambda size: medians[size])
        is_clear = medians[fastest] < (1 - GAIN_MIN) * medians[self.default_bytes]
        return fastest if is_clear else self.default_bytes

    def as_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return asdict(self) | {"block_bytes": self.block_bytes}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> BlockSizes:
        """Return the result from the output of `as_json`; raise `ValueError` if it is not a valid measurement."""
        seconds = {int(size): [float(each) for each in times] for size, times in found["seconds"].items()}
        size_bytes, default_bytes = int(found["size_bytes"]), int(found["default_bytes"])
        if min(size_bytes, *seconds) < 1 or default_bytes not in seconds or not all(seconds.values()):
            raise ValueError("no times of broadcasts")
        return cls(found["strategy"], size_bytes, found["hosts"], default_bytes, seconds)

    def __str__(self) -> str:
        host_count = len(set(self.hosts))
        hosts = f"{host_count} host{'s'[: host_count != 1]}"
        lines = [f"{self.strategy}, {size_text(self.size_bytes)} to {len(self.hosts)} ranks on {hosts}"]
        lines.append(f"{'block':>10}  {'median':>10}  {'least':>10}  {'greatest':>10}")
        for size, times in sorted(self.seconds.items()):
            notes = [text for text, at in (("default", self.default_bytes), ("used", self.block_bytes)) if size == at]
            cells = (statistics.median(times), min(times), max(times))
            figures = "  ".join(f"{duration_text(each):>10}" for each in cells)
            lines.append(f"{size_text(size):>10}  {figures}  {', '.join(notes)}".rstrip())
        return "\n".join(lines)


def measure(comm: Costs, strategy: str, size_bytes: int | None, budget_s: float) -> BlockSizes:
    """Return the result of `Communicator.tune_broadcast`. Collective."""
    end_s = time.monotonic() + budget_s
    if size_bytes is None:
        # The first broadcast also opens the connections.
        first_s = min(_seconds(comm, strategy, SIZE_MIN_BYTES, None) for _ in range(2))
        share_s = budget_s / len(CANDIDATES_BYTES)
        doublings = int(np.log2(max(1.0, share_s / first_s)))
        size_bytes = min(SIZE_MAX_BYTES, SIZE_MIN_BYTES << doublings)
    else:
        _seconds(comm, strategy, SIZE_MIN_BYTES, None)
    default_bytes = default_block_bytes(size_bytes)
    candidates = sorted({default_bytes, *(size for size in CANDIDATES_BYTES if size <= size_bytes)})
    seconds: dict[int, list[float]] = {size: [] for size in candidates}
    has_time = True
    while has_time:
        for size in candidates:
            seconds[size].append(_seconds(comm, strategy, size_bytes, size))
        has_time = bool(comm.broadcast(time.monotonic() < end_s))
    return BlockSizes(strategy, size_bytes, list(comm.hosts), default_bytes, seconds)


def default_block_bytes(size_bytes: int) -> int:
    """Return the block size that a value has without measurements: a 256th, from 16 KiB to 4 MiB."""
    return min(max(size_bytes // 256, CANDIDATES_BYTES[-1]), CANDIDATES_BYTES[0])


def _seconds(comm: Costs, strategy: str, size_bytes: int, block_bytes: int | None) -> float:
    """Return the time until the last rank has a value, the same on every rank."""
    value = np.zeros(size_bytes, np.uint8) if comm.rank == 0 else None
    comm.barrier()
    begin_s = time.perf_counter()
    # The ranks of a single host send blocks only if they do not share one copy.
    per_host = len(set(comm.nodes)) > 1
    with comm.broadcast_variable(value, strategy=strategy, block_bytes=block_bytes, per_host=per_host) as variable:
        _ = variable.value
        return float(comm.allreduce(time.perf_counter() - begin_s, op="max"))


def store(found: BlockSizes) -> None:
    """Store a result on this host, in place of an earlier one of the same strategy and size; skip a read-only cache."""
    others = [
        each
        for each in load_stored(found.hosts)
        if (each.strategy, each.size_bytes) != (found.strategy, found.size_bytes)
    ]
    path = _path(found.hosts)
    try:
        disk.make_folders(path.parent)
        write_text(path, json.dumps([each.as_json() for each in [*others, found]], indent=2) + "\n")
    except (OSError, InputError):
        return


def load_stored(hosts: Iterable[str]) -> list[BlockSizes]:
    """Return the results that are stored on this host for a cluster of these hosts."""
    try:
        return [BlockSizes.from_json(each) for each in parsed_json(_path(hosts).read_text("utf-8"))]
    except (OSError, AttributeError, KeyError, TypeError, ValueError):
        return []


class StoredBlockSizes:
    """The results stored on this host for a cluster, read again whenever their file has changed.

    Parameters
    ----------
    hosts : iterable of str
        The hosts of the cluster.
    """

    def __init__(self, hosts: Iterable[str]) -> None:
        self._hosts = sorted(set(hosts))
        self._path = _path(self._hosts)
        self._version: tuple[int, int, int] | None = None
        self._results: list[BlockSizes] = []

    def current(self) -> list[BlockSizes]:
        """Return the stored results. If the file is unchanged, this takes one call of `stat`."""
        try:
            status = self._path.stat()
        except OSError:
            self._version, self._results = None, []
            return self._results
        # Results are written to a new file, which replaces the former one.
        version = (status.st_ino, status.st_mtime_ns, status.st_size)
        if version != self._version:
            self._version, self._results = version, load_stored(self._hosts)
        return self._results


def tuned_block_bytes(stored: Iterable[BlockSizes], strategy: str, size_bytes: int) -> int | None:
    """Return the measured block size for a value, from the result of the nearest size; None if none applies."""

    def factor(found: BlockSizes) -> float:
        found_bytes, bytes_ = max(found.size_bytes, 1), max(size_bytes, 1)
        return max(found_bytes / bytes_, bytes_ / found_bytes)

    near = [each for each in stored if each.strategy == strategy and factor(each) <= SIZE_FACTOR_MAX]
    return min(near, key=factor).block_bytes if near else None


def _path(hosts: Iterable[str]) -> Path:
    return stored_path("blocks", sorted(set(hosts)))
