"""Graph layouts as an estimator, on one machine's cores or many workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

from ripieno.algorithms.fruchterman_reingold import program
from ripieno.algorithms.fruchterman_reingold.parameters import LayoutParameters
from ripieno.algorithms.fruchterman_reingold.program import LayoutOptions, LayoutPart
from ripieno.algorithms.iteration_log import RunReport
from ripieno.algorithms.methods import BARNES_HUT
from ripieno.algorithms.reported import report_warning
from ripieno.algorithms.vertices.order import vertex_id
from ripieno.algorithms.vertices.vertex_estimator import VertexEstimator
from ripieno.algorithms.worker_estimator import ObservedEstimator
from ripieno.errors import InputError
from ripieno.graph import Graph
from ripieno.kernels.forces import TREE_DIMENSIONS
from ripieno.wire.arrays import check_unmasked

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

Reals = NDArray[np.float64]


class FruchtermanReingold(LayoutParameters, VertexEstimator, ObservedEstimator):
    """Force-directed graph layout: all vertices repel each other, and edges attract.

    Attributes
    ----------
    positions_ : ndarray of shape (n, n_components), float64
        Positions of the vertices, not scaled.
    approximation_ : {"exact", "barnes-hut"}
        Method that computed the repulsion.
    n_iter_ : int
        Number of iterations.
    report_ : RunReport
        Change, approximation and seconds per iteration and rank.

    Notes
    -----
    In a directed graph, each edge attracts only its source, as in networkx. Forces equal the forces of networkx's
    `spring_layout(method="force")`. Pair forces are computed in float32. An exact iteration takes time proportional to
    n²; each pair is computed once. A Barnes-Hut iteration takes time proportional to n·log(n). Memory is proportional
    to n plus the number of edges. The result is bitwise equal for any number of workers and threads, on processors with
    the same vector instructions.

    References
    ----------
    Fruchterman and Reingold, "Graph drawing by force-directed placement", Software: Practice and Experience 21(11),
    1991.
    Barnes and Hut, "A hierarchical O(N log N) force-calculation algorithm", Nature 324, 1986.
    Zhang, Ruan and Qiu, "Harp: collective communication on Hadoop", IC2E 2015, section V.

    Examples
    --------
    >>> import numpy as np
    >>> from ripieno.algorithms import FruchtermanReingold
    >>> model = FruchtermanReingold(random_state=0).fit(np.array([[0, 1], [1, 2], [2, 3], [3, 0]]))
    >>> model.positions_.shape
    (4, 2)
    """

    _command = "layout"

    positions_: Reals
    vertices_: NDArray[Any]
    approximation_: str
    report_: RunReport

    _program = program.fit

    def _arguments(self, graph: Graph, comm: Communicator | None) -> tuple[Any, ...]:
        options = self._worker_options(
            LayoutOptions,
            init=None if isinstance(self.init, Mapping) else self._init(),
            known=self._known_positions(graph) if isinstance(self.init, Mapping) else None,
            fixed=np.array([vertex_id("fixed", vertex, graph) for vertex in self.fixed], np.int64),
            seed=self._own_seed(comm),
        )
        return (options,)

    def _init(self) -> Reals | None:
        if isinstance(self.init, str):
            return None
        check_unmasked(self.init, "init")
        init: Reals = check_array(self.init, dtype=np.float64, ensure_all_finite=False, input_name="init")
        if not np.isfinite(init).all():
            raise InputError("init: a coordinate is NaN or infinite, expected finite numbers")
        return init

    def _known_positions(self, graph: Graph) -> tuple[NDArray[np.int64], Reals]:
        """Return ids and positions of the vertices in `init`."""
        assert isinstance(self.init, Mapping)
        if graph.labels is None:
            ids = list(self.init)
        else:
            numbers = {label: number for number, label in enumerate(graph.labels.tolist())}
            unknown = next((vertex for vertex in self.init if vertex not in numbers), None)
            if unknown is not None:
                raise InputError(f"init: the graph has no vertex {unknown!r}")
            ids = [numbers[vertex] for vertex in self.init]
        try:
            positions = np.array(list(self.init.values()), np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"init: expected {self.n_components} coordinates for each vertex: {error}") from error
        if positions.shape != (len(ids), self.n_components) or not np.isfinite(positions).all():
            raise InputError(
                f"init: positions of shape {positions.shape}: expected {self.n_components} finite numbers for each"
            )
        return np.array(ids, np.int64), positions

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.approximation == BARNES_HUT and self.n_components not in TREE_DIMENSIONS:
            raise InputError(
                f"approximation='barnes-hut' with n_components={self.n_components}: expected 2 or 3 dimensions, or "
                "approximation='exact'"
            )

    def _store_parts(self, parts: Sequence[LayoutPart], graph: Graph) -> None:
        first = parts[0]
        self.positions_ = first.positions
        self.vertices_ = first.ids if graph.labels is None else graph.labels[first.ids]
        self.approximation_ = first.approximation
        self.n_iter_ = first.iteration_count
        self.resumed_from_ = first.resumed_from
        with report_warning():
            self.report_ = RunReport.of(
                [part.record for part in parts],
                row_count=len(first.ids),
                column_count=first.edge_count,
                dtype="float32",
            )
