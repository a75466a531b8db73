"""Parameters of multidimensional scaling."""

from __future__ import annotations

import os
from typing import ClassVar, get_args

from numpy.typing import ArrayLike

from ripieno._native import MAX_DIMENSIONS
from ripieno._types import ThreadModel
from ripieno.algorithms.domains import COUNT, STARTS_MAX, TOLERANCE, Domain, Integer, Number, OneOf
from ripieno.algorithms.methods import MDS_METHODS, PRECOMPUTED, ROW_METRICS, SEQUENCE_METRICS
from ripieno.algorithms.parameters import (
    FitOptions,
    FitParameters,
    ObservedParameters,
    OptionsOf,
    RandomParameters,
    declared,
    parameter,
)


@declared
class MDSFitOptions(FitOptions):
    """Options of a fit of multidimensional scaling."""

    thread_model: ThreadModel = parameter(
        OneOf(*get_args(ThreadModel)),
        """Model of the threads of a worker.

        The result is the same. With "fork-join" each pass over the pairs is a task of the threads, which sleep between
        distant tasks. With "bsp" the threads enter once and are busy until the fit ends: they spin while the worker
        communicates, and each prepares its own copy of the positions.""",
        default="fork-join",
        may_change=True,
    )


@declared
class MDSParameters(RandomParameters, ObservedParameters, FitParameters):
    """Parameters of `MDS`."""

    _more_on_iteration = """\
    "iteration": "iteration" (from 1), "stress", "normalized_stress", "start" (from 1, with several starts),
    "temperature" (with annealing), and rank 0's "compute_s" and "communication_s"."""
    _more_random_state = "It draws the random positions and the small moves of annealing."

    n_components: int = parameter(
        Integer(1, MAX_DIMENSIONS),
        "Number of dimensions of the positions.",
        default=2,
        kw_only=False,
        options=("--components",),
    )
    method: str = parameter(
        OneOf(*MDS_METHODS),
        """Descent method.

        "smacof" uses majorization alone. "da-smacof" adds deterministic annealing, and then moves single points to
        positions of less stress. It takes longer, usually finds lower minima, and hardly depends on the start.""",
        default="smacof",
    )
    weights: ArrayLike | str | os.PathLike[str] | None = parameter(
        Domain("array of shape (n_samples, n_samples), path or None"),
        """Weights of the pairs: symmetric numbers >= 0, with 0 for missing dissimilarities. None: equal weights.""",
        default=None,
    )
    metric: str = parameter(
        OneOf(PRECOMPUTED, *ROW_METRICS, *SEQUENCE_METRICS),
        """Content of the input: dissimilarities (precomputed), or rows or sequences with one of these metrics.

        Each worker computes the distances of its own rows. For sequences of letters, "levenshtein" counts insertions,
        deletions and substitutions, and "normalized-levenshtein" divides this by the length of the longer sequence.
        These two require the extra ``ripieno[sequences]``.""",
        default=PRECOMPUTED,
    )
    init: str | ArrayLike = parameter(
        OneOf("random", other="array of shape (n_samples, n_components)"),
        "Initial positions. Random positions equal scikit-learn's for the same integer seed.",
        default="random",
        has_option=False,
    )
    n_init: int | str = parameter(
        Integer(1, STARTS_MAX, also=("auto",)),
        """Number of random starts; the result with the lowest stress is kept. "auto" means 4 with annealing from random
        positions, otherwise 1.

        With annealing, every second start begins colder.""",
        default="auto",
        aliases=("--starts",),
    )
    max_iter: int = parameter(
        COUNT, "Maximum number of iterations per start and per temperature.", default=300, may_change=True
    )
    tol: float = parameter(
        TOLERANCE,
        """A start or temperature ends when the stress falls by less than this share of the squared distances.

        This is scikit-learn's rule. With annealing, the share refers to the squared dissimilarities.""",
        default=1e-6,
        former=("eps",),
        may_change=True,
    )
    cooling: float = parameter(
        Number(above=0, below=1), """Ratio of consecutive temperatures for "da-smacof".""", default=0.95
    )
    options: MDSFitOptions | None = parameter(
        OptionsOf(MDSFitOptions),
        """Tuning of the fit, as `Options(name=value, …)` of the estimator: options that determine its speed and
        memory.""",
        default=None,
        role="tuning",
    )
    Options: ClassVar[type[MDSFitOptions]]
