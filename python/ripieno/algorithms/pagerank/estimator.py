"""PageRank as an estimator, on one machine's cores or many workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ripieno import log
from ripieno.algorithms.clock import IterationTime, by_rank
from ripieno.algorithms.pagerank import program
from ripieno.algorithms.pagerank.parameters import PageRankParameters, Probabilities
from ripieno.algorithms.pagerank.program import PageRankOptions, PageRankPart, VertexWeights
from ripieno.algorithms.reported import PlainReport, report_warning
from ripieno.algorithms.vertices.order import VertexOrder
from ripieno.algorithms.vertices.vertex_estimator import VertexEstimator
from ripieno.algorithms.worker_estimator import ObservedEstimator
from ripieno.errors import InputError
from ripieno.graph import Graph
from ripieno.wire.arrays import check_complete

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator


@dataclass(frozen=True)
class PageRankIteration(IterationTime):
    """One iteration and its duration.

    Parameters
    ----------
    error
        Sum over the vertices of the absolute change of their ranks.
    """

    error: float


@dataclass(frozen=True, kw_only=True, repr=False)
class PageRankReport(PlainReport):
    """The report of a fit. `PlainReport` describes the other fields.

    Parameters
    ----------
    vertex_count, edge_count
        Vertices and edges of the graph; duplicate edges are merged, and undirected edges count in both directions.
    edge_counts, hosts, threads
        Edge count, host and thread count of each rank.
    degrees
        Degrees of the layers of the sparse reduction; None with one worker.
    load_s
        Seconds of reading, distributing and sorting the edges, on the slowest rank.
    configure_s
        Seconds of configuring the sparse reduction, on the slowest rank.
    """

    iterations: tuple[PageRankIteration, ...]
    vertex_count: int
    edge_count: int
    edge_counts: tuple[int, ...]
    hosts: tuple[str, ...]
    threads: tuple[int, ...]
    degrees: str | None
    load_s: float
    configure_s: float

    @property
    def edges_per_s(self) -> float:
        """Return the edges traversed per second of iteration time."""
        return self.edge_count * len(self.iterations) / max(sum(each.seconds for each in self.iterations), 1e-9)


class PageRank(PageRankParameters, VertexEstimator, ObservedEstimator):
    """PageRank: the stationary distribution of a random walk with jumps, by power iteration.

    Attributes
    ----------
    ranks_ : ndarray of shape (n,), float64
        Rank of each vertex; the ranks add up to 1.
    n_iter_ : int
        Number of iterations, including iterations before a checkpoint.
    converged_ : bool
        Whether the iteration ended by `tol` instead of `max_iter`.
    report_ : PageRankReport
        Error and seconds per iteration and rank.

    Notes
    -----
    Ranks equal the ranks of `networkx.pagerank` and igraph. The walk takes an edge with a probability proportional to
    its weight. Each step redistributes the rank mass of dangling vertices. `Graph` determines whether parallel edges
    count once or add up. The same input, workers and parameters give bitwise equal results.

    References
    ----------
    Page, Brin, Motwani and Winograd, "The PageRank citation ranking", Stanford InfoLab, 1999.
    Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section I.A and eq. 2.

    Examples
    --------
    >>> import numpy as np
    >>> from ripieno.algorithms import PageRank
    >>> model = PageRank().fit(np.array([[0, 2], [1, 2], [2, 0]]))
    >>> model.vertices_
    array([0, 1, 2])
    >>> model.ranks_.round(3)
    array([0.464, 0.05 , 0.486])
    """

    vertices_: NDArray[Any]
    ranks_: NDArray[np.float64]
    converged_: bool
    report_: PageRankReport

    _program = program.fit

    def _arguments(self, graph: Graph, comm: Communicator | None) -> tuple[Any, ...]:
        options = self._worker_options(
            PageRankOptions,
            personalization=_vertex_weights("personalization", self.personalization, graph),
            dangling=_vertex_weights("dangling", self.dangling, graph),
        )
        return (options,)

    def top(self, count: int = 10) -> list[tuple[Any, float]]:
        """Return the vertices of highest rank with their ranks, in descending order; ties are in vertex order."""
        order = np.lexsort((np.arange(len(self.ranks_)), -self.ranks_))[:count]
        return list(zip(self.vertices_[order].tolist(), self.ranks_[order].tolist(), strict=True))

    def _on_event(self, event: dict[str, Any]) -> None:
        super()._on_event(event)
        if self.verbose:
            print("iteration {iteration}: error {error:.3g}, goal {goal:.3g}".format(**event))

    def _store_parts(self, parts: Sequence[PageRankPart], graph: Graph) -> None:
        vertices = VertexOrder.of([part.ids for part in parts], graph)
        self.vertices_ = vertices.names
        self.ranks_ = vertices.put([part.ranks for part in parts])
        first = parts[0]
        self.n_iter_, self.converged_, self.resumed_from_ = first.iteration_count, first.converged, first.resumed_from
        with report_warning():
            laps = zip(*(part.laps for part in parts), strict=True)
            self.report_ = PageRankReport(
                iterations=tuple(
                    PageRankIteration(*by_rank(lap), error)
                    for error, lap in zip(first.errors[first.resumed_from or 0 :], laps, strict=True)
                ),
                vertex_count=first.vertex_count,
                edge_count=first.edge_count,
                edge_counts=tuple(part.own_edge_count for part in parts),
                hosts=tuple(part.host for part in parts),
                threads=tuple(part.threads for part in parts),
                degrees=first.degrees,
                load_s=max(part.load_s for part in parts),
                configure_s=max(part.configure_s for part in parts),
            )
        if not first.converged:
            log.warn(
                f"after max_iter={self.max_iter} iterations the ranks still changed by {first.errors[-1]:.3g}, "
                f"not by less than {first.vertex_count * self.tol:.3g}: allow more iterations, or a higher tol",
                ConvergenceWarning,
            )


def _vertex_weights(name: str, probabilities: Probabilities | None, graph: Graph) -> VertexWeights | None:
    """Return the vertex ids and values of a parameter, checked."""
    if probabilities is None:
        return None
    try:
        if isinstance(probabilities, Mapping):
            vertices, values = list(probabilities), list(probabilities.values())
        else:
            for column in probabilities:
                check_complete(column, name)
            vertices, values = (np.asarray(column).tolist() for column in probabilities)
        if graph.labels is not None:
            numbers = {label: number for number, label in enumerate(graph.labels.tolist())}
            unknown = next((vertex for vertex in vertices if vertex not in numbers), None)
            if unknown is not None:
                raise InputError(f"{name}: the graph has no vertex {unknown!r}")
            vertices = [numbers[vertex] for vertex in vertices]
        ids, weights = np.array(vertices), np.array(values, np.float64)
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: expected a dict, or vertices and a number for each: {error}") from error
    if ids.size and ids.dtype.kind not in "iu":
        raise InputError(f"{name}: vertices of type {ids.dtype}, expected whole numbers")
    if ids.ndim != 1 or ids.shape != weights.shape or len(np.unique(ids)) < len(ids):
        raise InputError(f"{name}: expected one number for each vertex, and each vertex once")
    if not np.isfinite(weights).all() or weights.min(initial=0) < 0 or not weights.any():
        raise InputError(f"{name}: expected numbers >= 0, not all of them 0")
    return ids.astype(np.int64), weights
