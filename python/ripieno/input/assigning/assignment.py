"""Provide `assign`: the splits of each rank, chosen so that reading is local and loads are even.

Bytes flow from splits to the hosts that store them, and on to the ranks there, each up to its share. A maximum flow
maximizes local reads. The remaining splits go to the ranks with the least to read. The result depends only on the
arguments, so ranks with equal arguments get equal results.

Source: Zhang, Qiu et al., social image clustering with Twister, section 3.2.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from ripieno.errors import InputError
from ripieno.input.assigning import flow
from ripieno.input.shares import even_range
from ripieno.input.split import Split

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: If the largest split is at most this many times the smallest, splits are balanced by number, otherwise by bytes.
EVEN_SIZE_RATIO = 1.1
#: Loads up to this many times the mean are even enough. Below it, balancing does not replace a local read.
EVEN_LOAD_RATIO = 1.05
#: The largest load is minimized with a precision of the largest split divided by this number.
LOAD_STEP_COUNT = 16


@dataclass(frozen=True)
class Assignment(Sequence[list[int]]):
    """The splits of each rank. ``assignment[rank]`` lists their indices, ascending; printing it shows a table.

    Attributes
    ----------
    splits : tuple of Split
        The splits that were assigned.
    hosts : tuple of str
        The host of every rank.
    ranks : tuple of tuple of int
        The indices of the splits of every rank.
    """

    splits: tuple[Split, ...]
    hosts: tuple[str, ...]
    ranks: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.ranks)

    def __getitem__(self, rank: int) -> list[int]:  # type: ignore[override]
        return list(self.ranks[rank])

    @property
    def placed_count(self) -> int:
        """The number of splits that lie on the disk of a known host."""
        return sum(bool(split.hosts) for split in self.splits)

    @property
    def local_count(self) -> int:
        """The number of splits that are read on a host with the file on its disk."""
        return sum(self._is_local(at, rank) for rank, numbers in enumerate(self.ranks) for at in numbers)

    def size_bytes(self, rank: int) -> int:
        """Return the number of bytes that a rank reads."""
        return sum(self.splits[at].size_bytes for at in self.ranks[rank])

    def _is_local(self, at: int, rank: int) -> bool:
        return self.hosts[rank] in self.splits[at].hosts

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        width = max(map(len, (*self.hosts, "host")))
        yield f"rank  {'host':{width}}  splits  local       bytes  which"
        for rank, numbers in enumerate(self.ranks):
            local = sum(self._is_local(at, rank) for at in numbers)
            yield (
                f"{rank:4}  {self.hosts[rank]:{width}}  {len(numbers):6}  {local:5}  {self.size_bytes(rank):10,}  "
                f"{_runs(numbers)}"
            ).rstrip()
        sizes = [self.size_bytes(rank) for rank in range(len(self))]
        mean = sum(sizes) / len(sizes)
        over = f", {max(sizes) / mean - 1:.1%} above the mean" if mean else ""
        placed = f"{self.local_count} of {self.placed_count} local" if self.placed_count else "hosts unknown"
        yield f"{len(self.splits)} splits, {sum(sizes):,} bytes; {placed}; the largest load: {max(sizes):,} bytes{over}"


def assign(splits: Sequence[Split], hosts: Sequence[str]) -> Assignment:
    """Divide splits among ranks with as many local reads as possible, and with even loads.

    If splits have about the same size, a rank has at most ``ceil(n / p)`` of them. The numbers differ by at most one if
    that costs no local read. Splits of different sizes are balanced by bytes: no rank has more than 1.05 times the mean
    plus the largest split.

    Parameters
    ----------
    splits : sequence of Split
        The splits to read. Their `hosts` give their locations.
    hosts : sequence of str
        The host of every rank, as in `Communicator.hosts`, with the same names as in the splits.

    Returns
    -------
    Assignment
        The same for equal arguments, on every machine.
    """
    if not hosts:
        raise InputError("hosts=[]: expected the host of at least one rank")
    sizes = [split.size_bytes for split in splits]
    rank_counts = Counter(hosts)
    near = [sorted(rank_counts.keys() & set(split.hosts)) for split in splits]
    is_even = not sizes or max(sizes) <= EVEN_SIZE_RATIO * min(sizes)
    ranks = _by_number(near, hosts) if is_even else _by_bytes(sizes, near, hosts)
    return Assignment(tuple(splits), tuple(hosts), tuple(tuple(sorted(numbers)) for numbers in ranks))


def share(splits: Sequence[Split], comm: Communicator) -> list[Split]:
    """Return this rank's splits: balanced, and local if they lie on hosts of `comm`. Every rank passes all splits.

    Raises
    ------
    InputError
        On every rank: ranks have different splits, for example because a file has grown between two calls.
    """
    assignment = assign(splits, comm.hosts)
    fingerprints = comm.allgather((hashlib.sha256(repr(assignment).encode()).digest(), len(splits)))
    for rank, other in enumerate(fingerprints):
        if other != fingerprints[0]:
            raise InputError(
                f"rank {rank} has other splits ({other[1]}) than rank 0 ({fingerprints[0][1]}): cut the files on "
                "one rank and broadcast the splits"
            )
    return [splits[at] for at in assignment[comm.rank]]


def _by_number(near: list[list[str]], hosts: Sequence[str]) -> list[list[int]]:
    p = len(hosts)
    rank_counts = Counter(hosts)
    # All ranks get the smaller share before any gets the larger one.
    shares = (len(near) // p, -(-len(near) // p))
    chosen = flow.matched(near, [{host: rank_counts[host] * share for host in rank_counts} for share in shares])
    ranks: list[list[int]] = [[] for _ in hosts]
    for host in rank_counts:
        here = [at for at, chosen_host in enumerate(chosen) if chosen_host == host]
        members = [rank for rank, other in enumerate(hosts) if other == host]
        for i, rank in enumerate(members):
            ranks[rank] += here[slice(*even_range(len(here), i, len(members)))]
    # Keep consecutive splits together.
    left = iter([at for at, host in enumerate(chosen) if host is None])
    for rank, count in enumerate(_filled([len(numbers) for numbers in ranks], chosen.count(None))):
        ranks[rank] += [next(left) for _ in range(count)]
    return ranks


def _filled(loads: list[int], count: int) -> list[int]:
    """Assign `count` items one by one to the rank with the smallest load, and return the number for each rank."""
    more = [0] * len(loads)
    loads_and_ranks = [(load, rank) for rank, load in enumerate(loads)]
    heapq.heapify(loads_and_ranks)
    for _ in range(count):
        load, rank = loads_and_ranks[0]
        more[rank] += 1
        heapq.heapreplace(loads_and_ranks, (load + 1, rank))
    return more


def _by_bytes(sizes: list[int], near: list[list[str]], hosts: Sequence[str]) -> list[list[int]]:
    """Assign splits, largest first, with the smallest maximum load, which a bisection finds up to a step."""
    least, step = max(ceil(EVEN_LOAD_RATIO * sum(sizes) / len(hosts)), max(sizes)), -(-max(sizes) // LOAD_STEP_COUNT)
    low, high = 0, LOAD_STEP_COUNT
    partitioned = _partitioned(sizes, near, hosts, least + high * step)
    assert partitioned is not None, "a rank with at most the mean load can take any split"
    while low < high:
        middle = (low + high) // 2
        tried = _partitioned(sizes, near, hosts, least + middle * step)
        if tried is None:
            low = middle + 1
        else:
            partitioned, high = tried, middle
    return partitioned


def _partitioned(
    sizes: list[int], near: list[list[str]], hosts: Sequence[str], limit_bytes: int
) -> list[list[int]] | None:
    """Assign splits to ranks with at most `limit_bytes` each, or return None if that fails.

    A split prefers the host with most of its flow.
    """
    rank_counts = Counter(hosts)
    flows = flow.bytes_to_hosts(sizes, near, {host: count * limit_bytes for host, count in rank_counts.items()})
    loads = [0] * len(hosts)
    ranks: list[list[int]] = [[] for _ in hosts]
    members = {host: [rank for rank, other in enumerate(hosts) if other == host] for host in rank_counts}
    for at in sorted(range(len(sizes)), key=lambda at: (not near[at], -sizes[at], at)):
        preferred = sorted(near[at], key=lambda host: -flows[at].get(host, 0))
        for group in (*(members[host] for host in preferred), range(len(hosts))):
            rank = min(group, key=lambda rank: (loads[rank], rank))
            if loads[rank] + sizes[at] <= limit_bytes:
                break
        else:
            return None
        ranks[rank].append(at)
        loads[rank] += sizes[at]
    return ranks


def _runs(numbers: Sequence[int]) -> str:
    """Format ascending numbers with consecutive ones merged: `0 … 3, 7`."""
    runs: list[list[int]] = []
    for at in numbers:
        if runs and runs[-1][1] == at - 1:
            runs[-1][1] = at
        else:
            runs.append([at, at])
    return ", ".join(
        f"{first} … {last}" if last > first + 1 else ", ".join(map(str, range(first, last + 1))) for first, last in runs
    )
