"""Provide the formats of input files: how to cut each between records and read its splits, one module per format."""

from __future__ import annotations

from typing import Any

from ripieno.input.columns.arrays import Binary, Npy
from ripieno.input.columns.arrow import Arrow
from ripieno.input.columns.csv import Csv
from ripieno.input.columns.parquet import Parquet
from ripieno.input.formats.text import Text

#: Formats by their public names.
FORMATS: dict[str, Any] = {"text": Text, "csv": Csv, "npy": Npy, "parquet": Parquet, "arrow": Arrow, "binary": Binary}
