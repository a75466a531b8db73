"""Base class of estimators that compute a property of the vertices of a graph."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ripieno.algorithms.column_choice import ColumnChoice
from ripieno.algorithms.own_rows import graph_for_fit
from ripieno.algorithms.reported import ShownReport, reported
from ripieno.algorithms.worker_estimator import IterativeEstimator

if TYPE_CHECKING:
    from typing import Unpack

    from ripieno._types import Rows
    from ripieno.comm.communicator import Communicator
    from ripieno.graph import Graph


class VertexEstimator(IterativeEstimator):
    """An estimator with one program for its workers, on the edges of a graph."""

    # The program of a worker: `_program(comm, graph, *arguments)`.
    _program: ClassVar[Callable[..., Any]]

    n_iter_: int
    report_: ShownReport

    @reported
    def fit(
        self,
        graph: Any,
        y: object = None,
        *,
        comm: Communicator | None = None,
        rows: Rows | None = None,
        **choice: Unpack[ColumnChoice],
    ) -> Self:
        """Compute the attributes of the estimator for a graph.

        Parameters
        ----------
        graph : Graph, or any input of `Graph`
        y : ignored

        Warns
        -----
        ConvergenceWarning
            The result is incomplete after `max_iter` iterations, or has fewer clusters than requested.
        """
        if hasattr(self, "random_state"):
            self._check_seeds(comm)
        graph = graph_for_fit(graph, comm=comm, rows=rows)
        parts = self._run_fit(type(self)._program, graph, *self._arguments(graph, comm), comm=comm)
        self._store_parts(parts, graph)
        return self

    def _arguments(self, graph: Graph, comm: Communicator | None) -> tuple[Any, ...]:
        """Return the arguments of the program after the graph."""
        return (self._checkpoint_options(),)

    @abstractmethod
    def _store_parts(self, parts: Sequence[Any], graph: Graph) -> None:
        """Store the attributes, given the results of all workers."""
