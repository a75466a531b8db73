"""Arrays in .npy files and .npz archives of which nothing is believed: no more is taken in than there is to read.

NumPy takes as much memory as a header says that there is, and lets errors of Python's tokenizer through.
"""

from __future__ import annotations

import io
import struct
import tokenize
import zipfile
import zlib
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.host import memory_limit_bytes

#: What reading a damaged archive raises, or one that is encrypted or packed in a way that Python does not know.
BROKEN_ARCHIVE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, KeyError, OSError, RuntimeError, ValueError)
#: What NumPy raises of headers that are none.
_BROKEN_HEADER = (SyntaxError, tokenize.TokenError, KeyError, MemoryError, OverflowError, RecursionError, TypeError)

# The longest that NumPy reads without being told more.
_HEADER_BYTES_MAX = 10_000
_PIECE_BYTES = 1 << 20
# A small archive can be made that unpacks to any size: larger arrays are compared with the memory that there is.
_UNCHECKED_BYTES = 1 << 28
#: Formats of sparse matrices of SciPy that are read.
SPARSE_FORMATS = ("csr", "csc", "coo")


def read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether columns lie together, and type; the stream is left where the values begin.

    Raises
    ------
    ValueError
        It is no header.
    """
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"version {version[0]}.{version[1]} of the format is not known")
    length = stream.read(2 if version == (1, 0) else 4)
    length_bytes = int.from_bytes(length, "little")
    if length_bytes > _HEADER_BYTES_MAX:
        raise ValueError(f"a header of {length_bytes} bytes is longer than any")
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
    """The array, which holds no objects.

    Raises
    ------
    ValueError
        It is no array, or one of objects, or of more than is there.
    """
    shape, fortran, dtype = read_header(stream)
    if dtype.hasobject:
        raise ValueError(f"it holds objects ({dtype}), expected numbers or text")
    if not dtype.itemsize:
        raise ValueError(f"its type, {dtype}, takes no bytes")
    # In the integers of Python, which do not overflow.
    count_bytes = dtype.itemsize
    for length in shape:
        count_bytes *= length
    if count_bytes > _UNCHECKED_BYTES and count_bytes > memory_limit_bytes():
        raise ValueError(f"its header says {count_bytes:,} bytes of values, more than the memory of this machine")
    found = bytearray()
    while len(found) < count_bytes:
        piece = stream.read(min(_PIECE_BYTES, count_bytes - len(found)))
        if not piece:
            raise ValueError(f"{len(found)} bytes of values, expected {count_bytes}")
        found += piece
    return np.frombuffer(found, dtype).reshape(shape, order="F" if fortran else "C")


def map_array(path: str) -> NDArray[Any]:
    """The array of a local file, which is mapped, read-only.

    Raises
    ------
    ValueError
        As of `read_array`.
    """
    with open(path, "rb") as file:
        shape, fortran, dtype = read_header(file)
        if dtype.hasobject:
            raise ValueError(f"it holds objects ({dtype}), expected numbers")
        if 0 in shape or not dtype.itemsize:
            return np.empty(shape, dtype)
        try:
            return np.memmap(file, dtype, "r", file.tell(), shape, "F" if fortran else "C")
        except OverflowError as error:
            raise ValueError(f"its shape is {shape}") from error


def read_member(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """The array of this name in an .npz archive; errors as in `BROKEN_ARCHIVE`."""
    with archive.open(f"{name}.npy") as stream:
        return read_array(stream)


def member_names(archive: zipfile.ZipFile) -> list[str]:
    """The arrays of an .npz archive."""
    return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def check_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> None:
    """Read a member to its end, which compares its bytes with its checksum; errors as in `BROKEN_ARCHIVE`."""
    with archive.open(info) as stream:
        while stream.read(_PIECE_BYTES):
            pass


def check_sparse_format(archive: zipfile.ZipFile) -> str:
    """Return the format of a sparse matrix that SciPy has saved; `ValueError` if it is not read."""
    text = read_member(archive, "format").item()
    kind = text.decode() if isinstance(text, bytes) else str(text)
    if kind not in SPARSE_FORMATS:
        raise ValueError(f"a sparse matrix in {kind} format, expected {', '.join(SPARSE_FORMATS)}")
    return kind


def read_sparse(archive: zipfile.ZipFile) -> Any:
    """Return a sparse matrix that SciPy has saved, checked: its indices lie within its shape, its pointers ascend.

    Raises
    ------
    ValueError
        Its parts do not make a matrix. Others: as in `BROKEN_ARCHIVE`.
    """
    # Only where there is such a file: SciPy takes a while to import.
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
    # Conversions and kernels would write where wrong indices point.
    matrix.check_format(full_check=True)
    return matrix
