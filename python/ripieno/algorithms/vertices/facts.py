"""The facts that identify the checkpoints of graph fits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.graph.edges import Edges, matrix_edges
from ripieno.kernels.hashing import mixed

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator
    from ripieno.graph import LocalGraph, PartitionedGraph


def facts(comm: Communicator, graph: LocalGraph, **parameters: Any) -> dict[str, Any]:
    """Return facts by name: counts and a digest of the edges that identify the graph, and parameters of the fit."""
    return _facts(comm, graph.edges, graph.vertices.total, graph.edge_count, parameters)


def partitioned_facts(comm: Communicator, graph: PartitionedGraph, **parameters: Any) -> dict[str, Any]:
    """Return `facts` of a partitioned graph."""
    return _facts(comm, matrix_edges(*graph.matrix), graph.vertex_count, graph.edge_count, parameters)


def _facts(
    comm: Communicator, edges: Edges, vertex_count: int, edge_count: int, parameters: dict[str, Any]
) -> dict[str, Any]:
    bits = mixed(mixed(edges.sources).view(np.int64) + edges.targets).view(np.int64)
    if edges.weights is not None:
        bits = bits + edges.weights.view(np.int64)
    own: NDArray[np.int64] = np.array([mixed(bits).view(np.int64).sum()])
    return {
        "the number of vertices": vertex_count,
        "the number of edges": edge_count,
        "the sum of the edges": int(comm.allreduce(own)[0]),
        **parameters,
    }
