"""The picture and patch of each row of a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.csv

from ripieno.errors import InputError
from ripieno.input.columns.patches import PatchText
from ripieno.input.columns.source import INDEX_NAMES
from ripieno.input.matrix import Dataset
from ripieno.input.matrix.dataset import DataFile
from ripieno.input.matrix.tables import TableRows

INDEX_SUFFIX = ".patches.csv"


@dataclass(frozen=True)
class Patches:
    """The patch of each row.

    Parameters
    ----------
    index : Table
        Columns picture, row and col (of the upper left pixel), with one entry per row of the data.
    folder
        Folder for pictures with names that do not exist relative to the working directory.
    """

    index: pa.Table
    folder: Path

    def __len__(self) -> int:
        return len(self.index)

    def locate(self, number: int) -> tuple[str, int, int]:
        """Return the name of a row's picture, and pixel row and column of its patch."""
        name, row, column = (self.index.column(key)[number].as_py() for key in INDEX_NAMES)
        if not Path(name).exists() and (self.folder / name).exists():
            name = str(self.folder / name)
        return name, row, column


def find_patches(dataset: Dataset, index: Path | None = None, folder: Path | None = None) -> Patches | None:
    """Read the patch of each row of a dataset; return None if the dataset has no index.

    Parameters
    ----------
    dataset
        The rows.
    index
        A .csv file with columns picture, row, col. By default the .patches.csv next to each file of the dataset. Files
        of "picture row col f1 …" contain the index.
    folder
        Folder of the pictures.

    Raises
    ------
    InputError
        A column is missing in the index, or its number of entries differs from the number of rows.
    """
    if index is not None:
        table = _read(index)
    else:
        tables = [_index_of(file) for file in dataset.files]
        if any(table is None for table in tables):
            return None
        table = pa.concat_tables(tables)
    if dataset.row_count is not None and len(table) != dataset.row_count:
        name = index or "the .patches.csv next to the input"
        raise InputError(f"{name} has {len(table)} entries for {dataset.row_count} rows")
    return Patches(table, folder or Path(dataset.names[0]).parent)


def _index_of(file: DataFile) -> pa.Table | None:
    if isinstance(file, TableRows) and isinstance(file.source, PatchText):
        source = file.source
        table = source.read(0, source.size, pa.schema([source.own.field(name) for name in INDEX_NAMES]))
        names = [unquote(name) for name in table.column("picture").to_pylist()]
        return table.set_column(0, "picture", pa.array(names))
    index_file = Path(file.path).with_suffix(INDEX_SUFFIX)
    return _read(index_file) if index_file.exists() else None


def _read(path: Path) -> pa.Table:
    types = {"picture": pa.string(), "row": pa.int64(), "col": pa.int64()}
    try:
        return pa.csv.read_csv(
            path, convert_options=pa.csv.ConvertOptions(column_types=types, include_columns=INDEX_NAMES)
        )
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        raise InputError(f"{path} is not an index of patches (picture, row, col): {error}") from error
