"""Provide arrays in .npy files, .npz archives and raw files as ranges of rows.

Rows of local files are mapped, including uncompressed members of archives. Other rows are read.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import prod
from typing import IO, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.files import matrix_market
from ripieno.files.frames import NUMBERS, arrow_array, arrow_type_of
from ripieno.files.npy import (
    check_member,
    member_header,
    member_names,
    opened_archive,
    read_array,
    read_header,
    read_member,
)
from ripieno.files.sources import EmptyFile, File, check_memory, held, input_errors, is_url, opened, size_bytes
from ripieno.input.columns.source import ColumnSource, FormatOptions, TableOptions, TableSplits, WholeColumns
from ripieno.input.columns.sparse import SparseColumns
from ripieno.input.cuts import even
from ripieno.input.records import RecordType
from ripieno.input.split import Range, Split

MEMBER_NAME = "vectors"
LOCAL_HEADER_BYTES = 30
SPARSE = "{} is a sparse matrix, which is not read here: expected dense rows"


@dataclass(frozen=True)
class StoredArray:
    """An array at byte `offset` of a file, or the compressed `member` of an archive."""

    path: str
    shape: tuple[int, ...]
    stored: np.dtype[Any]
    fortran: bool
    offset: int
    member: str | None = None
    compression: str | None = None

    @classmethod
    def npy(cls, path: str) -> Self:
        """Read the header of an .npy file."""
        compression = File(path, 0).compression
        with opened(path, compression) as stream, input_errors(path):
            try:
                shape, fortran, dtype = read_header(stream)
                return cls(path, shape, dtype, fortran, stream.tell(), compression=compression)
            except ValueError as error:
                raise InputError(f"{path} is not a readable .npy file: {error}") from error

    @classmethod
    def records(cls, path: str, record: RecordType) -> Self:
        """Open a file of records of equal length."""
        file = File(path, size_bytes(path))
        shape = (record.count(file), *record.shape)
        return cls(path, shape, np.dtype(record.dtype), fortran=False, offset=0, compression=file.compression)

    @classmethod
    def npz(cls, path: str) -> Self:
        """Choose the array named `vectors` of an archive, or its only two-dimensional array, and read its header."""
        with opened_archive(path) as archive:
            if {"format", "shape"} <= set(member_names(archive)):
                raise InputError(SPARSE.format(path))
            arrays = [each for info in archive.infolist() for each in cls._members(path, archive, info)]
            named = [array for array in arrays if array.member == f"{MEMBER_NAME}.npy"]
            if len(named or arrays) != 1:
                raise InputError(
                    f"{path} holds {len(arrays)} two-dimensional arrays: expected one, or one named {MEMBER_NAME!r}"
                )
            chosen = (named or arrays)[0]
            if chosen.offset and chosen.member is not None:
                # Rows that are mapped later are not compared with the checksum of the member.
                check_member(archive, archive.getinfo(chosen.member))
        return replace(chosen, member=None) if chosen.offset else chosen

    @classmethod
    def _members(cls, path: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[Self]:
        """Yield a member of an archive if it is a matrix."""
        with archive.open(info) as stream:
            try:
                shape, fortran, dtype = read_header(stream)
            except ValueError:
                return
            inner = stream.tell()
        if len(shape) == 2 and 0 not in shape and dtype.kind in NUMBERS:
            assert archive.fp is not None, "the archive is open"
            offset = _data_offset(archive.fp, info) + inner if info.compress_type == zipfile.ZIP_STORED else 0
            yield cls(path, shape, dtype, fortran, offset, info.filename)

    @property
    def row_bytes(self) -> int:
        """The size of a row in bytes."""
        return self.stored.itemsize * prod(self.shape[1:])

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows `start .. stop`, read-only. Members of archives may be unaligned.

        Raises
        ------
        InputError
            The file is damaged, or too short.
        """
        if self.member is not None:
            with opened_archive(self.path, "is damaged") as archive, archive.open(self.member) as stream:
                return read_array(stream, start, stop)
        # In column-major order, the values of a row are spread over the whole file.
        first, last = (0, self.shape[0]) if self.fortran else (start, stop)
        shape, at = (last - first, *self.shape[1:]), self.offset + first * self.row_bytes
        length = (last - first) * self.row_bytes
        rows: NDArray[Any] | None = None
        is_mapped = self.compression is None and not is_url(self.path) and length > 0
        if not is_mapped:
            check_memory(self.path, length)
        # A damaged header may state any length.
        with input_errors(self.path), suppress(MemoryError, OverflowError, ValueError):
            if is_mapped:
                rows = np.memmap(self.path, self.stored, "r", at, shape, "F" if self.fortran else "C")
            else:
                with opened(self.path, self.compression) as file:
                    file.seek(at)
                    values = file.read(length)
                if len(values) == length:
                    rows = np.frombuffer(values, self.stored).reshape(shape, order="F" if self.fortran else "C")
        if rows is None:
            raise self._too_short(first, last)
        return rows[start - first : stop - first]

    def blocks(self, start: int, stop: int, count: int) -> Iterator[NDArray[Any]]:
        """Yield rows `start .. stop` of an array in row order, `count` at a time. A compressed file is unpacked once.

        Raises
        ------
        InputError
            The file is damaged, or too short.
        """
        ranges = [(first, min(first + count, stop)) for first in range(start, stop, count)]
        if self.compression is None:
            yield from (self.rows(*each) for each in ranges)
            return
        with opened(self.path, self.compression) as file, input_errors(self.path):
            file.seek(self.offset + start * self.row_bytes)
            for first, last in ranges:
                values = file.read((last - first) * self.row_bytes)
                if len(values) < (last - first) * self.row_bytes:
                    raise self._too_short(first, last)
                yield np.frombuffer(values, self.stored).reshape(last - first, *self.shape[1:])

    def _too_short(self, start: int, stop: int) -> InputError:
        return InputError(f"{self.path} is shorter than it should be: rows {start:,} … {stop:,} are incomplete")


