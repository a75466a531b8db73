"""Ripieno inside Spark: programs and estimators on DataFrames, run by ranks in the executors of a SparkSession.

| | |
|---|---|
| `run` | a program on the rows of a DataFrame |
| `Batches` | the rows that a rank has, as Arrow batches and as arrays |
| `ship` | give this package to the executors |
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

# These bring pyspark.sql and PyArrow with them, which take a while to import and which ranks without data do without.
_LATE = {
    "Batches": "ripieno.launch.engine.batches",
    "KMeans": "ripieno.spark.kmeans",
    "KMeansModel": "ripieno.spark.kmeans_model",
    "run": "ripieno.spark.programs",
    "ship": "ripieno.launch.engines.spark.archive",
}


if not TYPE_CHECKING:
    # To type checkers any name would be one of these.
    def __getattr__(name: str) -> Any:
        if name in _LATE:
            return getattr(import_module(_LATE[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
