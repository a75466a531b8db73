"""K-means as a Spark ML estimator. Rows stay in the executors, where ranks run the program of `ripieno.KMeans`."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pyspark.ml import Estimator
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.util import DefaultParamsReadable, DefaultParamsWritable
from pyspark.sql import DataFrame
from sklearn.utils import check_random_state

from ripieno._checks import check_count
from ripieno.algorithms.kmeans import program
from ripieno.algorithms.kmeans.program import KMeansOptions
from ripieno.algorithms.worker_estimator import SEED_LIMIT
from ripieno.errors import InputError
from ripieno.spark.kmeans_model import KMeansModel, KMeansSummary
from ripieno.spark.kmeans_params import DECLARED, KMeansArguments, KMeansParams, set_given, snake_case, with_accessors
from ripieno.spark.kmeans_ranks import fit_rows
from ripieno.spark.kmeans_rows import selected
from ripieno.spark.programs import run

if TYPE_CHECKING:
    from typing import Unpack


@with_accessors()
class KMeans(KMeansParams, Estimator, DefaultParamsWritable, DefaultParamsReadable):
    """K-means by Lloyd's iteration, on the rows of a DataFrame.

    A fit needs free slots for all ranks at the same time. The result is bit-identical to `ripieno.KMeans` for equal
    rows in equal order, if ranks and workers have equal numbers of rows; otherwise sums are rounded differently.
    Parameters also accept the names of Spark (``maxIter=20``), and so do accessors (``setMaxIter``, ``getMaxIter``).

    Parameters
    ----------
    k, max_iter, tol, seed, init_mode, thread_model, assign, bounds
        As `n_clusters`, `max_iter`, `tol`, `random_state`, `init` and so on of `ripieno.KMeans`, with names and
        defaults of Spark: k=2, max_iter=20, seed=0. Spark's own K-means compares each center's shift with `tol` itself.
    initial_centers : array-like of shape (k, n), optional
        The first centers; `init_mode` and `seed` are then ignored.
    features_col : str, default="features"
        The column of the points: Spark ML vectors, or arrays of numbers, all of equal length. Distances of arrays of
        float are computed in float32, all others in float64; sparse vectors are converted to dense ones.
    prediction_col : str, default="prediction"
        The column that the model adds, with the number of the nearest center as int.
    weight_col : str, optional
        A column of weights >= 0; by default each row has weight 1.
    workers : int, optional
        Number of ranks; by default one per slot of the executors.
    threads : int, optional
        Threads of each rank; by default the cores that Spark gives to a task.
    slots_timeout_s : float, default=10
        How long a fit waits until enough slots are free, or until executors with enough slots have registered.
        Concurrent fits, as in a `CrossValidator` with ``parallelism=2``, wait for each other's slots.

    Examples
    --------
    >>> import ripieno as rp
    >>> model = rp.spark.KMeans(k=1000, workers=4, features_col="vector").fit(df)  # doctest: +SKIP
    >>> model.transform(df).groupBy("prediction").count()  # doctest: +SKIP
    """

    initialCenters: Param[list[list[float]]] = Param(
        Params._dummy(), "initialCenters", "the centers to start from, k of them.", TypeConverters.toListListFloat
    )

    def __init__(self, **parameters: Unpack[KMeansArguments]) -> None:
        super().__init__()
        set_given(self, parameters)

    def setParams(self, **parameters: Unpack[KMeansArguments]) -> KMeans:
        """Set the given parameters."""
        set_given(self, parameters)
        return self

    def _fit(self, dataset: DataFrame) -> KMeansModel:
        """Implement `fit` with the resolved parameters.

        Raises
        ------
        InputError
            If a parameter or a column is invalid, a row has a null, another length or a non-finite value, or there are
            fewer rows than clusters. The message names the cause.
        EngineError
            If fewer slots are free than workers are requested.
        RankFailed
            If an executor was lost.
        """
        begin = time.perf_counter()
        options = self._options()
        rows = selected(dataset, self.getFeaturesCol(), self._given("weightCol"))
        options_of_run = {snake_case(name): self._given(name) for name in ("workers", "threads", "slotsTimeoutS")}
        parts = run(rows, fit_rows, options, **options_of_run)
        centers = parts[0].clustering.centroids
        report = program.report(parts, centers.shape[1], time.perf_counter() - begin)
        summary = KMeansSummary(len(centers), parts[0].clustering.inertia, report)
        model: KMeansModel = self._copyValues(KMeansModel(centers, summary))
        return model

    def _options(self) -> KMeansOptions:
        for name in ("workers", "threads"):
            if self.isDefined(name):
                check_count(name, self.getOrDefault(name))
        if not 0 <= self.getSlotsTimeoutS() < math.inf:
            raise InputError(f"slots_timeout_s={self.getSlotsTimeoutS()!r}: expected a number of seconds >= 0")
        values = {name: self.getOrDefault(name) for name in DECLARED}
        for name, each in DECLARED.items():
            each.check(values[name])
        k, seed, init = (values.pop(name) for name in ("k", "seed", "initMode"))
        start: int | NDArray[Any] = int(check_random_state(seed).randint(SEED_LIMIT))
        if self.isDefined("initialCenters"):
            start, init = self._initial_centers(k), "array"
        others = {snake_case(name): value for name, value in values.items()}
        return KMeansOptions(n_clusters=k, init=init, starts=[start], **others)

    def _initial_centers(self, k: int) -> NDArray[np.float64]:
        rows = self.getOrDefault("initialCenters")
        if len(rows) != k or len({len(row) for row in rows}) != 1:
            raise InputError(f"initial_centers: expected k={k} rows of one length, there are {len(rows)}")
        centers = np.array(rows)
        if not np.isfinite(centers).all():
            raise InputError("initial_centers: NaN or infinity where a finite number is expected")
        return centers

    def _given(self, name: str) -> Any:
        return self.getOrDefault(name) if self.isDefined(name) else None