@dataclass(frozen=True)
class ArraySplits:
    """Splits of an array of at least one axis: rows of its first axis.

    Parameters
    ----------
    offset : int
        Byte offset of the first row.
    dtype : str
        Dtype of the elements, as NumPy's `dtype.str`.
    shape : tuple of int
        Shape of the whole array.
    """

    offset: int
    dtype: str
    shape: tuple[int, ...]

    name: ClassVar[str]
    unit = "rows"
    block_bytes = 8 << 20

    @property
    def row_bytes(self) -> int:
        """The size of a row in bytes."""
        return np.dtype(self.dtype).itemsize * prod(self.shape[1:])

    def cut(self, file: File, count: int) -> list[Range]:
        """Return even ranges of rows."""
        return [(start, stop, (stop - start) * self.row_bytes) for start, stop in even(self.shape[0], count)]

    def read(self, split: Split) -> NDArray[Any]:
        """Return the rows, read-only."""
        return self._array(split).rows(*self._range(split))

    def blocks(self, split: Split, block_bytes: int) -> Iterator[NDArray[Any]]:
        """Yield rows in blocks of at most `block_bytes`, but at least one row."""
        step = max(1, block_bytes // max(1, self.row_bytes))
        return self._array(split).blocks(*self._range(split), step)

    def empty(self, split: Split) -> NDArray[Any]:
        """Return an array of no rows."""
        return np.empty((0, *self.shape[1:]), self.dtype)

    def extents(self, split: Split) -> tuple[tuple[int, int], ...]:
        """Return the byte range of the rows."""
        return ((self.offset + split.start * self.row_bytes, self.offset + split.stop * self.row_bytes),)

    def _range(self, split: Split) -> tuple[int, int]:
        return (0, self.shape[0]) if split.compression else (split.start, split.stop)

    def _array(self, split: Split) -> StoredArray:
        dtype = np.dtype(self.dtype)
        return StoredArray(split.place(), self.shape, dtype, False, self.offset, compression=split.compression)


class Npy(ArraySplits):
    """A NumPy file, described by its header."""

    name = "npy"
    suffixes = (".npy",)

    @classmethod
    def open(cls, file: File, options: FormatOptions) -> Npy:
        """Read the header."""
        array = StoredArray.npy(file.path)
        if not array.shape or array.stored.hasobject or array.stored.names:
            raise InputError(
                f"{file.path}: an array of shape {array.shape} and type {array.stored}, expected rows of numbers"
            )
        if array.fortran and len(array.shape) > 1:
            raise InputError(
                f"{file.path} is stored column by column, so its rows cannot be read one by one: save it again with "
                "numpy.ascontiguousarray"
            )
        return cls(array.offset, array.stored.str, array.shape)


class Binary(ArraySplits):
    """A file of records of equal length, described by the caller."""

    name = "binary"
    suffixes = ()

    @classmethod
    def open(cls, file: File, options: FormatOptions) -> Binary:
        """Determine the length of the file."""
        assert options.record is not None, "binary files are opened with a record type"
        return cls(0, options.record.dtype, (options.record.count(file), *options.record.shape))


#: Kinds of types that are columns of tables.
COLUMN_KINDS = NUMBERS + "US"


def kernel_dtype(dtype: np.dtype[Any], name: str) -> np.dtype[Any]:
    """Return the dtype for computing on rows of `dtype`: float32, float64 and uint8 stay; others become float.

    Raises
    ------
    InputError
        The type is not numeric, or complex.
    """
    if dtype.kind not in NUMBERS:
        raise InputError(f"{name}: the type of the values is {dtype}, expected real numbers")
    if dtype.kind == "f":
        return np.dtype(np.float32 if dtype.itemsize <= 4 else np.float64)
    return np.dtype(np.uint8 if dtype == np.uint8 else np.float64)


@dataclass(frozen=True)
class MarketArray:
    """A dense matrix as MatrixMarket text, stored by columns: each read of rows parses the whole file."""

    path: str
    shape: tuple[int, int]
    stored: np.dtype[Any]

    @classmethod
    def open(cls, path: str) -> Self:
        """Read the banner and the line of sizes."""
        info = matrix_market.read_info(path)
        if info.layout != "array":
            raise InputError(SPARSE.format(path))
        return cls(path, info.shape, info.dtype)

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows `start .. stop`."""
        rows: NDArray[Any] = matrix_market.read_matrix(self.path)[start:stop]
        return rows


@dataclass(frozen=True)
class ArrayRows:
    """An array of two dimensions as rows of numbers."""

    array: StoredArray | MarketArray

    counted: ClassVar[bool] = True
    column_names: ClassVar[None] = None

    @classmethod
    def of(cls, array: StoredArray | MarketArray) -> Self:
        """Check shape and type.

        Raises
        ------
        InputError
            The array is not two-dimensional, or has no real numbers.
        """
        kernel_dtype(array.stored, array.path)
        if len(array.shape) != 2:
            raise InputError(f"{array.path}: an array of shape {array.shape}, expected two dimensions, (rows, columns)")
        if 0 in array.shape:
            raise EmptyFile(f"{array.path} is empty: its shape is {array.shape}")
        return cls(array)

    @property
    def path(self) -> str:
        """The path of the file."""
        return self.array.path

    @property
    def size(self) -> int:
        """The number of rows."""
        return self.array.shape[0]

    @property
    def column_count(self) -> int:
        """The number of values per row."""
        return self.array.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype for computing on the rows."""
        return kernel_dtype(self.array.stored, self.path)

    def read(self, start: int, stop: int, dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
        """Return rows `start .. stop`, without a copy if the file stores them in the required form."""
        # Only the requested rows are copied if they are unaligned.
        return np.require(self.array.rows(start, stop), dtype or self.dtype, ["C", "ALIGNED"])

    def describe(self, start: int, row: int) -> str:
        """Return the position of a row as text."""
        return f"{self.path}, row {start + row}"


@dataclass(frozen=True)
class NpyColumns(ColumnSource):
    """The columns f0, f1, … of an array of two dimensions."""

    array: StoredArray = field(kw_only=True)

    suffixes = (".npy",)

    @classmethod
    def open(cls, path: str, options: TableOptions) -> Self:
        """Read the header."""
        array = StoredArray.npy(path)
        ArrayRows.of(array)
        names = [f"f{at}" for at in range(array.shape[1])]
        own = pa.schema([pa.field(name, arrow_type_of(array.stored)) for name in names])
        return cls(path, own, array.shape[0], False, array=array)

    def _batches(self, start: int, stop: int, schema: pa.Schema, hint: str) -> Iterator[pa.Table]:
        rows = self.array.rows(start, stop)
        yield pa.table([arrow_array(rows[:, self.own.get_field_index(name)]) for name in schema.names], schema.names)


@dataclass(frozen=True)
class ArchiveColumns(WholeColumns):
    """The one-dimensional arrays of an .npz archive. Columns that are read together have equal lengths."""

    suffixes = (".npz",)

    @classmethod
    def open(cls, path: str, options: TableOptions) -> Self:
        """Read the headers of the arrays."""
        with opened_archive(path) as archive:
            headers = {name: member_header(archive, name) for name in member_names(archive)}
        if not headers:
            raise EmptyFile(f"{path} is empty: it holds no array")
        kinds = [arrow_type_of(dtype) if len(shape) == 1 else pa.binary() for shape, dtype in headers.values()]
        return cls(path, pa.schema(list(zip(headers, kinds, strict=True))), size_bytes(path))

    @classmethod
    def described(cls, path: str) -> ColumnSource:
        """Open an archive of arrays, or of a sparse matrix that SciPy has saved."""
        return SparseColumns.find(path) or cls.open(path, TableOptions())

    def _count(self, names: Sequence[str]) -> int:
        with opened_archive(self.path) as archive:
            headers = [member_header(archive, name) for name in names]
        for name, (shape, dtype) in zip(names, headers, strict=True):
            if len(shape) != 1 or dtype.kind not in COLUMN_KINDS:
                raise InputError(
                    f"{self.path}: array {name!r} has shape {shape} and type {dtype}: expected one dimension, and "
                    "numbers or text"
                )
            if shape != headers[0][0]:
                raise InputError(
                    f"{self.path}: array {name!r} has {shape[0]:,} values, {names[0]!r} has {headers[0][0][0]:,}: "
                    "expected equal lengths"
                )
        return headers[0][0][0]

    def _table(self, names: Sequence[str], start: int, stop: int) -> pa.Table:
        with opened_archive(self.path) as archive:
            arrays = (read_member(archive, name, start, stop) for name in names)
            columns = list(held(self.path, arrays, lambda array: array.nbytes))
        return pa.table([arrow_array(column) for column in columns], list(names))


@dataclass(frozen=True)
class ArchiveSplits(TableSplits):
    """Splits of .npz archives, as tables of equally long arrays, or of the entries of a sparse matrix."""

    name = "npz"
    unit = "bytes"
    source = ArchiveColumns
    suffixes = source.suffixes


def _data_offset(file: IO[bytes], info: zipfile.ZipInfo) -> int:
    # The local header repeats name and extra field, and its extra field may differ from the one in the central
    # directory.
    file.seek(info.header_offset)
    local = file.read(LOCAL_HEADER_BYTES)
    name_bytes, extra_bytes = (int.from_bytes(local[at : at + 2], "little") for at in (26, 28))
    return info.header_offset + LOCAL_HEADER_BYTES + name_bytes + extra_bytes
