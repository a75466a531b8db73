"""Read arrays from files: .npy and raw files are mapped by row range, and .npz members if stored uncompressed.

Files behind a URL cannot be mapped; their rows are read.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, replace
from typing import IO, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.files.npy import BROKEN_ARCHIVE, check_member, read_array, read_header
from ripieno.files.sources import EmptyFile, File, blamed_on, is_url, opened, size_bytes
from ripieno.input.matrix.records import RecordType

MEMBER_NAME = "vectors"
LOCAL_HEADER_BYTES = 30


def kernel_dtype(dtype: np.dtype[Any], name: str) -> np.dtype[Any]:
    """Return the dtype for computing on rows of `dtype`: float32, float64 and uint8 stay; others become float.

    Raises
    ------
    InputError
        The type is not numeric, or complex.
    """
    if dtype.kind not in "biuf":
        raise InputError(f"{name}: the type of the values is {dtype}, expected real numbers")
    if dtype.kind == "f":
        return np.dtype(np.float32 if dtype.itemsize <= 4 else np.float64)
    return np.dtype(np.uint8 if dtype == np.uint8 else np.float64)


@dataclass(frozen=True)
class NpyFile:
    """An .npy file, or one inside an archive: at byte `offset`, or the compressed `member`.

    It also represents raw files of rows.
    """

    path: str
    shape: tuple[int, int]
    stored: np.dtype[Any]
    fortran: bool
    offset: int
    member: str | None = None
    counted: ClassVar[bool] = True
    column_names: ClassVar[None] = None

    @classmethod
    def open(cls, path: str) -> NpyFile:
        """Read the header of an .npy file."""
        with opened(path) as stream, blamed_on(path):
            return cls(path, *_header(stream, path), offset=stream.tell())

    @classmethod
    def of_records(cls, path: str, record: RecordType) -> NpyFile:
        """Open a raw file of rows."""
        file = File(path, size_bytes(path))
        if file.compression is not None:
            raise InputError(f"{path}: workers read parts of files of records: unpack it first")
        dtype = np.dtype(record.dtype)
        kernel_dtype(dtype, path)
        (width,) = record.shape
        return cls(path, (record.count(file), width), dtype, fortran=False, offset=0)

    @property
    def column_count(self) -> int:
        """The number of values per row."""
        return self.shape[1]

    @property
    def size(self) -> int:
        """The number of rows."""
        return self.shape[0]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype for computing on the rows."""
        return kernel_dtype(self.stored, self.path)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows `start .. stop`, without a copy if the file stores them in the required form."""
        return self.read_as(start, stop, self.dtype)

    def read_as(self, start: int, stop: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return the same rows as `read`, in another dtype."""
        if self.member is not None:
            rows = self._unpacked()[start:stop]
        elif is_url(self.path):
            rows = self._fetched(start, stop)
        else:
            rows = self._mapped()[start:stop]
        # Members of an archive may be unaligned. Then the rows are copied, but only the worker's own rows.
        return np.require(rows, dtype, ["C", "ALIGNED"])

    def _unpacked(self) -> NDArray[Any]:
        assert self.member is not None
        with opened(self.path) as file, blamed_on(self.path):
            try:
                with zipfile.ZipFile(file) as archive, archive.open(self.member) as stream:
                    return read_array(stream)
            except BROKEN_ARCHIVE as error:
                raise InputError(f"{self.path} is damaged: {error}") from error

    def _mapped(self) -> NDArray[Any]:
        with blamed_on(self.path):
            try:
                return np.memmap(self.path, self.stored, "r", self.offset, self.shape, "F" if self.fortran else "C")
            except (OverflowError, ValueError) as error:
                raise self._short() from error

    def _fetched(self, start: int, stop: int) -> NDArray[Any]:
        # In column-major order, the values of a row are spread over the whole file.
        first, last = (0, self.size) if self.fortran else (start, stop)
        row_bytes = self.stored.itemsize * self.column_count
        with opened(self.path) as file, blamed_on(self.path):
            file.seek(self.offset + first * row_bytes)
            values = file.read((last - first) * row_bytes)
        if len(values) < (last - first) * row_bytes:
            raise self._short()
        rows = np.frombuffer(values, self.stored).reshape((last - first, -1), order="F" if self.fortran else "C")
        return rows[start - first : stop - first]

    def _short(self) -> InputError:
        return InputError(f"{self.path} is shorter than it should be")

    def describe(self, start: int, row: int) -> str:
        """Return the position of a row as text."""
        return f"{self.path}, row {start + row}"


class NpzFile:
    """An .npz archive. Its array named `vectors`, or its only two-dimensional array, is used."""

    @staticmethod
    def open(path: str) -> NpyFile:
        """Choose the member and read its header."""
        with opened(path) as file, blamed_on(path):
            try:
                with zipfile.ZipFile(file) as archive:
                    chosen = _choose([_member(archive, info, file, path) for info in archive.infolist()], path)
                    if chosen.offset and chosen.member is not None:
                        # Mapped rows are never compared with the checksum of the member.
                        check_member(archive, archive.getinfo(chosen.member))
            except InputError:
                raise
            except BROKEN_ARCHIVE as error:
                raise InputError(f"{path} is not a readable .npz file: {error}") from error
        return replace(chosen, member=None) if chosen.offset else chosen


def _choose(members: list[NpyFile | str], path: str) -> NpyFile:
    arrays = [member for member in members if isinstance(member, NpyFile)]
    named = [array for array in arrays if array.member == f"{MEMBER_NAME}.npy"]
    if len(named or arrays) != 1:
        raise InputError(
            f"{path} holds {len(arrays)} two-dimensional arrays: expected one, or one named {MEMBER_NAME!r}"
        )
    chosen = (named or arrays)[0]
    kernel_dtype(chosen.stored, path)
    return chosen


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, file: IO[bytes], path: str) -> NpyFile | str:
    try:
        with archive.open(info) as stream:
            header = _header(stream, path)
            inner = stream.tell()
    except InputError as error:
        return str(error)
    stored = info.compress_type == zipfile.ZIP_STORED
    offset = _data_offset(file, info) + inner if stored else 0
    return NpyFile(path, *header, offset=offset, member=info.filename)


def _data_offset(file: IO[bytes], info: zipfile.ZipInfo) -> int:
    # The local header repeats name and extra field, and its extra field may differ from the one in the central
    # directory.
    file.seek(info.header_offset)
    local = file.read(LOCAL_HEADER_BYTES)
    name_bytes, extra_bytes = (int.from_bytes(local[at : at + 2], "little") for at in (26, 28))
    return info.header_offset + LOCAL_HEADER_BYTES + name_bytes + extra_bytes


def npy_header(stream: IO[bytes], path: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, column-major flag and dtype of an .npy file. The stream is left at the first value."""
    try:
        return read_header(stream)
    except ValueError as error:
        raise InputError(f"{path} is not a readable .npy file: {error}") from error


def _header(stream: IO[bytes], path: str) -> tuple[tuple[int, int], np.dtype[Any], bool]:
    shape, fortran, dtype = npy_header(stream, path)
    kernel_dtype(dtype, path)
    if len(shape) != 2:
        raise InputError(f"{path}: an array of shape {shape}, expected two dimensions, (rows, columns)")
    if 0 in shape:
        raise EmptyFile(f"{path} is empty: its shape is {shape}")
    return shape, dtype, fortran
