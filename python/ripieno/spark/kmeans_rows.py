"""The columns of a DataFrame that K-means takes: what they must hold, and how ranks get them."""

from __future__ import annotations

from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DecimalType, NumericType, StructType

from ripieno.errors import InputError


def selected(dataset: DataFrame, features: str, weight: str | None) -> DataFrame:
    """The column of points, as arrays, and, if there is one, that of weights as double.

    Raises
    ------
    InputError
        There is no such column, or it holds something else.
    """
    check_features(dataset.schema, features)
    columns = [arrays(dataset, features)]
    if weight is not None:
        if not isinstance(_type_of(dataset.schema, "weight_col", weight), NumericType):
            raise InputError(f"weight_col={weight!r}: expected a column of numbers, {_found(dataset.schema, weight)}")
        columns.append(_column(dataset, weight).cast("double").alias(weight))
    return dataset.select(*columns)


def arrays(dataset: DataFrame, features: str) -> Column:
    """The column of points as arrays: a vector, with its list of indices that most have not, takes longer to send."""
    points = _column(dataset, features)
    if not isinstance(dataset.schema[features].dataType, VectorUDT):
        return points
    # Of a null `vector_to_array` makes an error of its own.
    return F.when(points.isNotNull(), vector_to_array(points)).alias(features)


def check_features(schema: StructType, name: str) -> None:
    """Raise InputError if there is no column of points of this name."""
    kind = _type_of(schema, "features_col", name)
    element = kind.elementType if isinstance(kind, ArrayType) else None
    is_number = isinstance(element, NumericType) and not isinstance(element, DecimalType)
    if not is_number and not isinstance(kind, VectorUDT):
        raise InputError(f"features_col={name!r}: expected vectors or arrays of numbers, {_found(schema, name)}")


def _type_of(schema: StructType, parameter: str, name: str) -> DataType:
    if name not in schema.names:
        raise InputError(f"{parameter}={name!r}: there is no such column, only {', '.join(schema.names)}")
    return schema[name].dataType


def _found(schema: StructType, name: str) -> str:
    return f"found {schema[name].dataType.simpleString()}"


def _column(dataset: DataFrame, name: str) -> Column:
    return dataset[f"`{name.replace('`', '``')}`"]
