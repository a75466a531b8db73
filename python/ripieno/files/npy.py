"""Read untrusted .npy files and .npz archives without allocating more memory than the file contains.

NumPy itself allocates as much memory as a header states, and lets errors of Python's tokenizer pass.
"""

from __future__ import annotations

import io
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.files.sources import File, held_bytes_max, input_errors, opened

#: Errors from reading a damaged, encrypted or unsupported archive.
BROKEN_ARCHIVE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, KeyError, OSError, RuntimeError, ValueError)
#: NumPy's errors for invalid headers.
_BROKEN_HEADER = (SyntaxError, tokenize.TokenError, KeyError, MemoryError, OverflowError, RecursionError, TypeError)

# The longest header that NumPy reads by default.
_HEADER_BYTES_MAX = 10_000
_PIECE_BYTES = 1 << 20
#: SciPy's sparse matrix formats that can be read.
SPARSE_FORMATS = ("csr", "csc", "coo")


def read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, column-major flag and dtype. The stream is left at the first value.

    Raises
    ------
    ValueError
        The header is invalid.
    """
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"version {version[0]}.{version[1]} of the format is not known")
    length = stream.read(2 if version == (1, 0) else 4)
    length_bytes = int.from_bytes(length, "little")
    if length_bytes > _HEADER_BYTES_MAX:
        raise ValueError(f"a header of {length_bytes} bytes is too long, expected at most {_HEADER_BYTES_MAX:,}")
    text = io.BytesIO(length + stream.read(length_bytes))
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, fortran, dtype = read(text)
    except _BROKEN_HEADER as error:
        raise ValueError(f"its header cannot be read: {type(error).__name__}: {error}") from error
    if any(length < 0 for length in shape):
        raise ValueError(f"its shape is {shape}")
    return shape, fortran, dtype


def read_array(stream: IO[bytes]) -> NDArray[Any]:
    """Return the array. Arrays of objects are rejected.

    Raises
    ------
    ValueError
        The data is not an array, is an array of objects, or is shorter than the header states.
    """
    shape, fortran, dtype = read_header(stream)
    if dtype.hasobject:
        raise ValueError(f"it holds objects ({dtype}), expected numbers or text")
    if not dtype.itemsize:
        raise ValueError(f"its type, {dtype}, takes no bytes")
    # Python integers do not overflow.
    count_bytes = dtype.itemsize
    for length in shape:
        count_bytes *= length
    if count_bytes > (bound_bytes := held_bytes_max()):
        raise ValueError(f"its header states {count_bytes:,} bytes, more than the {bound_bytes:,} that fit into memory")
    found = bytearray()
    while len(found) < count_bytes:
        piece = stream.read(min(_PIECE_BYTES, count_bytes - len(found)))
        if not piece:
            raise ValueError(f"{len(found)} bytes of values, expected {count_bytes}")
        found += piece
    return np.frombuffer(found, dtype).reshape(shape, order="F" if fortran else "C")


@contextmanager
def opened_archive(path: str, fault: str = "is not a readable .npz file") -> Iterator[zipfile.ZipFile]:
    """Open an .npz archive. Errors in its contents name the file."""
    if File(path, 0).compression is not None:
        raise InputError(f"{path}: an archive is compressed inside and is read from its end: unpack it first")
    with opened(path) as file, input_errors(path):
        try:
            with zipfile.ZipFile(file) as archive:
                yield archive
        except InputError:
            raise
        except (*BROKEN_ARCHIVE, OverflowError, MemoryError, TypeError) as error:
            raise InputError(f"{path} {fault}: {error}") from error


def read_member(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """Return the array with this name in an .npz archive. Errors are as in `BROKEN_ARCHIVE`."""
    with archive.open(f"{name}.npy") as stream:
        return read_array(stream)


def member_names(archive: zipfile.ZipFile) -> list[str]:
    """Return the names of the arrays in an .npz archive."""
    return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def check_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> None:
    """Read a member to its end, which verifies its checksum. Errors are as in `BROKEN_ARCHIVE`."""
    with archive.open(info) as stream:
        while stream.read(_PIECE_BYTES):
            pass


def check_sparse_format(archive: zipfile.ZipFile) -> str:
    """Return the format of a sparse matrix saved by SciPy. Raise `ValueError` if the format is not supported."""
    text = read_member(archive, "format").item()
    kind = text.decode() if isinstance(text, bytes) else str(text)
    if kind not in SPARSE_FORMATS:
        raise ValueError(f"a sparse matrix in {kind} format, expected {', '.join(SPARSE_FORMATS)}")
    return kind


def read_sparse(archive: zipfile.ZipFile) -> Any:
    """Return a sparse matrix saved by SciPy, checked: indices lie within its shape, pointers ascend.

    Raises
    ------
    ValueError
        The parts do not form a matrix. Other errors are as in `BROKEN_ARCHIVE`.
    """
    # Imported here, because importing SciPy is slow.
    from scipy.sparse import coo_matrix, csc_matrix, csr_matrix

    kind = check_sparse_format(archive)
    data = read_member(archive, "data")
    sizes = read_member(archive, "shape")
    if sizes.shape != (2,) or sizes.dtype.kind not in "iu" or sizes.min() < 0 or data.dtype.kind not in "biuf":
        raise ValueError(f"shape {sizes.tolist()} and values of type {data.dtype}, expected rows, columns and numbers")
    shape = (int(sizes[0]), int(sizes[1]))
    parts: list[Any] = [
        read_member(archive, name) for name in (("row", "col") if kind == "coo" else ("indices", "indptr"))
    ]
    for part in parts:
        if part.ndim != 1 or part.dtype.kind not in "iu":
            raise ValueError(f"indices of type {part.dtype} and shape {part.shape}, expected whole numbers in a row")
    if kind == "coo":
        return coo_matrix((data, (parts[0], parts[1])), shape)
    entries: Any = (data, parts[0], parts[1])
    matrix = csr_matrix(entries, shape) if kind == "csr" else csc_matrix(entries, shape)
    # With invalid indices, conversions and kernels would write out of bounds.
    matrix.check_format(full_check=True)
    return matrix
