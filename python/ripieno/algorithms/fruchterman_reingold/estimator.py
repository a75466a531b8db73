"""Graph layouts as an estimator, on one machine's cores or many workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, check_random_state

from ripieno._checks import check_count, number, whole_number
from ripieno.algorithms.column_choice import ColumnChoice
from ripieno.algorithms.fruchterman_reingold import program
from ripieno.algorithms.fruchterman_reingold.program import LayoutOptions, LayoutPart
from ripieno.algorithms.iteration_log import RunReport
from ripieno.algorithms.methods import BARNES_HUT, LAYOUT_APPROXIMATIONS
from ripieno.algorithms.own_rows import graph_for_fit
from ripieno.algorithms.reported import report_warning, reported
from ripieno.algorithms.vertices.order import vertex_id
from ripieno.algorithms.worker_estimator import IterativeEstimator, ObservedEstimator
from ripieno.errors import InputError
from ripieno.graph import Graph
from ripieno.kernels.forces import TREE_DIMENSIONS
from ripieno.kernels.pairs import MOST_DIMENSIONS
from ripieno.wire.arrays import check_unmasked

if TYPE_CHECKING:
    from typing import Unpack

    from ripieno._types import Rows
    from ripieno.algorithms.parameters import FitParameters
    from ripieno.comm.communicator import Communicator

Reals = NDArray[np.float64]


class FruchtermanReingold(IterativeEstimator, ObservedEstimator):
    """Force-directed graph layout: all vertices repel each other, and edges attract.

    Parameters
    ----------
    dim : int, default=2
        Number of dimensions of the positions, at most 64.
    k : float, default=None
        Distance at which the attraction of an edge of weight 1 equals the repulsion of its ends; None: 1/√n.
    iterations : int, default=50
        Maximum number of iterations.
    threshold : float, default=1e-4
        The fit ends when the square root of the sum of all squared moves, divided by the number of vertices, is below
        this.
    init : "random", array of shape (n, dim) or dict, default="random"
        Initial positions, in the order of `vertices_` or by vertex; missing vertices get random positions. Random
        positions equal networkx's for the same integer seed.
    fixed : sequence of vertices, default=()
        Vertices that keep their initial positions.
    approximation : {"auto", "exact", "barnes-hut"}, default="auto"
        How repulsion is computed. "exact" sums over all pairs. "barnes-hut" treats distant clusters as single points,
        in two or three dimensions. "auto" uses "barnes-hut" for more than 50,000 vertices in two or three dimensions.
        `approximation_`, the report and each event name the method used.
    theta : float, default=0.7
        For "barnes-hut": a cluster acts as one point if its box is narrower than `theta` times its distance. Smaller
        values are more exact and slower.
    random_state : int, RandomState instance or None, default=None
        Source of the random positions.
    on_iteration : callable or None, default=None
        Called in the calling process after each iteration with a dict of "event" ("iteration"), "iteration" (from 1),
        "change" (compared with `threshold`), "step" (maximum length of a move), "approximation", and rank 0's
        "compute_s" and "communication_s".
    **common : FitParameters
        Where the fit runs and is saved: `workers`, `threads`, `engine`, `on_failure`, `checkpoint` and `every`.

    Attributes
    ----------
    positions_ : ndarray of shape (n, dim), float64
        Positions of the vertices, not scaled.
    vertices_ : ndarray of shape (n,)
        The vertices: ids or names in ascending order, or the nodes of a networkx graph in their order.
    approximation_ : {"exact", "barnes-hut"}
        Method that computed the repulsion.
    n_iter_ : int
        Number of iterations.
    resumed_from_ : int or None
        Number of completed iterations at which the fit resumed from a checkpoint; None if it did not resume.
    report_ : RunReport
        Change, approximation and seconds per iteration and rank.

    Notes
    -----
    Forces equal the forces of networkx's `spring_layout(method="force")`. Pair forces are computed in float32. An exact
    iteration takes time proportional to n²; each pair is computed once. A Barnes-Hut iteration takes time proportional
    to n·log(n). Memory is proportional to n plus the number of edges. The result is bitwise equal for any number of
    workers and threads, on processors with the same vector instructions.

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

    positions_: Reals
    vertices_: NDArray[Any]
    approximation_: str
    n_iter_: int
    resumed_from_: int | None
    report_: RunReport

    def __init__(
        self,
        dim: int = 2,
        *,
        k: float | None = None,
        iterations: int = 50,
        threshold: float = 1e-4,
        init: str | ArrayLike | Mapping[Any, ArrayLike] = "random",
        fixed: Sequence[Any] = (),
        approximation: str = "auto",
        theta: float = 0.7,
        random_state: int | np.random.RandomState | None = None,
        on_iteration: Callable[[dict[str, Any]], None] | None = None,
        **common: Unpack[FitParameters],
    ) -> None:
        super().__init__(**common)
        self.dim = dim
        self.k = k
        self.iterations = iterations
        self.threshold = threshold
        self.init = init
        self.fixed = fixed
        self.approximation = approximation
        self.theta = theta
        self.random_state = random_state
        self.on_iteration = on_iteration

    @reported
    def fit(
        self,
        graph: Any,
        y: object = None,
        *,
        comm: Communicator | None = None,
        rows: Rows | None = None,
        **choice: Unpack[ColumnChoice],
    ) -> FruchtermanReingold:
        """Compute the positions.

        Parameters
        ----------
        graph : Graph, or any input of `Graph`
            In a directed graph, each edge attracts only its source, as in networkx.
        y : ignored
        comm : Communicator, optional
            Ranks that make this call together, instead of newly started workers. All ranks get the result.
        rows : {"own", "shared"}, optional
            With `comm`: "own" if each rank passes its own edges; "shared" if all ranks pass the same graph. Default:
            ranks compare their graphs and raise an error if these differ. The result covers all vertices.
        **choice : ColumnChoice
            Columns of frames and of tables in files, by name: `columns` to read, by default all; `ignore`, those to
            leave out; `id`, the names of the edges, which are no values.

        Returns
        -------
        FruchtermanReingold
            The estimator itself.

        Raises
        ------
        InputError
            Invalid input or parameter. InputError is a ValueError; its message names the problem.
        CheckpointError
            The checkpoint belongs to another fit, is in use, or cannot be written.
        CollectiveMismatch
            The ranks of `comm` make different calls, have different parameters, or pass different rows without `rows`.
        RankFailed
            A worker died.
        """
        begin = time.perf_counter()
        self._check_parameters()
        graph = graph_for_fit(graph, comm=comm, rows=rows)
        options = LayoutOptions(
            dim=int(self.dim),
            k=None if self.k is None else float(self.k),
            iterations=self.iterations,
            threshold=float(self.threshold),
            approximation=self.approximation,
            theta=float(self.theta),
            init=None if isinstance(self.init, Mapping) else self._init(),
            known=self._known_positions(graph) if isinstance(self.init, Mapping) else None,
            fixed=np.array([vertex_id("fixed", vertex, graph) for vertex in self.fixed], np.int64),
            seed=self._own_seed(comm),
            has_seed=isinstance(self.random_state, Integral),
            checkpoint_options=self._checkpoint_options(),
        )
        parts = self._run_fit(program.fit, graph, options, comm=comm)
        self._store_result(parts, graph, time.perf_counter() - begin)
        return self

    def _init(self) -> Reals | None:
        if isinstance(self.init, str):
            if self.init != "random":
                raise InputError(f"init={self.init!r}: expected 'random' or positions")
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
            raise InputError(f"init: expected {self.dim} coordinates for each vertex: {error}") from error
        if positions.shape != (len(ids), self.dim) or not np.isfinite(positions).all():
            raise InputError(f"init: positions of shape {positions.shape}: expected {self.dim} finite numbers for each")
        return np.array(ids, np.int64), positions

    def _own_seed(self, comm: Communicator | None) -> int:
        if not isinstance(self.random_state, Integral):
            return self._seed(comm)
        check_random_state(self.random_state)
        return int(self.random_state) if comm is None else comm.broadcast(int(self.random_state))

    def _check_parameters(self) -> None:
        self._check_workers()
        whole_number("dim", self.dim, 1, MOST_DIMENSIONS)
        check_count("iterations", self.iterations)
        if self.k is not None and not 0 < number("k", self.k, "expected a number > 0") < np.inf:
            raise InputError(f"k={self.k!r}: expected a number > 0")
        if not number("threshold", self.threshold, "expected a number >= 0") >= 0:
            raise InputError(f"threshold={self.threshold!r}: expected a number >= 0")
        if not 0 <= number("theta", self.theta, "expected a number >= 0") < np.inf:
            raise InputError(f"theta={self.theta!r}: expected a number >= 0")
        if self.approximation not in LAYOUT_APPROXIMATIONS:
            raise InputError(
                f"approximation={self.approximation!r}: expected one of {', '.join(LAYOUT_APPROXIMATIONS)}"
            )
        if self.approximation == BARNES_HUT and self.dim not in TREE_DIMENSIONS:
            raise InputError(
                f"approximation='barnes-hut' with dim={self.dim}: expected 2 or 3 dimensions, or approximation='exact'"
            )

    def _store_result(self, parts: list[LayoutPart], graph: Graph, total_s: float) -> None:
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
                total_s=total_s,
            )
