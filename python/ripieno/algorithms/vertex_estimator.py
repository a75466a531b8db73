"""What the estimators of values per vertex share: starting workers, and putting their vertices in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from ripieno.algorithms.checks import check_count
from ripieno.errors import InputError
from ripieno.graph import Graph

if TYPE_CHECKING:
    from ripieno.comm import Communicator


@dataclass(frozen=True)
class Vertices:
    """The vertices of all workers' parts, put in order.

    Parameters
    ----------
    names : (n,) array
        Ids ascending, or the nodes of a networkx graph in their order.
    order : (n,) int64
        Which place each has in the parts, one after the other.
    """

    names: NDArray[Any]
    order: NDArray[np.int64]

    @classmethod
    def of(cls, ids: Sequence[NDArray[np.int64]], graph: Graph) -> Vertices:
        """Of the ids of each part."""
        all_ids = np.concatenate(ids)
        order = np.argsort(all_ids)
        return cls(all_ids[order] if graph.labels is None else graph.labels[all_ids[order]], order)

    def put(self, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Rows of each part as rows of all vertices."""
        return np.concatenate(parts)[self.order]


class VertexEstimator(BaseEstimator):
    """An estimator with parameters `workers`, `threads` and `engine`."""

    def _run(self, program: Callable[..., Any], graph: Graph, *arguments: Any, comm: Communicator | None) -> list[Any]:
        """What `program(comm, graph, *arguments)` returns on each worker, or on each rank of `comm`, if given."""
        check_count("workers", self.workers)
        if self.threads is not None:
            check_count("threads", self.threads)
        if comm is not None:
            return comm.allgather(program(comm, graph, *arguments))
        # Imported late: algorithms and launchers know of each other only here.
        from ripieno.launch import launch

        with launch(self.workers, self.engine, self.threads) as job:
            return job.run(program, graph, *arguments)


def vertex_id(name: str, vertex: Any, graph: Graph) -> int:
    """The id of what the user calls a vertex.

    Raises
    ------
    InputError
        It is no id, or no node of the networkx graph; names the parameter.
    """
    if graph.labels is not None:
        found = [number for number, label in enumerate(graph.labels.tolist()) if label == vertex]
        if not found:
            raise InputError(f"{name}={vertex!r}: the graph has no such vertex")
        return found[0]
    if not isinstance(vertex, int | np.integer) or vertex < 0:
        raise InputError(f"{name}={vertex!r}: expected the id of a vertex, a whole number >= 0")
    return int(vertex)
