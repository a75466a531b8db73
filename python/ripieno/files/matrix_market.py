"""Read MatrixMarket files, plain or compressed, with SciPy.

The banner and the line of sizes determine the entries, whatever the name of the file is.
"""

from __future__ import annotations

import io
from typing import Any, NamedTuple

from ripieno.errors import InputError
from ripieno.files.sources import EmptyFile, File, blamed_on, opened

BANNER = b"%%MatrixMarket"
SUFFIX = ".mtx"
LINE_BYTES_MAX = 1 << 20
FIELDS = ("real", "integer", "unsigned-integer", "pattern")
#: Size of the shortest entry of each layout: "1 1" or "1", and a line end.
ENTRY_BYTES = {"coordinate": 4, "array": 2}


class MatrixInfo(NamedTuple):
    """The banner and the line of sizes."""

    row_count: int
    column_count: int
    entry_count: int
    layout: str
    field: str
    symmetry: str


def is_matrix_market(path: str) -> bool:
    """Return whether a file begins with the banner."""
    with opened(path, File(path, 0).compression) as file, blamed_on(path):
        return file.read(len(BANNER)).lower() == BANNER.lower()


def read_info(path: str) -> MatrixInfo:
    """Read the banner and the line of sizes.

    Raises
    ------
    InputError
        These lines are invalid, or the matrix is complex.
    EmptyFile
        The matrix has no entry.
    """
    from scipy.io import mminfo

    with opened(path, File(path, 0).compression) as file, blamed_on(path):
        head = [file.readline(LINE_BYTES_MAX)]
        while (line := file.readline(LINE_BYTES_MAX)) and (not line.strip() or line.startswith(b"%")):
            pass
        head.append(line)
    try:
        # SciPy aborts the process if it cannot seek to where a file has been read to.
        info = MatrixInfo(*mminfo(io.BytesIO(b"".join(head))))
    except (ValueError, OverflowError) as error:
        raise InputError(f"{path} is no MatrixMarket file: {error}") from error
    if info.layout not in ENTRY_BYTES or info.field not in FIELDS:
        raise InputError(
            f"{path}: a MatrixMarket file of {info.layout} {info.field}: expected coordinate or array, "
            f"{', '.join(FIELDS)}"
        )
    if not info.entry_count:
        raise EmptyFile(f"{path} is empty: it has no entry")
    return info


def read_matrix(path: str) -> Any:
    """Return the matrix, including entries that symmetry implies: a coo_matrix, or an array.

    Raises
    ------
    InputError
        The file is damaged.
    """
    from scipy.io import mmread

    info = read_info(path)
    with opened(path, File(path, 0).compression) as file, blamed_on(path):
        text = file.read()
    try:
        # SciPy allocates memory for as many entries as the line of sizes states.
        stored = info.entry_count if info.symmetry == "general" else info.entry_count // 2
        if stored * ENTRY_BYTES[info.layout] > len(text) + 1:
            raise ValueError(f"{info.entry_count:,} entries in {len(text):,} bytes")
        return mmread(io.BytesIO(text))
    except (ValueError, OverflowError, MemoryError) as error:
        raise InputError(f"{path} is damaged: {' '.join(str(error).split())}") from error
