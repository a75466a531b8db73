"""Values per vertex, combined along all edges of a partitioned graph.

A step multiplies the local matrix by the values, with any reduction operation instead of the sum, or looks for the
sources of a search. A sparse reduction then combines the results of all ranks.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno._types import OpName
from ripieno.errors import InputError
from ripieno.kernels.lookup import positions_of

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator
    from ripieno.graph import LocalGraph

#: The result of a vertex without a source.
NO_SOURCE = np.iinfo(np.int64).max


def check_weights(graph: LocalGraph, estimator: str) -> None:
    """Raise InputError if an edge of this rank has a negative weight; the message names the estimator."""
    _, columns, weights = graph.matrix.entries()
    if weights is not None:
        check_edge_weights(graph.columns[columns], weights, estimator)


def check_edge_weights(sources: NDArray[np.int64], weights: NDArray[np.float64], estimator: str) -> None:
    """Raise InputError if a weight is negative; the message names the estimator and the source of the edge."""
    if weights.min(initial=0) < 0:
        source = sources[np.argmin(weights)]
        raise InputError(f"an edge from vertex {source} has the weight {weights.min()}: {estimator} needs weights >= 0")


class VertexValues:
    """The vertices that have values on this rank, and the exchange of their values.

    Attributes
    ----------
    vertices : (m,) int64
        Vertices with values on this rank: its own, and all ends of its edges.
    is_owned : (m,) bool
        Whether this rank owns the vertex.
    """

    def __init__(self, comm: Communicator, graph: LocalGraph) -> None:
        self.vertices, self.is_owned = graph.vertices.ids, graph.vertices.is_owned
        self._graph, self._threads = graph, comm.threads
        # The owner of every vertex contributes to it, so no requested vertex is missing.
        out_indices = np.concatenate([graph.rows, self.vertices[self.is_owned]])
        self._reduction = comm.sparse(out_indices, self.vertices, size=graph.vertices.largest + 1)

    def step(self, values: NDArray[Any], op: OpName, own: NDArray[Any] | None = None) -> NDArray[Any]:
        """Combine, for each vertex, the values of the sources of its incoming edges and its `own` value.

        `values`, `own` and the result are (m, …) arrays. The default of `own` is 0.
        """
        received = self._graph.product(values[: len(self._graph.columns)], op, threads=self._threads)
        own = np.zeros_like(values) if own is None else own
        return self._reduction.reduce(np.concatenate([received, own[self.is_owned]]), op)

    def min_sources(self, frontier: NDArray[np.bool_], is_open: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the smallest source in the frontier of each open vertex, or `NO_SOURCE`.

        Sources are the ids at the other ends of incoming edges. `frontier`, `is_open` and the result have an entry per
        vertex.
        """
        graph = self._graph
        found = graph.matrix.min_sources(
            graph.columns, frontier[: len(graph.columns)], is_open[self._row_places], self._threads
        )
        none = np.full(np.count_nonzero(self.is_owned), NO_SOURCE)
        return self._reduction.reduce(np.concatenate([found, none]), "min")

    @cached_property
    def _row_places(self) -> NDArray[np.integer[Any]]:
        return positions_of(self._graph.rows, self.vertices)
