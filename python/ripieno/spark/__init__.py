"""Ripieno inside Spark: programs and estimators on DataFrames, run by ranks in the executors of a SparkSession.

| | |
|---|---|
| `run` | runs a program on the rows of a DataFrame |
| `Batches` | the rows of a rank, as Arrow batches and as arrays |
| `ship` | sends this package to the executors |
| `KMeans`, `KMeansModel` | K-means as a stage of Spark ML |
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ripieno.launch.engine.batches import Batches
    from ripieno.launch.engines.spark.archive import ship
    from ripieno.spark.kmeans import KMeans
    from ripieno.spark.kmeans_model import KMeansModel
    from ripieno.spark.programs import run

__all__ = ["Batches", "KMeans", "KMeansModel", "run", "ship"]

# These modules import pyspark.sql and PyArrow, which takes a while and is not needed on ranks without data.
_LAZY = {
    "Batches": "ripieno.launch.engine.batches",
    "KMeans": "ripieno.spark.kmeans",
    "KMeansModel": "ripieno.spark.kmeans_model",
    "run": "ripieno.spark.programs",
    "ship": "ripieno.launch.engines.spark.archive",
}


if not TYPE_CHECKING:
    # Type checkers would accept any name.
    def __getattr__(name: str) -> Any:
        if name in _LAZY:
            return getattr(import_module(_LAZY[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
