"""Read MatrixMarket files, plain or compressed.

The banner and the line of sizes determine the format, not the name of the file. This module does not use SciPy's
reader, because it ends the process on some damaged files.
Source: Boisvert, Pozo and Remington, "The Matrix Market exchange formats: initial design", NISTIR 5935, 1996.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.files.sources import READ_BYTES, EmptyFile, File, held, input_errors, opened

BANNER = b"%%matrixmarket"
SUFFIX = ".mtx"
#: Number of fields of a line, by layout. A line of a pattern has one field less, because it has no value.
LAYOUTS = {"coordinate": 3, "array": 1}
#: The types of the values, by field.
FIELDS: dict[str, type[np.number[Any]]] = {
    "real": np.float64, "integer": np.int64, "unsigned-integer": np.uint64, "pattern": np.int64
}  # fmt: skip
#: The sign of the entries that each symmetry implies.
SYMMETRIES = {"general": 0, "symmetric": 1, "skew-symmetric": -1, "hermitian": 1}
LINE_BYTES_MAX = 1 << 20
COUNT_MAX = 2**63 - 1
#: Pattern of a whole file by its number of fields per line. Empty lines are allowed.
_ROWS = {
    count: re.compile(rb"(?:[ \t]*+(?:[^\s]++[ \t]*+){%d}\r?(?:\n|$)|[ \t]*+\r?\n)*+\s*" % count) for count in (2, 3)
}


@dataclass(frozen=True)
class MatrixInfo:
    """The banner and the line of sizes. `stored_count` is the number of entries in the file."""

    shape: tuple[int, int]
    stored_count: int
    layout: str
    field: str
    symmetry: str

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the values."""
        return np.dtype(FIELDS[self.field])


def is_matrix_market(path: str) -> bool:
    """Return whether a file begins with the banner."""
    with opened(path, File(path, 0).compression) as file, input_errors(path):
        return file.read(len(BANNER)).lower() == BANNER


def read_info(path: str) -> MatrixInfo:
    """Read the banner and the line of sizes.

    Raises
    ------
    InputError
        These lines are invalid, or the matrix is complex.
    EmptyFile
        The matrix has no entry.
    """
    with opened(path, File(path, 0).compression) as file, input_errors(path):
        return _info(path, file)


def read_matrix(path: str, start: int = 0, stop: int | None = None) -> Any:
    """Return the matrix, including entries that symmetry implies: a coo_matrix, or an array, of the type of its field.

    With `start` and `stop`, a coo_matrix has only these entries of the file, and the ones that they imply.

    Raises
    ------
    InputError
        The file is damaged, or a whole number is out of the range of its type.
    """
    from scipy.sparse import coo_matrix

    with opened(path, File(path, 0).compression) as file, input_errors(path):
        info = _info(path, file)
        text = b"".join(held(path, iter(lambda: file.read(READ_BYTES), b"")))
    width = LAYOUTS[info.layout] - (info.field == "pattern")
    if info.layout == "coordinate" and not _ROWS[width].fullmatch(text):
        raise InputError(f"{path} is damaged: a line does not have the {width} values that its banner requires")
    values = _values(path, text, info.dtype)
    if len(values) != info.stored_count * width:
        found = len(values) / width
        raise InputError(f"{path} is damaged: {info.stored_count:,} entries in its line of sizes, but {found:,g} below")
    sign = SYMMETRIES[info.symmetry]
    if info.layout == "array":
        return _dense(values, info.shape, sign)
    entries = values.reshape(-1, width)[start:stop]
    ends = entries[:, :2].astype(np.int64) - 1
    if not (np.array_equal(ends + 1, entries[:, :2]) and (ends >= 0).all() and (ends < info.shape).all()):
        raise InputError(f"{path} is damaged: an entry lies outside the matrix")
    data = entries[:, 2] if width > 2 else np.ones(len(entries))
    if sign:
        mirrored = ends[:, 0] != ends[:, 1]
        ends = np.concatenate([ends, ends[mirrored, ::-1]])
        data = np.concatenate([data, sign * data[mirrored]])
    return coo_matrix((data, (ends[:, 0], ends[:, 1])), info.shape)


def _values(path: str, text: bytes, dtype: np.dtype[Any]) -> NDArray[Any]:
    with warnings.catch_warnings():
        # NumPy warns if it stops before the end of the text.
        warnings.simplefilter("error", DeprecationWarning)
        try:
            values = np.fromstring(text, dtype, sep=" ")
        except (DeprecationWarning, ValueError):
            kind = "number" if dtype.kind == "f" else "whole number, as its banner says"
            raise InputError(f"{path} is damaged: an entry is not a {kind}") from None
    # NumPy replaces larger numbers by the limit.
    for limit in (np.iinfo(dtype).min, np.iinfo(dtype).max) if dtype.kind in "iu" else ():
        count = np.count_nonzero(values == limit) if limit else 0
        if count and count != len(re.findall(rb"(?<![-\d])%d(?!\d)" % limit, text)):
            raise InputError(f"{path}: an entry is out of the range of {dtype}")
    return values


def _info(path: str, file: IO[bytes]) -> MatrixInfo:
    banner = file.readline(LINE_BYTES_MAX).lower().split()
    while (line := file.readline(LINE_BYTES_MAX)) and (not line.strip() or line.startswith(b"%")):
        pass
    try:
        start, kind, layout, field, symmetry = (word.decode() for word in banner)
        sizes = [int(word) for word in line.split()]
        if (start.encode(), kind) != (BANNER, "matrix") or len(sizes) != (3 if layout == "coordinate" else 2):
            raise ValueError(f"{line[:40]!r}")
        if min(sizes) < 0 or max(sizes) > COUNT_MAX:
            raise ValueError(f"sizes {sizes}")
    except ValueError as error:
        raise InputError(f"{path} is not a MatrixMarket file: expected its banner and line of sizes: {error}") from None
    if (
        layout not in LAYOUTS
        or field not in FIELDS
        or symmetry not in SYMMETRIES
        or (layout, field) == ("array", "pattern")
        or (symmetry == "skew-symmetric" and field in ("pattern", "unsigned-integer"))
    ):
        raise InputError(
            f"{path}: a MatrixMarket file of {layout} {field} {symmetry}: expected coordinate or array, "
            f"{', '.join(FIELDS)}, {', '.join(SYMMETRIES)}"
        )
    rows, columns = sizes[:2]
    if symmetry != "general" and rows != columns:
        raise InputError(f"{path} has shape {(rows, columns)}: a {symmetry} matrix is square")
    if layout == "coordinate":
        count = sizes[2]
    elif symmetry == "general":
        count = rows * columns
    else:
        count = rows * (rows + (1 if SYMMETRIES[symmetry] > 0 else -1)) // 2
    if not count:
        raise EmptyFile(f"{path} is empty: it has no entry")
    return MatrixInfo((rows, columns), count, layout, field, symmetry)


def _dense(values: NDArray[Any], shape: tuple[int, int], sign: int) -> NDArray[Any]:
    """Return a matrix that is stored column by column. A symmetric matrix is stored as its lower triangle."""
    if not sign:
        return values.reshape(shape, order="F")
    matrix = np.zeros(shape, values.dtype)
    columns, rows = np.triu_indices(shape[0], k=0 if sign > 0 else 1)
    matrix[columns, rows] = sign * values
    matrix[rows, columns] = values
    return matrix
