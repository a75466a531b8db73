"""What a format of files needs to be cut between records and read in splits, a module for each."""

from __future__ import annotations

from typing import Any

from ripieno.input.formats.csv import Csv
from ripieno.input.formats.parquet import Parquet
from ripieno.input.formats.rows import Binary, Npy
from ripieno.input.formats.text import Text

#: By the names that users give them.
FORMATS: dict[str, Any] = {"text": Text, "csv": Csv, "npy": Npy, "parquet": Parquet, "binary": Binary}
