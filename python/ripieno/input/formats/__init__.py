"""Provide the formats of input files, one module per format: cuts between records, and readers of splits."""

from __future__ import annotations

from typing import Any

from ripieno.input.columns.arrays import ArchiveSplits, Binary, Npy
from ripieno.input.columns.arrow import Arrow
from ripieno.input.columns.csv import Csv
from ripieno.input.columns.parquet import Parquet
from ripieno.input.columns.sparse import MarketSplits
from ripieno.input.formats.text import Text

#: Formats by their public names.
FORMATS: dict[str, Any] = {
    each.name: each for each in (Text, Csv, Npy, Parquet, Arrow, ArchiveSplits, MarketSplits, Binary)
}
