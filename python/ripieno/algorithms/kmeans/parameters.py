"""Parameters of K-means and of mini-batch K-means."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal, get_args

from numpy.typing import ArrayLike

from ripieno._types import ThreadModel
from ripieno.algorithms.domains import COUNT, STARTS_MAX, TOLERANCE, Integer, OneOf
from ripieno.algorithms.parameters import (
    FitOptions,
    FitParameters,
    ObservedParameters,
    OptionsOf,
    RandomParameters,
    VerboseParameters,
    declared,
    parameter,
)

INITS = ("k-means||", "k-means++", "random")


@declared
class CentroidParameters(RandomParameters, ObservedParameters, FitParameters):
    """Parameters of both estimators."""

    n_clusters: int = parameter(COUNT, "Number of clusters.", default=8, kw_only=False, options=("-k", "--clusters"))
    init: str | ArrayLike | Callable[..., ArrayLike] = parameter(
        OneOf(*INITS, other="array-like of shape (n_clusters, n_features) or callable"),
        """Initial centroids.

        The named methods depend only on `random_state` and the data, not on the number of workers. "k-means||" draws
        candidates in a few rounds and selects from them by greedy k-means++. For more than 1,000 clusters, it instead
        runs k-means++ in cells of nearby rows, all cells in parallel. "k-means++" passes over all rows once per
        cluster. A callable is called as ``init(X, n_clusters, random_state=...)`` and requires an array. To continue
        from another model, pass its `cluster_centers_`.""",
        default="k-means||",
    )
    n_init: Literal["auto"] | int = parameter(
        Integer(1, STARTS_MAX, also=("auto",)),
        """Number of runs from different starts; the run with the lowest inertia is kept. "auto" means 10 for "random"
        and callables with exact assignment, else 1.""",
        default="auto",
    )


@declared
class KMeansFitOptions(FitOptions):
    """Options of a fit of K-means."""

    thread_model: ThreadModel = parameter(
        OneOf(*get_args(ThreadModel)),
        """Model of the threads of a worker.

        The result is the same. With "fork-join" each phase is a task of the threads, which sleep between distant tasks.
        With "bsp" the threads enter once and are busy until the fit ends: they spin while the worker communicates.
        Without bounds they run both phases of an iteration as one task.""",
        default="fork-join",
        may_change=True,
    )
    assign: Literal["exact", "near"] = parameter(
        OneOf("exact", "near"),
        """Compare each row with all centroids (exact), or only with the centroids of a few groups near it and with its
        previous centroid (near).

        "near" pays with thousands of clusters. Each iteration measures the loss on a new sample of 1,024 rows that are
        also assigned exactly. The loss determines how many groups the next iteration probes. `bounds` are not used with
        "near", and a fit resumed from a checkpoint gives only approximately the same result.""",
        default="exact",
    )
    bounds: Literal["auto", "none"] = parameter(
        OneOf("auto", "none"),
        """Skip centroids that the previous iteration excluded for a row (auto), or not (none); the result is the same.

        Bounds require more than 8 columns and 63 clusters. From the second iteration on, each worker decides by a
        sample of its rows whether they save time. They take at most 4 bytes per coordinate of the rows. `report_` gives
        their size and the share of pairs compared.""",
        default="auto",
        may_change=True,
    )
    centroids: Literal["auto", "whole", "divided"] = parameter(
        OneOf("auto", "whole", "divided"),
        """Placement of the centroids: all on each worker (whole), or a share on each (divided). "auto" divides the
        centroids if all of them would take more than half of a worker's available memory.

        Divided shares travel around a ring block by block. Exact assignment then gives the same result, except for the
        rounding of sums with three or more workers. `bounds` has no effect with divided centroids, and a checkpoint
        covers a single run. With `init="k-means++"` or an array, each worker holds all initial centroids before it
        divides them.""",
        default="auto",
        may_change=True,
    )
    algorithm: Literal["lloyd", "elkan"] = parameter(
        OneOf("lloyd", "elkan"),
        "Accepted for programs that use scikit-learn. Both give the same result; `bounds` selects the computation.",
        default="lloyd",
        has_option=False,
        may_change=True,
    )


@declared
class KMeansParameters(VerboseParameters, CentroidParameters):
    """Parameters of K-means."""

    _more_on_iteration = """\
    - "centroids", once: "divided" (bool), "whole_bytes" (memory of all centroids on a worker), "free_bytes"
      (available memory).
    - "seeding", repeated for many clusters: "run" (from 1), "init", "row_count", "n_clusters", "chosen"
      (approximate number of centroids so far).
    - "pass", occasionally for divided centroids: "run", "iteration", "part" (completed share of the assignment),
      "seconds_left".
    - "iteration": "run", "iteration" (from 1), "inertia", "squared_shift", "compared" (share of row-centroid pairs
      not excluded), "recall" and "gap" (as `assignment_recall_` and `inertia_gap_`), "rows_per_s", rank 0's
      "compute_s" and "communication_s", and, for divided centroids, "stages" (rank 0's seconds by stage)."""

    max_iter: int = parameter(COUNT, "Maximum number of iterations per run.", default=300, may_change=True)
    tol: float = parameter(
        TOLERANCE,
        """A run ends when the squared Frobenius norm of the centroids' shift is at most `tol` times the mean variance
        of the features, or when no label changes.""",
        default=1e-4,
    )
    options: KMeansFitOptions | None = parameter(
        OptionsOf(KMeansFitOptions),
        """Tuning of the fit, as `Options(name=value, …)` of the estimator: options that determine its speed and
        memory. Only `assign` changes the result.""",
        default=None,
        role="tuning",
    )
    Options: ClassVar[type[KMeansFitOptions]]


@declared
class MiniBatchParameters(CentroidParameters):
    """Parameters of mini-batch K-means."""

    _more_on_iteration = """\
    "step", for each batch of `fit`: "step" (from 1), "step_count" (the maximum), "batch_inertia" (of the batch before
    the move, per weight) and "squared_shift"."""
    _more_random_state = "It draws the start and the batches, equally for any number of workers."

    n_init: Literal["auto"] | int = parameter(
        Integer(1, STARTS_MAX, also=("auto",)),
        """Number of starts of `fit`; it continues from the start with the lowest inertia. "auto" means 3 for "random"
        and callables, else 1.""",
        default="auto",
    )
    init_size: int | None = parameter(
        Integer(1, also=(None,)),
        "Number of rows, drawn at random, from which starts are drawn and on which they are compared. None: all rows.",
        default=None,
    )
    max_iter: int = parameter(
        COUNT,
        "Maximum number of passes over all rows: ``max_iter * n_samples // batch_size`` batches.",
        default=100,
        may_change=True,
    )
    batch_size: int = parameter(
        COUNT, "Rows of a batch over all workers, drawn with replacement; at most `n_samples`.", default=1024
    )
    tol: float = parameter(
        TOLERANCE,
        """If above 0, a fit ends when a batch shifts the centroids by a squared Frobenius norm of at most `tol` times
        the mean variance of the features.""",
        default=0.0,
    )
    max_no_improvement: int | None = parameter(
        Integer(1, also=(None,)),
        """A fit ends after this many consecutive batches without a lower smoothed inertia; None disables this rule.""",
        default=10,
    )
