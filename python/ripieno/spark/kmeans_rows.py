"""The rows that K-means gets of a DataFrame: which columns, and what every rank makes of its share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import ArrayType, DataType, DecimalType, NumericType, StructType

from ripieno.algorithms import kmeans_program as program
from ripieno.algorithms.kmeans_program import FitOptions, FitPart
from ripieno.data import OwnRows
from ripieno.data.agreement import agreement
from ripieno.errors import InputError
from ripieno.spark.batches import Batches

if TYPE_CHECKING:
    from ripieno.comm import Communicator

POINT_DTYPES = (np.float32, np.float64)


def selected(dataset: DataFrame, features: str, weight: str | None) -> DataFrame:
    """The column of points and, if there is one, that of weights as double.

    Raises
    ------
    InputError
        There is no such column, or it holds something else.
    """
    check_features(dataset.schema, features)
    columns = [_without_dots(dataset, features)]
    if weight is not None:
        if not isinstance(_type_of(dataset.schema, "weight_col", weight), NumericType):
            raise InputError(f"weight_col={weight!r}: expected a column of numbers, {_found(dataset.schema, weight)}")
        columns.append(_without_dots(dataset, weight, "double"))
    return dataset.select(*columns)


def check_features(schema: StructType, name: str) -> None:
    """Raise InputError if there is no column of points of this name."""
    kind = _type_of(schema, "features_col", name)
    element = kind.elementType if isinstance(kind, ArrayType) else None
    is_number = isinstance(element, NumericType) and not isinstance(element, DecimalType)
    if not is_number and not isinstance(kind, VectorUDT):
        raise InputError(f"features_col={name!r}: expected vectors or arrays of numbers, {_found(schema, name)}")


def points_of(batches: Batches, column: str) -> NDArray[np.float32] | NDArray[np.float64]:
    """A column as (n, d), float32 if it is that, otherwise float64.

    Raises
    ------
    InputError
        A row is null, sparse or of another length than the others, or has a null.
    """
    points = batches.to_numpy(column)
    return points if points.dtype in POINT_DTYPES else points.astype(np.float64)


def fit_rows(comm: Communicator, batches: Batches, options: FitOptions) -> FitPart:
    """What every rank runs for a fit; the first column has the points, a second one their weights.

    Raises
    ------
    InputError
        On every rank: a column is not what it should be, ranks have points of different lengths, or what
        :func:`ripieno.algorithms.kmeans_program.fit` says.
    """
    name, *weight_names = batches.schema.names
    with agreement(comm):
        points = points_of(batches, name)
        weights = batches.to_numpy(weight_names[0]) if weight_names else None
        if weights is not None and not (np.isfinite(weights).all() and (weights >= 0).all()):
            raise InputError(f"weight_col={weight_names[0]!r}: expected finite numbers >= 0")
    width = _agreed_width(comm, name, points)
    start = options.starts[0]
    if isinstance(start, np.ndarray) and start.shape[1] != width:
        raise InputError(f"initial_centers have {start.shape[1]} values each, the rows of {name!r} have {width}")
    if weights is not None and not comm.allreduce(float(weights.sum())):
        raise InputError(f"weight_col={weight_names[0]!r}: expected numbers >= 0, not all of them 0")
    rows = OwnRows(points.reshape(-1, width), weights, f"partition {comm.rank} of {name!r}")
    part = program.fit(comm, rows, None, options)
    # Labels and distances stay here, they are as many as the rows; centres are equal on all ranks.
    clustering = replace(part.clustering, labels=part.clustering.labels[:0], squared_distances=np.empty(0))
    if comm.rank > 0:
        clustering = replace(clustering, centroids=clustering.centroids[:0])
    return replace(part, clustering=clustering)


def _agreed_width(comm: Communicator, name: str, points: NDArray[np.float64]) -> int:
    """Values per row; ranks without rows do not know it."""
    widths = {width for width in comm.allgather(points.shape[1] if len(points) else None) if width is not None}
    if not widths:
        raise InputError(f"the DataFrame of {name!r} has no rows")
    if len(widths) > 1:
        raise InputError(f"features_col={name!r}: rows of different lengths, {', '.join(map(str, sorted(widths)))}")
    return widths.pop()


def _type_of(schema: StructType, parameter: str, name: str) -> DataType:
    if name not in schema.names:
        raise InputError(f"{parameter}={name!r}: there is no such column, only {', '.join(schema.names)}")
    return schema[name].dataType


def _found(schema: StructType, name: str) -> str:
    return f"found {schema[name].dataType.simpleString()}"


def _without_dots(dataset: DataFrame, name: str, kind: str | None = None) -> Column:
    """A column, of another type if need be, under a name that Spark's mapInArrow takes."""
    column = dataset[f"`{name.replace('`', '``')}`"]
    return (column if kind is None else column.cast(kind)).alias(name.replace(".", "_"))
