"""Values per vertex, combined along all edges of a partitioned graph.

A step multiplies the local matrix by the values, with any reduction operation instead of the sum. A sparse reduction
then combines the products of all ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno._types import OpName
from ripieno.errors import InputError

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator
    from ripieno.graph import LocalGraph


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

        `values`, `own` and the result are (m, …) arrays. Without `own`, a vertex without incoming edges gets the
        neutral element: 0, or the largest number for "min".
        """
        received = self._graph.product(values[: len(self._graph.columns)], op, threads=self._threads)
        if own is None:
            neutral = np.iinfo(values.dtype).max if op == "min" else 0
            own = np.full((np.count_nonzero(self.is_owned), *values.shape[1:]), neutral, values.dtype)
        else:
            own = own[self.is_owned]
        return self._reduction.reduce(np.concatenate([received, own]), op)
