"""Write arrays and tables to files in the format of the name's suffix: NumPy, CSV, TSV, Parquet and Arrow.

Callers check the name with `check_format` before their work, and write afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.files import disk
from ripieno.files.results import ResultPath, new_file, save_array
from ripieno.files.sources import suffix

if TYPE_CHECKING:
    # Imported in functions, because workers write no tables.
    import pyarrow as pa

#: Columns of equal length, by name.
Columns = Mapping[str, "NDArray[Any] | pa.Array"]


def check_format(path: ResultPath, formats: Collection[str]) -> None:
    """Raise InputError if the suffix of a file name is not one of the supported formats.

    Parameters
    ----------
    path : path or URL
        Destination of the result.
    formats : collection of str
        The supported suffixes. A name without a suffix is accepted if there is only one.
    """
    end = suffix(path)
    if end not in formats and (end or len(formats) > 1):
        raise InputError(f"{path}: unknown kind of file, expected one of {', '.join(formats)}")


def write_table(columns: Columns, out: ResultPath) -> None:
    """Write columns atomically to a file with a suffix in `TABLE_FORMATS`."""
    check_format(out, TABLE_FORMATS)
    with new_file(out) as part:
        _WRITERS[suffix(out)](columns, part)


def write_array(array: NDArray[Any], out: ResultPath, names: Sequence[str]) -> None:
    """Write an array atomically to a file with a suffix in `ARRAY_FORMATS`.

    Parameters
    ----------
    array : ndarray of shape (n,) or (n, m)
        The array of an .npy file, or m columns of a table.
    out : path or URL
        File to write.
    names : sequence of str
        The name of each column of a table.
    """
    check_format(out, ARRAY_FORMATS)
    if suffix(out) != ".npy":
        columns = array.T if array.ndim > 1 else [array]
        return write_table(dict(zip(names, columns, strict=True)), out)
    with new_file(out) as part:
        save_array(part, array)


def _table(columns: Columns) -> pa.Table:
    import pyarrow as pa

    from ripieno.files.frames import arrow_array

    return pa.table({name: arrow_array(c) if isinstance(c, np.ndarray) else c for name, c in columns.items()})


def _write_npz(columns: Columns, path: Path) -> None:
    # Without pickle, strings need a type; a missing one is empty.
    typed = {
        name: np.array(["" if each is None else each for each in column])
        if isinstance(column, np.ndarray) and column.dtype == object
        else column
        for name, column in columns.items()
    }
    with disk.create(path) as file:
        np.savez(file, **typed)  # type: ignore[arg-type]  # no column is called allow_pickle


def _write_parquet(columns: Columns, path: Path) -> None:
    import pyarrow.parquet

    # Arrow accepts only UTF-8 file names.
    with disk.create(path) as file:
        pyarrow.parquet.write_table(_table(columns), file)


def _write_arrow(columns: Columns, path: Path) -> None:
    import pyarrow as pa

    table = _table(columns)
    with disk.create(path) as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def _write_feather(columns: Columns, path: Path) -> None:
    import pyarrow.feather

    with disk.create(path) as file:
        pyarrow.feather.write_feather(_table(columns), file)


def _text_writer(delimiter: str) -> Callable[[Columns, Path], None]:
    def write(columns: Columns, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.csv

        # Bytes that are not UTF-8 are written unchanged, as in text files.
        table = {
            name: column.view(pa.large_string())
            if isinstance(column, pa.Array) and pa.types.is_large_binary(column.type)
            else column
            for name, column in columns.items()
        }
        with disk.create(path) as file:
            pyarrow.csv.write_csv(_table(table), file, pyarrow.csv.WriteOptions(delimiter=delimiter))

    return write


_WRITERS: dict[str, Callable[[Columns, Path], None]] = {
    ".parquet": _write_parquet,
    ".csv": _text_writer(","),
    ".tsv": _text_writer("\t"),
    ".arrow": _write_arrow,
    ".feather": _write_feather,
    ".npz": _write_npz,
}
#: Suffixes of files with several columns, and of files with one array.
TABLE_FORMATS = tuple(_WRITERS)
ARRAY_FORMATS = (".npy", *TABLE_FORMATS)
