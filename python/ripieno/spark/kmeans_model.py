"""`KMeansModel`: assigns the rows of DataFrames to centers; saved and loaded like models of Spark ML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray
from pyspark.ml import Model
from pyspark.ml.linalg import Vector
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReadable, MLReader, MLWritable, MLWriter
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType

from ripieno.algorithms.kmeans.fit_report import KMeansIteration, KMeansReport
from ripieno.errors import InputError
from ripieno.launch.engine.batches import Batches
from ripieno.spark.kmeans_params import KMeansParams, with_accessors
from ripieno.spark.kmeans_ranks import labels_of, points_of
from ripieno.spark.kmeans_rows import arrays, check_features

# Name of the subfolder with the centers in a saved model.
CENTERS = "centers"


@dataclass(frozen=True)
class KMeansSummary:
    """The results of a fit, under Spark's names.

    Parameters
    ----------
    k
        Number of clusters.
    trainingCost
        Weighted sum of the squared distances of the rows to their centers.
    report
        Seconds of reading, of choosing the first centers and in total, and the activity of each rank with its host.
    """

    k: int
    trainingCost: float
    report: KMeansReport

    @property
    def numIter(self) -> int:
        """Number of iterations."""
        return len(self.report.iterations)

    @property
    def clusterSizes(self) -> list[int]:
        """Number of rows in each cluster."""
        sizes: list[int] = self.report.cluster_sizes.tolist()
        return sizes

    @property
    def iterations(self) -> Sequence[KMeansIteration]:
        """For each iteration: seconds of computation and communication per rank, cost and shift."""
        return self.report.iterations


@with_accessors("featuresCol", "predictionCol")
class KMeansModel(KMeansParams, Model, MLWritable, MLReadable):
    """The centers of a fit. The model has the parameters of the fit; only the two column names can be changed.

    Parameters
    ----------
    centers : ndarray of shape (k, n), float32 or float64
    summary : KMeansSummary, optional
        The summary of the fit.

    Attributes
    ----------
    centers : ndarray of shape (k, n), float32 or float64
    """

    def __init__(
        self, centers: NDArray[np.float32] | NDArray[np.float64], summary: KMeansSummary | None = None
    ) -> None:
        super().__init__()
        self.centers = centers
        self._summary = summary

    def clusterCenters(self) -> list[NDArray[np.float32]] | list[NDArray[np.float64]]:
        """Return the centers, each of shape (n,)."""
        return list(self.centers)

    @property
    def numFeatures(self) -> int:
        """Number of values per row."""
        width: int = self.centers.shape[1]
        return width

    @property
    def hasSummary(self) -> bool:
        """Whether this model was fitted here, not loaded from a file."""
        return self._summary is not None

    @property
    def summary(self) -> KMeansSummary:
        """The summary of the fit.

        Raises
        ------
        InputError
            If the model was loaded.
        """
        if self._summary is None:
            raise InputError(f"{self.uid} was loaded, and a summary is not saved: see hasSummary")
        return self._summary

    def predict(self, value: Vector | ArrayLike) -> int:
        """Return the number of the center nearest to one point, a vector or (n,) numbers."""
        numbers = value.toArray() if isinstance(value, Vector) else value
        point = np.array(numbers, np.float64, ndmin=1)
        if point.ndim != 1 or not np.isfinite(point).all():
            raise InputError("value: expected one point of finite numbers")
        return int(labels_of(point[None].astype(self.centers.dtype), self.centers)[0])

    def _transform(self, dataset: DataFrame) -> DataFrame:
        """Implement `transform`: add the number of the nearest center to the rows.

        Raises
        ------
        InputError
            If the column of points is missing, or the name of the prediction column is taken.
        """
        names, centers = dataset.schema.names, self.centers
        features, prediction = self.getFeaturesCol(), self.getPredictionCol()
        check_features(dataset.schema, features)
        if prediction in names:
            raise InputError(f"prediction_col={prediction!r}: this column exists already")

        @F.arrow_udf(IntegerType())  # type: ignore[untyped-decorator]  # mypy skips PySpark
        def assigned(points: pa.Array) -> pa.Array:
            batch = pa.record_batch([points], names=[features])
            found = points_of(Batches([batch], batch.schema), features)
            return pa.array(labels_of(found.reshape(len(points), -1), centers))

        return dataset.select("*", assigned(arrays(dataset, features)).alias(prediction))

    def write(self) -> MLWriter:
        """Return a writer for this model."""
        return _Writer(self)

    @classmethod
    def read(cls) -> MLReader[KMeansModel]:
        """Return a reader for models."""
        return _Reader()


class _Writer(MLWriter):
    """Writes parameters as JSON and centers as Parquet, into a folder of any file system that Spark supports."""

    def __init__(self, model: KMeansModel) -> None:
        super().__init__()
        self._model = model

    def saveImpl(self, path: str) -> None:
        """Write both into a new folder."""
        DefaultParamsWriter.saveMetadata(self._model, path, self.sparkSession)
        centers = self._model.centers
        values = pa.FixedSizeListArray.from_arrays(pa.array(centers.ravel()), centers.shape[1])
        rows = pa.table({"cluster": np.arange(len(centers)), "center": values.cast(pa.list_(values.type.value_type))})
        self.sparkSession.createDataFrame(rows).coalesce(1).write.parquet(f"{path}/{CENTERS}")


class _Reader(MLReader[KMeansModel]):
    def load(self, path: str) -> KMeansModel:
        """Read a model written by `_Writer`."""
        metadata = DefaultParamsReader.loadMetadata(path, self.sparkSession, f"{__name__}.{KMeansModel.__name__}")
        rows = self.sparkSession.read.parquet(f"{path}/{CENTERS}").orderBy("cluster").toArrow()
        model = KMeansModel(Batches(rows.to_batches(), rows.schema).to_numpy("center"))
        model._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(model, metadata)
        return model
