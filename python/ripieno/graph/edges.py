"""Edges as columns of numbers, and dealing them over the ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.comm.agreement import agreement
from ripieno.errors import InputError
from ripieno.kernels.hashing import mixed

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: Weights of the two directions may differ by this part of them: sums of several depend on their order.
SAME_WEIGHT = 1e-9


def _no_ids() -> NDArray[np.int64]:
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class Edges:
    """Some edges of a graph.

    Parameters
    ----------
    sources, targets : (m,) int64
        Vertex ids, from 0.
    weights : (m,) float64, or None
        None stands for ones.
    lone : (k,) int64
        Vertices that are there even if no edge says so.
    """

    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    weights: NDArray[np.float64] | None = None
    lone: NDArray[np.int64] = field(default_factory=_no_ids)

    def __len__(self) -> int:
        return len(self.sources)

    @staticmethod
    def joined(parts: Sequence[Edges], *, weighted: bool) -> Edges:
        """All edges of some parts, in order."""
        if len(parts) == 1:
            return parts[0]
        none = np.empty(0)
        return Edges(
            np.concatenate([_no_ids(), *(part.sources for part in parts)]),
            np.concatenate([_no_ids(), *(part.targets for part in parts)]),
            np.concatenate([none, *(part.weights for part in parts)]) if weighted else None,
            np.concatenate([_no_ids(), *(part.lone for part in parts)]),
        )

    def one_way(self) -> Edges:
        """Without the ways back of pairs whose edges lead both ways and weigh as much in each.

        Raises
        ------
        InputError
            They weigh more in one direction: nothing says how much the edge without a direction does.
        """
        if self.weights is None or not len(self):
            return self
        low, high = np.minimum(self.sources, self.targets), np.maximum(self.sources, self.targets)
        order = np.lexsort((self.sources, high, low))
        ends = np.stack([low, high, self.sources])[:, order]
        first = np.flatnonzero(np.append(True, (np.diff(ends) != 0).any(axis=0)))
        sums = np.add.reduceat(self.weights[order], first)
        # A run of edges with equal ends, after one of the same pair.
        back = 1 + np.flatnonzero((np.diff(ends[:2, first]) == 0).all(axis=0))
        unequal = back[~np.isclose(sums[back], sums[back - 1], rtol=SAME_WEIGHT, atol=0)]
        if len(unequal):
            at = unequal[0]
            a, b = ends[:2, first[at]]
            raise InputError(
                f"edges from vertex {a} to {b} weigh {sums[at - 1]:g}, those back {sums[at]:g}: with directed=False "
                "expected as much, or edges of one direction only"
            )
        kept = np.ones(len(first), np.bool_)
        kept[back] = False
        chosen = np.sort(order[np.repeat(kept, np.diff(np.append(first, len(self))))])
        return Edges(self.sources[chosen], self.targets[chosen], self.weights[chosen], self.lone)

    def both_ways(self) -> Edges:
        """With each edge the one that leads back; an edge from a vertex to itself stands once."""
        back = self.sources != self.targets
        return Edges(
            np.concatenate([self.sources, self.targets[back]]),
            np.concatenate([self.targets, self.sources[back]]),
            None if self.weights is None else np.concatenate([self.weights, self.weights[back]]),
            self.lone,
        )

    def without_loops(self) -> Edges:
        """Without the edges from a vertex to itself; the vertex is there still."""
        kept = self.sources != self.targets
        return Edges(
            self.sources[kept],
            self.targets[kept],
            None if self.weights is None else self.weights[kept],
            np.concatenate([self.lone, np.unique(self.sources[~kept])]),
        )

    def dealt(self, comm: Communicator, *, directed: bool) -> Edges:
        """The edges whose turn is this rank's: at random, by a hash of their ends, so that equal edges meet.

        In an undirected graph the order of the ends is nothing to the hash.
        """
        if comm.world_size == 1:
            return self
        ends = (self.sources, self.targets)
        if not directed:
            ends = (np.minimum(*ends), np.maximum(*ends))
        return self.sent(comm, mixed(ends[0] + mixed(ends[1]).view(np.int64)) % np.uint64(comm.world_size))

    def sent(self, comm: Communicator, ranks: NDArray[Any]) -> Edges:
        """The edges that all ranks send here, those of one rank after the other's; `ranks` says where each goes."""
        send = Dealer(comm, ranks)
        weights = None if self.weights is None else send(self.weights)
        return Edges(send(self.sources), send(self.targets), weights, self.lone)

    def sorted(self, by: str) -> Edges:
        """In ascending order of one end, "source" or "target", then of the other; equal edges stay in their order."""
        ends = (self.sources, self.targets) if by == "target" else (self.targets, self.sources)
        order = np.lexsort(ends)
        weights = None if self.weights is None else self.weights[order]
        return Edges(self.sources[order], self.targets[order], weights, self.lone)


def settled_directions(comm: Communicator, edges: Edges, *, directed: bool) -> Edges:
    """Edges of which each leads one way only: without a direction, with the ways back.

    Edges without a direction that have weights are dealt over the ranks first, so that the two ways of a pair meet.

    Raises
    ------
    InputError
        On every rank: the two directions of edges without a direction weigh differently.
    """
    if directed:
        return edges
    if edges.weights is not None:
        edges = edges.dealt(comm, directed=False)
        with agreement(comm):
            edges = edges.one_way()
    return edges.both_ways()


class Dealer:
    """Sends each entry of arrays to the rank that is named for it.

    Parameters
    ----------
    ranks : (m,) integers
        Where each entry goes.
    """

    def __init__(self, comm: Communicator, ranks: NDArray[Any]) -> None:
        small = np.uint16 if comm.world_size <= 1 << 16 else np.uint32
        self._comm = comm
        # A stable sort of small integers is a radix sort.
        self._order = np.argsort(ranks.astype(small), kind="stable")
        self.counts = np.bincount(ranks.astype(np.int64), minlength=comm.world_size)
        self.out_counts = comm.alltoall(self.counts, out=np.empty_like(self.counts))

    def __call__(self, values: NDArray[Any]) -> NDArray[Any]:
        """What the ranks have sent here, by rank, each in its order; entries may be rows."""
        out = np.empty((int(self.out_counts.sum()), *values.shape[1:]), values.dtype)
        return self._alltoall(values[self._order], out, self.counts, self.out_counts)

    def back(self, answers: NDArray[Any]) -> NDArray[Any]:
        """Answers to what was received, brought to those who sent it, in the order in which they have it."""
        came = np.empty(len(self._order), answers.dtype)
        self._alltoall(answers, came, self.out_counts, self.counts)
        given = np.empty_like(came)
        given[self._order] = came
        return given

    def _alltoall(
        self, values: NDArray[Any], out: NDArray[Any], counts: NDArray[np.int64], out_counts: NDArray[np.int64]
    ) -> NDArray[Any]:
        return self._comm.alltoall(values, out=out, counts=counts.tolist(), out_counts=out_counts.tolist())
