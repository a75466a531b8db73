"""Ripieno inside Spark: the rows that ranks have of a DataFrame, as Arrow batches and as arrays."""

from __future__ import annotations

from ripieno.spark.batches import Batches

__all__ = ["Batches"]
