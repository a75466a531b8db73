"""Selection and checks of the DataFrame columns for K-means."""

from __future__ import annotations

from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DecimalType, NumericType, StructType

from ripieno.errors import InputError


def selected(dataset: DataFrame, features: str, weight: str | None) -> DataFrame:
    """Return the column of points as arrays and, if given, the column of weights as double.

    Raises
    ------
    InputError
        If a column is missing or has another type.
    """
    check_features(dataset.schema, features)
    columns = [arrays(dataset, features)]
    if weight is not None:
        if not isinstance(_type_of(dataset.schema, "weight_col", weight), NumericType):
            raise InputError(
                f"weight_col={weight!r}: expected a column of numbers, {_found_type(dataset.schema, weight)}"
            )
        columns.append(_column(dataset, weight).cast("double").alias(weight))
    return dataset.select(*columns)


def arrays(dataset: DataFrame, features: str) -> Column:
    """Return the column of points as arrays. Vectors take longer to send because of their (mostly null) index lists."""
    points = _column(dataset, features)
    if not isinstance(dataset.schema[features].dataType, VectorUDT):
        return points
    # `vector_to_array` fails on nulls with an error of its own.
    return F.when(points.isNotNull(), vector_to_array(points)).alias(features)


def check_features(schema: StructType, name: str) -> None:
    """Raise InputError unless `name` is a column of points."""
    kind = _type_of(schema, "features_col", name)
    element = kind.elementType if isinstance(kind, ArrayType) else None
    is_number = isinstance(element, NumericType) and not isinstance(element, DecimalType)
    if not is_number and not isinstance(kind, VectorUDT):
        raise InputError(f"features_col={name!r}: expected vectors or arrays of numbers, {_found_type(schema, name)}")


def _type_of(schema: StructType, parameter: str, name: str) -> DataType:
    if name not in schema.names:
        raise InputError(f"{parameter}={name!r}: there is no such column, only {', '.join(schema.names)}")
    return schema[name].dataType


def _found_type(schema: StructType, name: str) -> str:
    return f"found {schema[name].dataType.simpleString()}"


def _column(dataset: DataFrame, name: str) -> Column:
    return dataset[f"`{name.replace('`', '``')}`"]
