"""The effective diameter of a graph as an estimator."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ripieno import log
from ripieno._checks import check_count
from ripieno.algorithms.vertices import diameter_program as program
from ripieno.algorithms.vertices.vertex_estimator import VertexEstimator
from ripieno.errors import InputError

if TYPE_CHECKING:
    from typing import Unpack

    from ripieno.algorithms.parameters import FitParameters
    from ripieno.comm.communicator import Communicator
    from ripieno.graph import Graph


class EffectiveDiameter(VertexEstimator):
    """Effective diameter: the number of steps that connects most pairs, estimated by bit strings (HADI).

    Parameters
    ----------
    share : float, default=0.9
        Share of the connected pairs, including each vertex with itself.
    n_strings : int, default=64
        Number of bit strings per vertex, even. The relative error is about 0.78 / sqrt(n_strings); work grows with it.
    max_iter : int, default=1000
        Maximum number of steps.
    random_state : int, RandomState instance or None, default=None
        Source of the strings. With an int, the result does not depend on the number of workers.
    **common : FitParameters
        Where the fit runs and is saved: `workers`, `threads`, `engine`, `on_failure`, `checkpoint` and `every`.

    Attributes
    ----------
    effective_diameter_ : float
        Number of steps within which `share` of the pairs are connected, linearly interpolated.
    pairs_ : ndarray of shape (n_iter_ + 1,), float64
        Estimated number of pairs (from, to) with a path of at most 0, 1, … edges.
    n_iter_ : int
        Number of steps until no string changed: the longest shortest path, or slightly less.
    report_ : PlainReport
        Time breakdown of each rank; see docs/dashboard.md.
    resumed_from_ : int or None
        Number of completed steps at which the fit resumed, after a worker failure or from `checkpoint`; None if it did
        not resume.

    References
    ----------
    Kang et al., "HADI: fast diameter estimation and mining in massive graphs with Hadoop", CMU-ML-08-117, 2008.
    Flajolet and Martin, "Probabilistic counting algorithms for data base applications", JCSS 31, 1985.

    Examples
    --------
    >>> import numpy as np
    >>> from ripieno import Graph
    >>> from ripieno.algorithms import EffectiveDiameter
    >>> ring = Graph((np.arange(100), (np.arange(100) + 1) % 100), directed=False)
    >>> 40 < EffectiveDiameter(random_state=0).fit(ring).effective_diameter_ < 50
    True
    """

    pairs_: NDArray[np.float64]
    effective_diameter_: float

    _program = program.fit

    def __init__(
        self,
        *,
        share: float = 0.9,
        n_strings: int = 64,
        max_iter: int = 1000,
        random_state: int | np.random.RandomState | None = None,
        **common: Unpack[FitParameters],
    ) -> None:
        super().__init__(**common)
        self.share = share
        self.n_strings = n_strings
        self.max_iter = max_iter
        self.random_state = random_state

    def _check_parameters(self) -> None:
        check_count("n_strings", self.n_strings)
        check_count("max_iter", self.max_iter)
        if self.n_strings % 2:
            raise InputError(f"n_strings={self.n_strings}: expected an even number")
        if not isinstance(self.share, Real) or not 0 < self.share <= 1:
            raise InputError(f"share={self.share!r}: expected a number > 0 and <= 1")

    def _arguments(self, graph: Graph, comm: Communicator | None) -> tuple[Any, ...]:
        return self.n_strings, self._seed(comm), self.max_iter, self._checkpoint_options()

    def _store_parts(self, parts: Sequence[Any], graph: Graph) -> None:
        pairs, complete, self.resumed_from_ = parts[0]
        self.pairs_ = np.array(pairs)
        self.n_iter_ = len(pairs) - 1
        self.effective_diameter_ = program.effective_diameter(pairs, self.share)
        if not complete:
            log.warn(
                f"there are paths longer than max_iter={self.max_iter}: pairs at larger distances are not counted",
                ConvergenceWarning,
            )
