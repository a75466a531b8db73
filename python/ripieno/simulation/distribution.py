"""Provide simulations of dynamic broadcasts, with failures of ranks, on a modeled cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import ripieno._native as _native
from ripieno._checks import check_count, whole_number
from ripieno.errors import InputError
from ripieno.simulation.cluster import Cluster
from ripieno.simulation.simulate import BYTES_MAX
from ripieno.units import bytes_text, duration_text, size_text

_SEED_MAX = (1 << 64) - 1


class SimulatedFetch(NamedTuple):
    """A block, or part of a block, that one rank received from another, and the kind of link between them."""

    sender: int
    receiver: int
    block: int
    size_bytes: int
    start_s: float
    end_s: float
    kind: str


class CorruptBlock(NamedTuple):
    """A block that arrived corrupt: the sending rank, and the rank that detected it."""

    block: int
    source: int
    receiver: int


class RankEnd(NamedTuple):
    """The final state of a rank: "done", "failed", "lost" or "waiting", its time, and the cause of a failure."""

    kind: str
    at_s: float | None
    cause: str


@dataclass(frozen=True)
class Distribution:
    """The outcome of a dynamic broadcast on a modeled cluster.

    Attributes
    ----------
    algorithm, nbytes, cluster
        The algorithm, the length of the value, and the modeled cluster.
    block_bytes
        Length of a block.
    stripe_count
        Number of streams over which blocks are distributed.
    ends
        Final state of each rank.
    settled_s
        Time at which the tracker knew that every rank has the value or is lost; None if it never did.
    reported_lost
        Ranks that the tracker reported as lost.
    corruptions
        Corrupt blocks with their senders.
    sent_bytes
        Bytes that each rank sent.
    message_count
        Number of protocol messages.
    busiest
        The port or uplink with the longest busy time, its bytes, and its seconds.
    fetches
        Every block that arrived, if requested.
    """

    algorithm: str
    nbytes: int
    cluster: Cluster
    block_bytes: int
    stripe_count: int
    ends: list[RankEnd]
    settled_s: float | None
    reported_lost: list[int]
    corruptions: list[CorruptBlock]
    sent_bytes: list[int]
    message_count: int
    busiest: tuple[str, int, float] | None
    fetches: list[SimulatedFetch] | None

    @property
    def seconds(self) -> float:
        """Return the time at which the last rank has received the value."""
        return max((end.at_s for end in self.ends if end.kind == "done" and end.at_s is not None), default=0.0)

    @property
    def ideal_seconds(self) -> float:
        """Return the time that the bytes alone take at the rate of one node."""
        return self.nbytes * 8 / self.cluster.rate_bits_per_s

    def ranks(self, kind: str) -> list[int]:
        """Return the ranks with this final state."""
        return [rank for rank, end in enumerate(self.ends) if end.kind == kind]

    def as_json(self) -> dict[str, Any]:
        """Return all fields but the cluster as JSON values."""
        found: dict[str, Any] = {
            "collective": "broadcast",
            "algorithm": self.algorithm,
            "nbytes": self.nbytes,
            "block_bytes": self.block_bytes,
            "ranks": self.cluster.ranks,
            "seconds": self.seconds,
            "ideal_seconds": self.ideal_seconds,
            "ends": [end._asdict() for end in self.ends],
            "settled_s": self.settled_s,
            "reported_lost": self.reported_lost,
            "corruptions": [each._asdict() for each in self.corruptions],
            "sent_bytes": self.sent_bytes,
            "message_count": self.message_count,
        }
        if self.fetches is not None:
            found["fetches"] = [fetch._asdict() for fetch in self.fetches]
        return found

    def __str__(self) -> str:
        block_count = -(-self.nbytes // self.block_bytes)
        stripes = "" if self.stripe_count == 1 else f", {self.stripe_count} stripes"
        times = f", {self.seconds / self.ideal_seconds:.3f} times bytes/rate" if self.nbytes else ""
        lines = [
            f"broadcast of {size_text(self.nbytes)} by {self.algorithm}, {self.cluster}",
            f"blocks      {block_count:,} of {size_text(self.block_bytes)}{stripes}",
            f"time        {duration_text(self.seconds) if self.seconds else '0 s'}{times}",
            f"complete    {len(self.ranks('done')):,} of {self.cluster.ranks:,} ranks",
        ]
        lines += [f"{kind:11} {_ranks_text(self.ranks(kind))}" for kind in ("lost", "waiting") if self.ranks(kind)]
        causes = {end.cause for end in self.ends if end.kind == "failed"}
        lines += [f"failed      {_ranks_text(self.ranks('failed'))}: {cause}" for cause in sorted(causes)]
        lines += [
            f"wrong       block {each.block} from rank {each.source}, found by rank {each.receiver}, fetched again"
            for each in self.corruptions
        ]
        top_rank = max(range(self.cluster.ranks), key=lambda rank: self.sent_bytes[rank])
        lines.append(f"most sent   rank {top_rank}: {bytes_text(self.sent_bytes[top_rank])}")
        if self.busiest is not None:
            wire, carried, busy_s = self.busiest
            share = "" if not self.seconds else f", {busy_s / self.seconds:.0%} of the time"
            lines.append(f"busiest     {wire}: {bytes_text(carried)}{share}")
        lines.append(f"messages    {self.message_count:,}")
        return "\n".join(lines)


def distribute(
    cluster: Cluster,
    *,
    nbytes: int,
    algorithm: str = "csb",
    block_bytes: int | None = None,
    root: int = 0,
    late: Sequence[tuple[int, float]] = (),
    stopped: Sequence[tuple[int, float]] = (),
    corrupted: Sequence[tuple[int, float]] = (),
    seed: int = 0,
    fetches: bool = False,
    order: Sequence[int] | None = None,
    degree: int | None = None,
) -> Distribution:
    """Simulate a fault-tolerant broadcast of one value on a modeled cluster.

    Parameters
    ----------
    cluster
        The modeled cluster, including its failing and slow nodes.
    nbytes
        Length of the value.
    algorithm
        "chain", "splitstream", "tree", "flat", "csb" (fastest source first), "csb-llcf" (least busy source first) or
        "bittorrent".
    block_bytes
        Length of a block; by default a 256th of the value, 16 KiB to 4 MiB.
    root
        Rank that has the value.
    late
        Ranks that join late, with their times in seconds.
    stopped
        Ranks that hang, with the start times in seconds.
    corrupted
        Ranks with times in seconds: the next block that the rank sends after its time is corrupt.
    seed
        Seed of the random numbers.
    fetches
        Whether to record every block that arrives.
    order
        Order of the other ranks in a chain; by default rack by rack.
    degree
        Number of concurrent receivers of a source; by default 3 for "csb" and "csb-llcf", and 8 for
        "bittorrent". Other algorithms have fixed trees.

    Raises
    ------
    InputError
        If the algorithm or rank does not exist, or the blocks exceed the memory.

    Notes
    -----
    The disciplines come from the Spark broadcast report (CSB, BTB, SSB; section 5), and the chain of Twister
    (section 4.4), which reconnects around failed ranks.
    """
    whole_number("nbytes", nbytes, 0, BYTES_MAX)
    whole_number("root", root, 0, cluster.ranks - 1)
    whole_number("seed", seed, 0, _SEED_MAX)
    if block_bytes is not None:
        check_count("block_bytes", block_bytes)
    if degree is not None:
        check_count("degree", degree)
    for name, events in (("late", late), ("stopped", stopped), ("corrupted", corrupted)):
        for rank, at_s in events:
            whole_number(name, rank, 0, cluster.ranks - 1, f"expected a rank, 0 to {cluster.ranks - 1}")
            if not 0 <= at_s < float("inf"):
                raise InputError(f"{name}={rank}@{at_s}: expected seconds, 0 or more")
    if any(rank == root for rank, _ in late):
        raise InputError(f"late={root}: expected a rank other than the root")
    if order is not None and sorted(order) != [rank for rank in range(cluster.ranks) if rank != root]:
        raise InputError(f"order={list(order)}: expected every rank but the root, once each")
    found = _native.distribute(
        cluster.native(),
        algorithm,
        nbytes,
        root,
        block_bytes=block_bytes,
        late=list(late),
        stopped=list(stopped),
        corrupted=list(corrupted),
        seed=seed,
        fetches=fetches,
        order=None if order is None else list(order),
        degree=degree,
    )
    return Distribution(
        algorithm=algorithm,
        nbytes=nbytes,
        cluster=cluster,
        block_bytes=found["block_bytes"],
        stripe_count=found["stripe_count"],
        ends=[RankEnd(*each) for each in found["outcomes"]],
        settled_s=found["settled_s"],
        reported_lost=found["reported_lost"],
        corruptions=[CorruptBlock(*each) for each in found["corruptions"]],
        sent_bytes=found["sent_bytes"],
        message_count=found["message_count"],
        busiest=found["busiest"],
        fetches=[SimulatedFetch(*each) for each in found["fetches"]] if fetches else None,
    )


def search_block_bytes(
    cluster: Cluster, *, nbytes: int, algorithm: str = "csb", root: int = 0
) -> list[tuple[int, float]]:
    """Return block sizes, halved from 4 MiB down to 16 KiB, each with the seconds of a broadcast in such blocks.

    Raises
    ------
    InputError
        If the algorithm or root does not exist, or the blocks exceed the memory.
    """
    whole_number("nbytes", nbytes, 0, BYTES_MAX)
    whole_number("root", root, 0, cluster.ranks - 1)
    return _native.search_block_bytes(cluster.native(), algorithm, nbytes, root)


def _ranks_text(ranks: Sequence[int]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:8])
    more = f" and {len(ranks) - 8:,} more" if len(ranks) > 8 else ""
    return f"rank{'s'[: len(ranks) != 1]} {shown}{more}"
