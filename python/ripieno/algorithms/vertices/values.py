"""Values per vertex, available on the ranks that need them, and steps along all edges.

A step is a product with the local matrix, with the operation as its sum, and a sparse reduction.
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


def check_weights(graph: LocalGraph, who: str) -> None:
    """Raise InputError, naming the estimator, if an edge of this rank has a negative weight."""
    _, columns, weights = graph.matrix.entries()
    if weights is not None and weights.min(initial=0) < 0:
        source = graph.columns[columns[np.argmin(weights)]]
        raise InputError(f"an edge from vertex {source} has the weight {weights.min()}: {who} needs weights >= 0")


class VertexValues:
    """The vertices with values on this rank, and the exchange of the values.

    Attributes
    ----------
    vertices : (m,) int64
        Vertices for which this rank stores values: all vertices it knows.
    home : (m,) bool
        Whether this rank owns the vertex.
    """

    def __init__(self, comm: Communicator, graph: LocalGraph) -> None:
        self.vertices, self.is_owned = graph.vertices.ids, graph.vertices.is_owned
        self._graph, self._threads = graph, comm.threads
        # Every vertex has an owner that contributes to it, so no wanted vertex is missing.
        given = np.concatenate([graph.rows, self.vertices[self.is_owned]])
        self._reduction = comm.sparse(given, self.vertices, size=graph.vertices.largest + 1)

    def step(self, values: NDArray[Any], op: OpName, own: NDArray[Any] | None = None) -> NDArray[Any]:
        """Combine, for each vertex, the values of its edges' sources and its `own` value.

        All three are (m, …) arrays. Without `own`, a vertex without incoming edges gets the neutral element: 0, or the
        largest number for "min".
        """
        received = self._graph.product(values[: len(self._graph.columns)], op, threads=self._threads)
        if own is None:
            neutral = np.iinfo(values.dtype).max if op == "min" else 0
            own = np.full((np.count_nonzero(self.is_owned), *values.shape[1:]), neutral, values.dtype)
        else:
            own = own[self.is_owned]
        return self._reduction.reduce(np.concatenate([received, own]), op)
