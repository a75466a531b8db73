"""A value per vertex, where this rank needs it, and steps along all edges.

A step is a product of the local matrix, in which sums are whatever the operation says, and a sparse reduction.
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
    """Raise InputError, saying who cannot take it, if an edge of this rank has a negative weight."""
    _, columns, weights = graph.matrix.entries()
    if weights is not None and weights.min(initial=0) < 0:
        source = graph.columns[columns[np.argmin(weights)]]
        raise InputError(f"an edge from vertex {source} has the weight {weights.min()}: {who} needs weights >= 0")


class VertexValues:
    """Where the values of a graph's vertices stand, and how they get there.

    Attributes
    ----------
    vertices : (m,) int64
        The vertices whose values this rank keeps: all that it knows of.
    home : (m,) bool
        Where a vertex counts.
    """

    def __init__(self, comm: Communicator, graph: LocalGraph) -> None:
        self.vertices, self.home = graph.vertices.ids, graph.vertices.home
        self._graph, self._threads = graph, comm.threads
        # Every vertex has a home that contributes to it, so none that is wanted is missing.
        given = np.concatenate([graph.rows, self.vertices[self.home]])
        self._reduction = comm.sparse(given, self.vertices, size=graph.vertices.largest + 1)

    def step(self, values: NDArray[Any], op: OpName, own: NDArray[Any] | None = None) -> NDArray[Any]:
        """Combine for each vertex the values of the sources of its edges; and its `own`.

        All three are (m, …) arrays. Without `own` a vertex that no edge leads to gets what is neutral: 0, or of "min"
        the largest number.
        """
        came = self._graph.product(values[: len(self._graph.columns)], op, threads=self._threads)
        if own is None:
            neutral = np.iinfo(values.dtype).max if op == "min" else 0
            own = np.full((np.count_nonzero(self.home), *values.shape[1:]), neutral, values.dtype)
        else:
            own = own[self.home]
        return self._reduction.reduce(np.concatenate([came, own]), op)
