"""The names and the order of vertices in results per vertex."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.graph import Graph
from ripieno.kernels.lookup import positions_of


@dataclass(frozen=True)
class VertexOrder:
    """The vertices of all workers' parts, in the order of the result.

    Parameters
    ----------
    names : (n,) array
        Ids or names in ascending order, or the nodes of a networkx graph in their order.
    order : (n,) int64
        Position of each vertex in the concatenated parts.
    """

    names: NDArray[Any]
    order: NDArray[np.int64]

    @classmethod
    def of(cls, ids: Sequence[NDArray[np.int64]], graph: Graph) -> VertexOrder:
        """Create the order from the ids of each part."""
        all_ids = np.concatenate(ids)
        order = np.argsort(all_ids)
        return cls(all_ids[order] if graph.labels is None else graph.labels[all_ids[order]], order)

    def put(self, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Return the concatenated rows of all parts in vertex order."""
        return np.concatenate(parts)[self.order]


def vertex_id(name: str, vertex: Any, graph: Graph) -> int:
    """Return the id of a vertex that the user passed.

    Raises
    ------
    InputError
        The value is not an id, a name or a node of the graph; the message names the parameter.
    """
    if graph.labels is not None:
        found = [number for number, label in enumerate(graph.labels.tolist()) if label == vertex]
        if not found:
            raise InputError(f"{name}={vertex!r}: the graph has no such vertex")
        return found[0]
    if not isinstance(vertex, int | np.integer) or vertex < 0:
        raise InputError(f"{name}={vertex!r}: expected the id of a vertex, a whole number >= 0")
    return int(vertex)


def labels_and_sizes(parts: Sequence[Any], graph: Graph) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64]]:
    """Return the vertices, the vertex that is the label of each, and the numbers of vertices by label, descending."""
    vertices = VertexOrder.of([part.ids for part in parts], graph)
    labels = vertices.put([part.labels for part in parts])
    sizes = np.sort(np.unique(labels, return_counts=True)[1])[::-1]
    return vertices.names, labels if graph.labels is None else graph.labels[labels], sizes


def paths_of(parts: Sequence[Any], graph: Graph) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64]]:
    """Return the vertices, their distances, and the position of the parent of each, or a negative number."""
    vertices = VertexOrder.of([part.ids for part in parts], graph)
    parents, ids = (vertices.put([getattr(part, name) for part in parts]) for name in ("parents", "ids"))
    positions = np.where(parents < 0, parents, positions_of(parents, ids))
    return vertices.names, vertices.put([part.distances for part in parts]), positions
