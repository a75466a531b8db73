"""Provide edges as columns of numbers, and their distribution over the ranks."""

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
    import ripieno._native as _native
    from ripieno.comm.communicator import Communicator

#: Relative difference allowed between the weights of two directions: sums of weights depend on their order.
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
        None means that all weights are 1.
    lone : (k,) int64
        Vertices that exist even without an edge.
    """

    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    weights: NDArray[np.float64] | None = None
    lone: NDArray[np.int64] = field(default_factory=_no_ids)

    def __len__(self) -> int:
        return len(self.sources)

    @staticmethod
    def joined(parts: Sequence[Edges], *, weighted: bool) -> Edges:
        """Concatenate the edges of some parts, in order."""
        if len(parts) == 1:
            return parts[0]
        empty = np.empty(0)
        return Edges(
            np.concatenate([_no_ids(), *(part.sources for part in parts)]),
            np.concatenate([_no_ids(), *(part.targets for part in parts)]),
            np.concatenate([empty, *(part.weights for part in parts)]) if weighted else None,
            np.concatenate([_no_ids(), *(part.lone for part in parts)]),
        )

    def part(self, mine: slice) -> Edges:
        """Return some of the edges, without lone vertices."""
        return Edges(self.sources[mine], self.targets[mine], None if self.weights is None else self.weights[mine])

    def one_way(self) -> Edges:
        """Return one edge of each pair of opposite edges with equal weights.

        Raises
        ------
        InputError
            # The second run of each pair: its edges in the opposite direction.
        """
        if self.weights is None or not len(self):
            return self
        low, high = np.minimum(self.sources, self.targets), np.maximum(self.sources, self.targets)
        order = np.lexsort((self.sources, high, low))
        ends = np.stack([low, high, self.sources])[:, order]
        first = np.flatnonzero(np.append(True, (np.diff(ends) != 0).any(axis=0)))
        sums = np.add.reduceat(self.weights[order], first)
        # The second run of each pair, which holds its edges in the opposite direction.
        reverse = 1 + np.flatnonzero((np.diff(ends[:2, first]) == 0).all(axis=0))
        unequal = reverse[~np.isclose(sums[reverse], sums[reverse - 1], rtol=SAME_WEIGHT, atol=0)]
        if len(unequal):
            at = unequal[0]
            a, b = ends[:2, first[at]]
            raise InputError(
                f"edges from vertex {a} to {b} have weight {sums[at - 1]:g}, the reverse edges {sums[at]:g}: with "
                "directed=False expected equal weights, or edges in one direction only"
            )
        is_kept = np.ones(len(first), np.bool_)
        is_kept[reverse] = False
        chosen = np.sort(order[np.repeat(is_kept, np.diff(np.append(first, len(self))))])
        return Edges(self.sources[chosen], self.targets[chosen], self.weights[chosen], self.lone)

    def both_ways(self) -> Edges:
        """Return each edge together with its reverse. A self-loop stays single."""
        back = self.sources != self.targets
        return Edges(
            np.concatenate([self.sources, self.targets[back]]),
            np.concatenate([self.targets, self.sources[back]]),
            None if self.weights is None else np.concatenate([self.weights, self.weights[back]]),
            self.lone,
        )

    def without_loops(self) -> Edges:
        """Return the edges without self-loops. Their vertices remain."""
        is_kept = self.sources != self.targets
        return Edges(
            self.sources[is_kept],
            self.targets[is_kept],
            None if self.weights is None else self.weights[is_kept],
            np.concatenate([self.lone, np.unique(self.sources[~is_kept])]),
        )

    def redistributed(self, comm: Communicator, *, directed: bool) -> Edges:
        """Return the edges of this rank. A hash of the ends chooses the rank, so equal edges get the same rank.

        In an undirected graph the hash ignores the order of the ends.
        """
        if comm.world_size == 1:
            return self
        ends = (self.sources, self.targets)
        if not directed:
            ends = (np.minimum(*ends), np.maximum(*ends))
        return self.sent(comm, mixed(ends[0] + mixed(ends[1]).view(np.int64)) % np.uint64(comm.world_size))

    def sent(self, comm: Communicator, ranks: NDArray[Any]) -> Edges:
        """Return the edges that all ranks send here, in rank order. `ranks` gives the destination of each edge."""
        send = Redistribution(comm, ranks)
        weights = None if self.weights is None else send(self.weights)
        return Edges(send(self.sources), send(self.targets), weights, self.lone)

    def sorted(self, by: str) -> Edges:
        """Sort by one end, "source" or "target", then by the other. The sort is stable."""
        ends = (self.sources, self.targets) if by == "target" else (self.targets, self.sources)
        order = np.lexsort(ends)
        weights = None if self.weights is None else self.weights[order]
        return Edges(self.sources[order], self.targets[order], weights, self.lone)


def matrix_edges(rows: NDArray[np.int64], columns: NDArray[np.int64], matrix: _native.EdgeMatrix) -> Edges:
    """Return the entries of a matrix as edges, in their order. Rows are targets, and columns are sources."""
    offsets, sources, weights = matrix.entries()
    begins: NDArray[np.int64] = offsets.astype(np.int64)
    return Edges(columns[sources], np.repeat(rows, np.diff(begins)), weights)


def with_both_directions(comm: Communicator, edges: Edges, *, directed: bool) -> Edges:
    """Return directed edges. An undirected graph gets both directions of each edge.

    Undirected, weighted edges are first distributed over the ranks, so that both directions of a pair meet on one rank.

    Raises
    ------
    InputError
        On every rank: the two directions of an undirected edge have different weights.
    """
    if directed:
        return edges
    if edges.weights is not None:
        edges = edges.redistributed(comm, directed=False)
        with agreement(comm):
            edges = edges.one_way()
    return edges.both_ways()


class Redistribution:
    """Sends each entry of arrays to its assigned rank.

    Parameters
    ----------
    ranks : (m,) integers
        The destination of each entry.
    """

    def __init__(self, comm: Communicator, ranks: NDArray[Any]) -> None:
        small = np.uint16 if comm.world_size <= 1 << 16 else np.uint32
        self._comm = comm
        # A stable sort of small integers is a radix sort.
        self._order = np.argsort(ranks.astype(small), kind="stable")
        self.counts = np.bincount(ranks.astype(np.int64), minlength=comm.world_size)
        self.out_counts = comm.alltoall(self.counts, out=np.empty_like(self.counts))

    def __call__(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the entries sent to this rank, ordered by sender and then as sent. Entries may be rows."""
        out = np.empty((int(self.out_counts.sum()), *values.shape[1:]), values.dtype)
        return self._alltoall(values[self._order], out, self.counts, self.out_counts)

    def back(self, answers: NDArray[Any]) -> NDArray[Any]:
        """Send an answer for each received entry back to its sender. Return the answers to this rank's own entries."""
        arrived = np.empty(len(self._order), answers.dtype)
        self._alltoall(answers, arrived, self.out_counts, self.counts)
        answers_in_order = np.empty_like(arrived)
        answers_in_order[self._order] = arrived
        return answers_in_order

    def _alltoall(
        self, values: NDArray[Any], out: NDArray[Any], counts: NDArray[np.int64], out_counts: NDArray[np.int64]
    ) -> NDArray[Any]:
        return self._comm.alltoall(values, out=out, counts=counts.tolist(), out_counts=out_counts.tolist())
