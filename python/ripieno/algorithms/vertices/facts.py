"""The facts that identify the checkpoints of graph fits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.kernels.hashing import mixed

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator
    from ripieno.graph import LocalGraph


def facts(comm: Communicator, graph: LocalGraph, **parameters: Any) -> dict[str, Any]:
    """Return facts by name: counts and a digest of the edges that identify the graph, and parameters of the fit."""
    offsets, columns, weights = graph.matrix.entries()
    begins: NDArray[np.int64] = offsets.astype(np.int64)
    targets = np.repeat(graph.rows, np.diff(begins))
    bits = mixed(mixed(graph.columns[columns]).view(np.int64) + targets).view(np.int64)
    if weights is not None:
        bits = bits + weights.view(np.int64)
    own: NDArray[np.int64] = np.array([mixed(bits).view(np.int64).sum()])
    return {
        "the number of vertices": graph.vertices.total,
        "the number of edges": graph.edge_count,
        "the sum of the edges": int(comm.allreduce(own)[0]),
        **parameters,
    }
