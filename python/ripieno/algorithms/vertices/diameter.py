"""The effective diameter of a graph as an estimator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ripieno import log
from ripieno.algorithms.vertices import diameter_program as program
from ripieno.algorithms.vertices.parameters import DiameterParameters
from ripieno.algorithms.vertices.vertex_estimator import VertexEstimator
from ripieno.errors import InputError

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator
    from ripieno.graph import Graph


class EffectiveDiameter(DiameterParameters, VertexEstimator):
    """Effective diameter: the number of steps within which most pairs are connected, estimated by bit strings (HADI).

    Attributes
    ----------
    effective_diameter_ : float
        Number of steps within which `share` of the pairs are connected, linearly interpolated.
    pairs_ : ndarray of shape (n_iter_ + 1,), float64
        Estimated number of pairs (from, to) with a path of at most 0, 1, … edges.
    n_iter_ : int
        Number of steps until no string changed: the longest shortest path, or slightly less.

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

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.n_strings % 2:
            raise InputError(f"n_strings={self.n_strings}: expected an even number")

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
