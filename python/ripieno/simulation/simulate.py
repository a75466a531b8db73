"""Provide the simulation of a collective on a modeled cluster: end times, bytes per kind of link, and every message."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import ripieno._native as _native
from ripieno._checks import whole_number
from ripieno.simulation.cluster import Cluster
from ripieno.units import bytes_text, duration_text, size_text

BYTES_MAX = 1 << 50


class TransferTime(NamedTuple):
    """A message that arrived, and the link between its ends: "memory", "network_link" (in a rack) or "uplink"."""

    sender: int
    receiver: int
    size_bytes: int
    start_s: float
    end_s: float
    kind: str


@dataclass(frozen=True)
class Simulation:
    """The outcome of a collective on a modeled cluster.

    Attributes
    ----------
    collective, algorithm
        The collective, and its algorithm.
    nbytes
        Bytes of the vector; of a rank's block for allgather, gather and scatter; sent by a rank for alltoall.
    cluster
        The modeled cluster.
    seconds
        Time at which the last rank finished; None if a rank never did.
    finish_s
        Finish time of every rank.
    bytes
        Total bytes of messages, by the kind of link: "memory", "network_link" (between nodes in one rack) or "uplink".
    busiest
        The port or uplink with the longest busy time, its bytes, and its seconds.
    message_count
        Number of messages that arrived.
    transfers
        The messages in order of arrival, if requested.
    left_out
        If `algorithm` replaces the default: each algorithm whose simulation would take too long, and the reason.
    """

    collective: str
    algorithm: str
    nbytes: int
    cluster: Cluster
    seconds: float | None
    finish_s: list[float | None]
    bytes: dict[str, int]
    busiest: tuple[str, int, float] | None
    message_count: int
    transfers: list[TransferTime] | None
    left_out: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    def of(cls, outcome: dict[str, Any], collective: str, nbytes: int, cluster: Cluster) -> Simulation:
        """Return the result of the native module for a collective, or for plans of a program."""
        transfers = outcome.get("transfers")
        return cls(
            collective=collective,
            algorithm=outcome.get("algorithm", "plans of the program"),
            nbytes=nbytes,
            cluster=cluster,
            seconds=outcome["seconds"],
            finish_s=outcome["finish_s"],
            bytes=outcome["bytes"],
            busiest=outcome["busiest"],
            message_count=outcome["message_count"],
            transfers=None if transfers is None else [TransferTime(*each) for each in transfers],
            left_out=list(outcome.get("left_out", ())),
        )

    @property
    def unfinished(self) -> list[int]:
        """Return the ranks that never finish."""
        return [rank for rank, finish_s in enumerate(self.finish_s) if finish_s is None]

    def as_json(self) -> dict[str, Any]:
        """Return all fields but the cluster as JSON values."""
        busiest = None
        if self.busiest is not None:
            busiest = dict(zip(("wire", "bytes", "seconds"), self.busiest, strict=True))
        found: dict[str, Any] = {
            "collective": self.collective,
            "algorithm": self.algorithm,
            "nbytes": self.nbytes,
            "ranks": self.cluster.ranks,
            "seconds": self.seconds,
            "unfinished": self.unfinished,
            "bytes": self.bytes,
            "busiest": busiest,
            "message_count": self.message_count,
            "left_out": dict(self.left_out),
        }
        if self.transfers is not None:
            found["transfers"] = [transfer._asdict() for transfer in self.transfers]
        return found

    def __str__(self) -> str:
        lines = [
            f"{self.collective} of {size_text(self.nbytes)} by {self.algorithm}, {self.cluster}",
            f"time        {self._time_text()}",
        ]
        names = (("memory", "in memory"), ("network_link", "in racks"), ("uplink", "by uplinks"))
        lines += [f"{name:11} {bytes_text(self.bytes[kind])}" for kind, name in names if self.bytes[kind]]
        if self.busiest is not None:
            wire, carried, busy_s = self.busiest
            share = "" if not self.seconds else f", {busy_s / self.seconds:.0%} of the time"
            lines.append(f"busiest     {wire}: {bytes_text(carried)}{share}")
        lines.append(f"messages    {self.message_count:,}")
        lines += [f"left out    {name}: {reason}" for name, reason in self.left_out]
        return "\n".join(lines)

    def _time_text(self) -> str:
        if self.seconds is not None:
            return duration_text(self.seconds) if self.seconds else "0 s"
        stuck = self.unfinished
        return f"deadlock: {len(stuck):,} of {self.cluster.ranks:,} ranks wait forever, the first is {stuck[0]}"


def simulate(
    collective: str,
    cluster: Cluster,
    *,
    nbytes: int,
    algorithm: str | None = None,
    root: int = 0,
    transfers: bool = False,
) -> Simulation:
    """Simulate the plans of a collective on a modeled cluster.

    Parameters
    ----------
    collective
        "broadcast", "allreduce" and so on.
    cluster
        The modeled cluster.
    nbytes
        Bytes of the vector; of a rank's block for allgather, gather and scatter; sent by a rank for alltoall.
    algorithm
        Name as in calls, such as "chain" or "chain\\@random:7"; by default the algorithm that runs in calls.
        If the estimated time of its simulation is too long, the default is the fastest algorithm, by the cost model,
        that can be simulated in time.
    root
        Root of a rooted collective.
    transfers
        Whether to record every message.

    Raises
    ------
    InputError
        If the collective, algorithm or root does not exist, or the simulation takes too much memory or time.
    """
    whole_number("nbytes", nbytes, 0, BYTES_MAX)
    whole_number("root", root, 0, cluster.ranks - 1)
    found = _native.simulate(cluster.native(), collective, algorithm, nbytes, root, transfers=transfers)
    return Simulation.of(found, collective.replace("_", "-"), nbytes, cluster)
