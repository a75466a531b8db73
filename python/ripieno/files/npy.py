"""Read untrusted .npy files and .npz archives without allocating more memory than the file contains.

NumPy allocates as much memory as a header states, and lets errors of Python's tokenizer pass.
"""

from __future__ import annotations

import io
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
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
#: SciPy's sparse matrix formats that can be read, and their members with the indices of entries.
_INDICES = {"coo": ("row", "col"), "csr": ("indices", "indptr"), "csc": ("indices", "indptr")}


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


def read_array(stream: IO[bytes], start: int = 0, stop: int | None = None) -> NDArray[Any]:
    """Return the array, or only its rows `start .. stop`. Arrays of objects are rejected.

    The stream is read to the end of the array, so that the checksum of a member of an archive is verified.

    Raises
    ------
    ValueError
        The data is not an array, is an array of objects, or is shorter than stated by the header.
    """
    shape, fortran, dtype = read_header(stream)
    if dtype.hasobject:
        raise ValueError(f"it holds objects ({dtype}), expected numbers or text")
    if not dtype.itemsize:
        raise ValueError(f"its type, {dtype}, takes no bytes")
    # Python integers do not overflow.
    count_bytes = prod(shape, start=dtype.itemsize)
    begin, end = 0, count_bytes
    if shape and (start or stop is not None) and not (fortran and len(shape) > 1):
        first, last, _ = slice(start, stop).indices(shape[0])
        begin, end = (each * (count_bytes // max(1, shape[0])) for each in (first, last))
        shape, start, stop = (last - first, *shape[1:]), 0, None
    if end - begin > (bound_bytes := held_bytes_max()):
        raise ValueError(f"its header states {count_bytes:,} bytes, more than the {bound_bytes:,} that fit into memory")
    found, at = bytearray(), 0
    while at < count_bytes:
        piece = stream.read(min(_PIECE_BYTES, count_bytes - at))
        if not piece:
            raise ValueError(f"{at} bytes of values, expected {count_bytes}")
        found += piece[max(0, begin - at) : max(0, end - at)]
        at += len(piece)
    # The checksum is compared at the end of the member.
    stream.read(1)
    array = np.frombuffer(found, dtype).reshape(shape, order="F" if fortran else "C")
    return array[start:stop] if array.ndim else array


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


def read_member(archive: zipfile.ZipFile, name: str, start: int = 0, stop: int | None = None) -> NDArray[Any]:
    """Return the array with this name in an .npz archive, or some of its rows. Errors are as in `BROKEN_ARCHIVE`."""
    with archive.open(f"{name}.npy") as stream:
        return read_array(stream, start, stop)


def member_header(archive: zipfile.ZipFile, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and the type of the array with this name. Errors are as in `BROKEN_ARCHIVE`."""
    with archive.open(f"{name}.npy") as stream:
        shape, _, dtype = read_header(stream)
    return shape, dtype


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
    if kind not in _INDICES:
        raise ValueError(f"a sparse matrix in {kind} format, expected {', '.join(_INDICES)}")
    return kind


def sparse_shape(archive: zipfile.ZipFile) -> tuple[int, int]:
    """Return the shape of a sparse matrix saved by SciPy.

    Raises
    ------
    ValueError
        The shape is invalid, or the values are not real numbers.
    """
    sizes, (_, dtype) = read_member(archive, "shape"), member_header(archive, "data")
    if sizes.shape != (2,) or sizes.dtype.kind not in "iu" or sizes.min() < 0 or dtype.kind not in "biuf":
        raise ValueError(f"shape {sizes.tolist()} and values of type {dtype}, expected rows, columns and numbers")
    return int(sizes[0]), int(sizes[1])


def read_entries(archive: zipfile.ZipFile, start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return rows, columns and values of the stored entries `start .. stop` of a sparse matrix saved by SciPy.

    Raises
    ------
    ValueError
        These entries are not part of a matrix. Other errors are as in `BROKEN_ARCHIVE`.
    """
    kind, shape = check_sparse_format(archive), sparse_shape(archive)
    data = read_member(archive, "data", start, stop)
    if kind == "coo":
        ends = [_indices(archive, name, start, stop) for name in _INDICES[kind]]
    else:
        minor, pointers = _indices(archive, "indices", start, stop), _indices(archive, "indptr").astype(np.int64)
        lengths = np.diff(pointers)
        count = member_header(archive, "indices")[0][0]
        if len(pointers) != shape[kind == "csc"] + 1 or pointers[0] or (lengths < 0).any() or pointers[-1] != count:
            raise ValueError(f"pointers to rows that do not ascend from 0 to its {count:,} entries")
        major = np.searchsorted(pointers, np.arange(start, start + len(minor)), "right") - 1
        ends = [major, minor] if kind == "csr" else [minor, major]
    for each, size in zip(ends, shape, strict=True):
        if len(each) != len(data) or (len(each) and not 0 <= each.min() <= each.max() < size):
            raise ValueError(f"{len(each):,} indices of {len(data):,} entries, expected an index below {size} for each")
    return ends[0], ends[1], data


def _indices(archive: zipfile.ZipFile, name: str, start: int = 0, stop: int | None = None) -> NDArray[Any]:
    part = read_member(archive, name, start, stop)
    if part.ndim != 1 or part.dtype.kind not in "iu":
        raise ValueError(f"indices of type {part.dtype} and shape {part.shape}, expected whole numbers in a row")
    return part


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
    shape, data = sparse_shape(archive), read_member(archive, "data")
    parts: list[Any] = [_indices(archive, name) for name in _INDICES[kind]]
    if kind == "coo":
        return coo_matrix((data, (parts[0], parts[1])), shape)
    entries: Any = (data, parts[0], parts[1])
    matrix = csr_matrix(entries, shape) if kind == "csr" else csc_matrix(entries, shape)
    # With invalid indices, conversions and kernels would write out of bounds.
    matrix.check_format(full_check=True)
    return matrix
