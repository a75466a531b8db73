"""Read tables in files as named, typed columns: one module per format, for all consumers of tables."""

from __future__ import annotations

from collections.abc import Mapping

from ripieno.files.sources import File
from ripieno.input.columns.arrays import ArchiveColumns, NpyColumns
from ripieno.input.columns.arrow import ArrowColumns
from ripieno.input.columns.csv import CsvColumns
from ripieno.input.columns.parquet import ParquetColumns
from ripieno.input.columns.patches import PatchText
from ripieno.input.columns.source import ColumnSource, TableFiles, TableOptions, paths_and_options, typed_keys
from ripieno.input.columns.sparse import SparseColumns
from ripieno.input.split import Key

__all__ = [
    "COLUMNS",
    "TABLES",
    "VECTORS",
    "ArchiveColumns",
    "ColumnSource",
    "CsvColumns",
    "Key",
    "SparseColumns",
    "TableFiles",
    "TableOptions",
    "open_table",
    "paths_and_options",
    "typed_keys",
]

#: Tables by suffix, without suffixes of compression.
TABLES: dict[str, type[ColumnSource]] = {
    suffix: kind for kind in (CsvColumns, ParquetColumns, ArrowColumns) for suffix in kind.suffixes
}
#: Tables, and arrays as tables.
COLUMNS: dict[str, type[ColumnSource]] = TABLES | {
    suffix: kind for kind in (NpyColumns, ArchiveColumns, SparseColumns) for suffix in kind.suffixes
}
#: Tables, and text with the vectors of patches.
VECTORS: dict[str, type[ColumnSource]] = TABLES | dict.fromkeys(PatchText.suffixes, PatchText)


def open_table(
    path: str,
    options: TableOptions,
    keys: tuple[Key, ...] = (),
    kinds: Mapping[str, type[ColumnSource]] = TABLES,
) -> ColumnSource:
    """Open a file of one of these kinds, with columns from names of folders.

    Raises
    ------
    KeyError
        The name of the file has another suffix.
    InputError
        The file is not in the format of its name.
    """
    return kinds[File(path, 0).inner_suffix].open(path, options).keyed(keys)
