"""A value that goes from one rank to all by machines that go on when ranks fail, on a modelled cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import ripieno._native as _native
from ripieno._checks import check_count, whole
from ripieno.errors import InputError
from ripieno.simulation.cluster import Cluster
from ripieno.simulation.simulate import BYTES_MAX
from ripieno.units import bytes_text, duration_text, size_text

_SEED_MAX = (1 << 64) - 1


class SimulatedFetch(NamedTuple):
    """A block, or part of one, that came from one rank to another, and how the two are connected."""

    sender: int
    receiver: int
    block: int
    size_bytes: int
    start_s: float
    end_s: float
    kind: str


class CorruptBlock(NamedTuple):
    """A block that was wrong when it came: who sent it, and who found out."""

    block: int
    source: int
    receiver: int


class RankEnd(NamedTuple):
    """What became of a rank: "done", "failed", "lost" or "waiting"; when, in seconds; why, if it failed."""

    kind: str
    at_s: float | None
    cause: str


@dataclass(frozen=True)
class Distribution:
    """What came of a dynamic broadcast on a modelled cluster.

    Attributes
    ----------
    algorithm, nbytes, cluster
        What ran, and where.
    block_bytes
        Length of a block.
    stripe_count
        Streams to which blocks are dealt.
    ends
        What became of each rank.
    settled_s
        When the tracker knew that everybody has the value or is lost; None if it never did.
    reported_lost
        Whom the tracker reported as lost.
    corruptions
        Blocks that were wrong, with the sources to blame.
    sent_bytes
        What each rank sent.
    message_count
        Messages of the protocol.
    busiest
        The wire that was busy longest, its bytes, and its seconds.
    fetches
        Every block that came, if they were asked for.
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
        """When the last rank that has the value had it."""
        return max((end.at_s for end in self.ends if end.kind == "done" and end.at_s is not None), default=0.0)

    @property
    def ideal_seconds(self) -> float:
        """What the bytes alone take at the rate of one node."""
        return self.nbytes * 8 / self.cluster.rate_bits_per_s

    def ranks(self, kind: str) -> list[int]:
        """The ranks that came to this end."""
        return [rank for rank, end in enumerate(self.ends) if end.kind == kind]

    def as_json(self) -> dict[str, Any]:
        """Everything but the cluster as JSON has it."""
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
            f"have it     {len(self.ranks('done')):,} of {self.cluster.ranks:,} ranks",
        ]
        lines += [f"{kind:11} {_ranks_text(self.ranks(kind))}" for kind in ("lost", "waiting") if self.ranks(kind)]
        causes = {end.cause for end in self.ends if end.kind == "failed"}
        lines += [f"failed      {_ranks_text(self.ranks('failed'))}: {cause}" for cause in sorted(causes)]
        lines += [
            f"wrong       block {each.block} from rank {each.source}, found by rank {each.receiver}, fetched again"
            for each in self.corruptions
        ]
        most = max(range(self.cluster.ranks), key=lambda rank: self.sent_bytes[rank])
        lines.append(f"most sent   rank {most}: {bytes_text(self.sent_bytes[most])}")
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
) -> Distribution:
    """Broadcast a value on a modelled cluster by the machines that go on when ranks fail.

    Parameters
    ----------
    cluster
        Where; its dead nodes die, and its slow ones are slow.
    nbytes
        Length of the value.
    algorithm
        "chain", "splitstream", "tree", "flat", "csb" (fastest source first), "csb-llcf" (least busy source first) or
        "bittorrent".
    block_bytes
        Length of a block; by default a 256th of the value, 16 KiB to 4 MiB.
    root
        Who has the value.
    late
        Ranks that come late, and when, in seconds.
    stopped
        Ranks that stand still from then on, in seconds.
    corrupted
        Ranks of which the next block that they send after that many seconds comes wrong.
    seed
        Of what is drawn.
    fetches
        Whether every block that came is kept.
    order
        The other ranks, as a chain runs; by default rack by rack.

    Raises
    ------
    InputError
        If there is no such algorithm or rank, or more blocks than memory has room for.

    Notes
    -----
    The disciplines are those of the Spark broadcast report (CSB, BTB, SSB; section 5), and the chain of Twister
    (section 4.4) that is closed around the dead.
    """
    whole("nbytes", nbytes, 0, BYTES_MAX)
    whole("root", root, 0, cluster.ranks - 1)
    whole("seed", seed, 0, _SEED_MAX)
    if block_bytes is not None:
        check_count("block_bytes", block_bytes)
    for name, happenings in (("late", late), ("stopped", stopped), ("corrupted", corrupted)):
        for rank, at_s in happenings:
            whole(name, rank, 0, cluster.ranks - 1, f"expected a rank, 0 to {cluster.ranks - 1}")
            if not 0 <= at_s < float("inf"):
                raise InputError(f"{name}={rank}@{at_s}: expected seconds, 0 or more")
    if any(rank == root for rank, _ in late):
        raise InputError(f"late={root}: expected another rank than the root")
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
    """Block sizes, 4 MiB and its halves down to 16 KiB, and the seconds that a broadcast takes in blocks of each.

    Raises
    ------
    InputError
        If there is no such algorithm or root, or more blocks than memory has room for.
    """
    whole("nbytes", nbytes, 0, BYTES_MAX)
    whole("root", root, 0, cluster.ranks - 1)
    return _native.search_block_bytes(cluster.native(), algorithm, nbytes, root)


def _ranks_text(ranks: Sequence[int]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:8])
    more = f" and {len(ranks) - 8:,} more" if len(ranks) > 8 else ""
    return f"rank{'s'[: len(ranks) != 1]} {shown}{more}"
