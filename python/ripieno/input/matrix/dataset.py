"""Provide `Dataset`: files, in order, as one long list of rows that workers divide among themselves.

Shares are contiguous and in rank order: a worker has the global rows `offset .. offset + n`. Files with a known row
count (.npy, .npz, Parquet) are divided evenly by rows. Text (.csv, .txt) is divided evenly by bytes, because counting
its rows would need a full read: a worker takes the lines that begin in its part. Mixed lists are divided by bytes.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeGuard

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_matrix

from ripieno._types import Missing
from ripieno.errors import InputError
from ripieno.files import matrix_market
from ripieno.files.sources import EmptyFile, File, PathLike, describe_paths, expand_keyed, open_nonempty, size_bytes
from ripieno.input.columns import VECTORS, Key, TableFiles, TableOptions, open_table, paths_and_options, typed_keys
from ripieno.input.columns.arrays import ArrayRows, MarketArray, StoredArray
from ripieno.input.columns.source import MISSING_HINT
from ripieno.input.matrix.tables import TableRows
from ripieno.input.records import RecordType
from ripieno.input.shares import even_range, file_shares
from ripieno.units import duration_text
from ripieno.wire.zero_copy import ZeroCopyFields

logger = logging.getLogger("ripieno.input")


#: A file. `size` counts rows if the header states them (`counted`), otherwise bytes.
DataFile = ArrayRows | TableRows
#: The maximum number of columns of sparse rows, which have 32-bit indices.
COLUMNS_MAX = 2**31 - 1
#: Openers of files of arrays.
ARRAYS: dict[str, Callable[[str], StoredArray | MarketArray]] = {
    ".npy": StoredArray.npy,
    ".npz": StoredArray.npz,
    matrix_market.SUFFIX: MarketArray.open,
}
SUFFIXES = (*ARRAYS, *VECTORS)
#: Bytes of a part of a file that is read at once for means.
MEANS_BYTES = 64 << 20


@dataclass(frozen=True)
class FilePiece:
    """Rows of a share from one file; `row_numbers` has their numbers if rows with missing values are left out."""

    file: DataFile | _Numbered
    start: int
    row_count: int
    row_numbers: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class RowShare:
    """One worker's rows, with their locations and optional weights, (n,).

    `runs` gives the global row numbers as runs of first number and length, unless the rows directly follow the rows
    of lower ranks.
    """

    #: An array, or a csr_matrix of an `InMemorySparse`.
    points: Any
    pieces: tuple[FilePiece, ...]
    weights: NDArray[np.float64] | None = None
    runs: tuple[tuple[int, int], ...] | None = None
    #: (n,) labels of rows that include them, or None.
    labels: Any = None

    @property
    def missing_hint(self) -> str:
        """The end of messages about a missing value, which states the remedy."""
        modes = {piece.file.options.missing for piece in self.pieces if isinstance(piece.file, TableRows)}
        if not modes:
            return "; leave such rows out, or fill them, as sklearn.impute.SimpleImputer does"
        return MISSING_HINT if modes == {None} else "; a target is not replaced by a mean: pass missing='drop'"

    def describe(self, row: int, column: int) -> str:
        """Return file and position of a value of this share, for messages."""
        for piece in self.pieces:
            if row < piece.row_count:
                names = piece.file.column_names
                name = f"{names[column]!r} ({column + 1} of {len(names)})" if names else column
                number = row if piece.row_numbers is None else int(piece.row_numbers[row])
                return f"{piece.file.describe(piece.start, number)}, column {name}"
            row -= piece.row_count
        raise IndexError(row)


@dataclass(frozen=True)
class Dataset:
    """Files as one list of rows. It is small and is sent to the workers instead of the rows.

    Parameters
    ----------
    files
        The files.
    missing
        Handling of missing values, as in `TableOptions`.
    means : (columns,) float64, optional
        The values that replace missing values.
    """

    files: tuple[DataFile, ...]
    missing: Missing | None = None
    means: NDArray[np.float64] | None = None

    @property
    def column_count(self) -> int:
        """The number of values per row."""
        return self.files[0].column_count

    @property
    def row_count(self) -> int | None:
        """The number of rows of all files, or None if files have to be read to count them."""
        if self.missing == "drop":
            return None
        return sum(file.size for file in self.files) if all(file.counted for file in self.files) else None

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The dtype of the rows: float32, float64 or uint8; None if only reading text determines it."""
        if any(file.dtype is None for file in self.files):
            return None
        dtype = np.result_type(*(file.dtype for file in self.files))
        return dtype if self.missing is None else np.result_type(dtype, np.float32)

    @property
    def names(self) -> list[str]:
        """Paths of the files."""
        return [file.path for file in self.files]

    @property
    def column_names(self) -> tuple[str, ...] | None:
        """The names of the values of a row, if a file has them."""
        return next((file.column_names for file in self.files if file.column_names is not None), None)

    def with_classes(self) -> tuple[Dataset, NDArray[np.str_] | None]:
        """Return the same files with class numbers for the strings of their label column, and the ascending classes.

        The files are read for this. Without strings in the label column, there are no classes.

        Raises
        ------
        InputError
            Some files have strings, and others have numbers.
        """
        tables = [file for file in self.files if isinstance(file, TableRows) and file.label is not None]
        if not tables:
            return self, None
        other = next((file for file in self.files if file not in tables), None)
        if other is not None:
            raise InputError(
                f"{tables[0].path} has strings in column {tables[0].label!r}, but {other.path} has numbers"
            )
        classes = tuple(sorted(set().union(*(file.found_classes() for file in tables))))
        files = tuple(replace(file, classes=classes) for file in tables)
        return replace(self, files=files), np.array(classes)

    def ids(self) -> pa.ChunkedArray:
        """Return the names of all rows, from the column that the options of tables name.

        Raises
        ------
        InputError
            Rows are left out, or the names have different types.
        """
        if self.missing == "drop":
            raise InputError("missing='drop' leaves out rows, but id names all rows: expected missing='mean', or no id")
        columns = [file.ids() for file in self.files if isinstance(file, TableRows)]
        if len({column.type for column in columns}) > 1:
            columns = [column.cast(pa.string()) for column in columns]
        return pa.chunked_array([chunk for column in columns for chunk in column.chunks])

    def leaving_missing(self, column: int) -> Dataset:
        """Return the same files. Missing values of one column, such as the target, stay NaN."""
        if self.means is None:
            return self
        means = self.means.copy()
        means[column] = np.nan
        return replace(self, means=means)

    def read_share(self, rank: int, world_size: int) -> RowShare:
        """Read one worker's rows, memory-mapped if they lie in one .npy file.

        Raises
        ------
        InputError
            A row is ragged or not made of numbers.
        """
        begin_s = time.perf_counter()
        blocks, pieces = [], []
        by_rows = self.row_count is not None
        lengths = [file.size if by_rows else size_bytes(file.path) for file in self.files]
        # A file with a known row count among text files is cut in proportion to its bytes.
        for at, start, stop in file_shares(lengths, [file.size for file in self.files], rank, world_size):
            file = self.files[at]
            if start < stop:
                block, row_numbers = self._without_missing(file.read(start, stop))
                blocks.append(block)
                pieces.append(FilePiece(file, start, len(block), row_numbers))
        if not blocks:
            blocks = [np.empty((0, self.column_count), self.dtype or np.uint8)]
        points = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
        if self.dtype is not None:
            points = points.astype(self.dtype, copy=False)
        rows = RowShare(_for_kernels(points), tuple(pieces))
        _log_read(rank, world_size, len(points), pieces, time.perf_counter() - begin_s)
        return rows

    def _without_missing(self, rows: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64] | None]:
        """Return rows without missing values, and the numbers of these rows if some are left out."""
        if self.missing is None or rows.dtype.kind != "f":
            return rows, None
        gaps = np.isnan(rows)
        if self.missing == "drop":
            complete = np.flatnonzero(~gaps.any(axis=1))
            return (rows, None) if len(complete) == len(rows) else (rows[complete], complete)
        if not gaps.any():
            return rows, None
        assert self.means is not None, "open_source computes the means"
        return np.where(gaps, self.means, rows).astype(rows.dtype), None


@dataclass(frozen=True)
class RowsInMemory(ZeroCopyFields):
    """An array as a source. Each worker process reads its rows, or uses a view of them in shared memory."""

    array: NDArray[Any]
    names: tuple[str, ...] = ()

    @property
    def column_count(self) -> int:
        """The number of values per row."""
        width: int = self.array.shape[1]
        return width

    @property
    def row_count(self) -> int:
        """The number of rows of the array."""
        return len(self.array)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the rows: float32, float64 or uint8."""
        return self.array.dtype

    def read_share(self, rank: int, world_size: int) -> RowShare:
        """Return one worker's rows, as a view if the array is C-contiguous and aligned."""
        first, last = even_range(len(self.array), rank, world_size)
        return RowShare(_for_kernels(self.array[first:last]), (FilePiece(_Numbered(), first, last - first),))


@dataclass(frozen=True)
class InMemorySparse(ZeroCopyFields):
    """The parts of a CSR matrix as a source, with the labels of its rows if it has some. Workers take their rows."""

    indptr: NDArray[Any]
    indices: NDArray[Any]
    data: NDArray[np.float64]
    column_count: int
    names: tuple[str, ...] = ()
    #: The original dtype of the entries.
    given_dtype: str = "f8"
    labels: NDArray[Any] | None = None

    #: The name of the labels, in errors.
    name: ClassVar[str] = "y"
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.float64)

    @classmethod
    def of(cls, matrix: Any, labels: NDArray[Any] | None = None) -> InMemorySparse:
        """Return the parts of a matrix, with sorted columns and without duplicate entries; `matrix` is unchanged.

        Only rows with labels may have more columns than `COLUMNS_MAX`.
        """
        matrix = csr_matrix(matrix)
        is_wide = matrix.shape[1] > COLUMNS_MAX
        if is_wide and labels is None:
            raise InputError(f"X: {matrix.shape[1]:,} columns, expected at most {COLUMNS_MAX:,}")
        given_dtype = matrix.dtype.str
        if not matrix.has_canonical_format:
            matrix = matrix.astype(np.float64)
            matrix.sum_duplicates()
        indices = matrix.indices if is_wide else matrix.indices.astype(np.int32, copy=False)
        entries = matrix.data.astype(np.float64, copy=False)
        return cls(matrix.indptr, indices, entries, matrix.shape[1], (), given_dtype, labels)

    @property
    def row_count(self) -> int:
        """The number of rows of the matrix."""
        return len(self.indptr) - 1

    @property
    def array(self) -> csr_matrix:
        """The matrix."""
        return csr_matrix((self.data, self.indices, self.indptr), shape=(self.row_count, self.column_count))

    def read_share(self, rank: int, world_size: int) -> RowShare:
        """Return one worker's rows as a csr_matrix."""
        first, last = even_range(self.row_count, rank, world_size)
        starts = self.indptr[first : last + 1]
        begin, end = starts[0], starts[-1]
        parts = (self.data[begin:end], self.indices[begin:end], starts - begin)
        rows = csr_matrix(parts, shape=(last - first, self.column_count))
        labels = None if self.labels is None else self.labels[first:last]
        return RowShare(rows, (FilePiece(_Numbered(), first, last - first),), labels=labels)


@dataclass(frozen=True)
class LocalRows:
    """Rows of one worker, which reads all of them. Every worker has different rows.

    The rows of all workers, in rank order, form the data set.

    Parameters
    ----------
    source
        A source of rows, in memory or in files, with or without labels.
    weights : (n,) float64, or None for ones
    name
        The name of the rows in messages, if they are in memory.
    runs
        As for `RowShare`.
    """

    source: Any
    weights: NDArray[np.float64] | None
    name: str
    runs: tuple[tuple[int, int], ...] | None = None

    row_count: ClassVar[None] = None

    @property
    def column_count(self) -> int:
        """The number of values per row."""
        width: int = self.source.column_count
        return width

    @property
    def names(self) -> Sequence[str]:
        """The paths of the files, if the rows are in files."""
        names: Sequence[str] = self.source.names
        return names

    def read_share(self, rank: int, world_size: int) -> RowShare:
        """Return all rows of this worker, with weights.

        Raises
        ------
        InputError
            The number of weights differs from the number of rows, or the source raised.
        """
        share: RowShare = self.source.read_share(0, 1)
        count = share.points.shape[0]
        if self.weights is not None and len(self.weights) != count:
            raise InputError(f"{self.name}: sample_weight has {len(self.weights)} entries for {count} rows")
        if not isinstance(self.source, Dataset):
            share = replace(share, pieces=(FilePiece(_Numbered(f"{self.name}, "), 0, count),))
        return replace(share, weights=self.weights, runs=self.runs)


def _for_kernels(points: NDArray[Any]) -> NDArray[Any]:
    return np.require(points, requirements=["C", "ALIGNED"])


@dataclass(frozen=True)
class _Numbered:
    where: str = ""
    column_names: ClassVar[None] = None

    def describe(self, start: int, row: int) -> str:
        return f"{self.where}row {start + row}"


@dataclass(frozen=True)
class BinaryFiles:
    """Files that consist of vectors, each a record of the same length.

    Parameters
    ----------
    source : path, glob, folder, URL, or list of them
        Folders stand for all files in them that are not hidden.
    record_bytes : int
        The length of a vector in the file, in bytes.
    dtype : dtype
        Dtype of the values.
    """

    source: PathLike | Sequence[PathLike]
    record_bytes: int
    dtype: DTypeLike = "uint8"


def is_path_like(source: object) -> TypeGuard[PathLike | Sequence[PathLike]]:
    """Whether a source is a path or a nonempty list of paths, rather than an array."""
    if isinstance(source, (list, tuple)):
        return bool(source) and all(isinstance(item, (str, os.PathLike)) for item in source)
    return isinstance(source, (str, os.PathLike))


def open_source(
    source: PathLike | Sequence[PathLike] | BinaryFiles | TableFiles | Dataset,
    label: str | None = None,
    classes: tuple[str, ...] | None = None,
    required: Collection[str] = (),
) -> Dataset:
    """Open a path, a glob, a folder, a URL of these or a list of them; return a `Dataset` unchanged.

    This reads headers only. The column `label` of tables may hold strings, which are read as numbers of `classes`. The
    columns in `required` are read also if the options do not choose them.

    Raises
    ------
    InputError
        No file matches; a file is missing, empty or of an unknown format; or files differ in width or in column names.
    """
    if isinstance(source, Dataset):
        return source
    if isinstance(source, BinaryFiles):
        record = RecordType.of(source.record_bytes, source.dtype)
        assert record is not None, "record_bytes is set"
        files = open_nonempty(_expand(source.source, None), lambda each: _open_records(each[0], record))
    else:
        paths, options = paths_and_options(source)
        files = open_nonempty(
            _expand(paths, SUFFIXES), lambda each: _open_file(*each, options, required, label, classes)
        )
    for file in files[1:]:
        if file.column_count != files[0].column_count:
            raise InputError(
                f"{file.path} has {file.column_count} columns but {files[0].path} has {files[0].column_count}"
            )
    _check_names(files)
    opened = _completed(Dataset(tuple(files), paths_and_options(source)[1].missing))
    rows = "an unknown number of rows" if opened.row_count is None else f"{opened.row_count} rows"
    logger.info("%s: %s of %d columns", describe_paths(opened.names), rows, opened.column_count)
    return opened


def has_column_names(source: PathLike | Sequence[PathLike] | TableFiles) -> bool:
    """Return whether the first nonempty file is a table with names of columns."""
    paths, options = paths_and_options(source)
    found = _expand(paths, SUFFIXES)
    if any(File(path, 0).inner_suffix not in VECTORS for path, _ in found):
        return False
    first = next((each for each in found if size_bytes(each[0])), None)
    return first is not None and open_table(first[0], options, first[1], VECTORS).has_names


def _log_read(rank: int, world_size: int, row_count: int, pieces: Sequence[FilePiece], seconds: float) -> None:
    took = duration_text(seconds)
    names = describe_paths([getattr(piece.file, "path", "") for piece in pieces]) if pieces else "no file"
    logger.info("rank %d of %d has read %d rows in %s, of %s", rank, world_size, row_count, took, names)


def _check_names(files: Sequence[DataFile]) -> None:
    """Check that columns have the same names in all files."""
    named = [(file.path, file.column_names) for file in files if file.column_names is not None]
    for path, names in named[1:]:
        first_path, expected_names = named[0]
        for at, (name, expected) in enumerate(zip(names, expected_names, strict=True)):
            if name != expected:
                raise InputError(
                    f"{path}: column {at} is called {name!r}, but {expected!r} in {first_path}: expected the "
                    "same columns in the same order"
                )


def _completed(dataset: Dataset) -> Dataset:
    """Return a dataset with the means of its columns, if they replace missing values."""
    if dataset.missing != "mean":
        return dataset
    sums, counts = np.zeros(dataset.column_count), np.zeros(dataset.column_count)
    for file in dataset.files:
        part_count = 1 + size_bytes(file.path) // MEANS_BYTES
        for part in range(part_count):
            rows = file.read(*even_range(file.size, part, part_count))
            gaps = np.isnan(rows)
            sums += np.where(gaps, 0.0, rows).sum(axis=0, dtype=np.float64)
            counts += len(rows) - gaps.sum(axis=0)
    empty = np.flatnonzero(counts == 0)
    if len(empty):
        name = dataset.column_names[empty[0]] if dataset.column_names else empty[0]
        raise InputError(
            f"{describe_paths(dataset.names)}: column {name!r} has no value, so it has no mean: pass ignore="
        )
    return replace(dataset, means=sums / counts)


def _expand(source: PathLike | Sequence[PathLike], kinds: Collection[str] | None) -> list[tuple[str, tuple[Key, ...]]]:
    items: Sequence[Any] = source if isinstance(source, (list, tuple)) else [source]
    return typed_keys([each for item in items for each in expand_keyed(item, kinds)])


def _open_records(path: str, record: RecordType) -> DataFile:
    if size_bytes(path) == 0:
        raise EmptyFile(f"{path} is empty")
    return ArrayRows.of(StoredArray.records(path, record))


def _open_file(
    path: str,
    keys: tuple[Key, ...],
    options: TableOptions,
    required: Collection[str],
    label: str | None,
    classes: tuple[str, ...] | None,
) -> DataFile:
    kind = File(path, 0).inner_suffix
    if kind not in SUFFIXES:
        raise InputError(
            f"{path}: unknown kind of file, expected one of {', '.join(SUFFIXES)}, or raw vectors with their length: "
            "BinaryFiles(…, record_bytes=COUNT)"
        )
    if size_bytes(path) == 0:
        raise EmptyFile(f"{path} is empty")
    if kind in VECTORS:
        return TableRows.of(open_table(path, options, keys, VECTORS), options, required, label, classes)
    if keys or replace(options, missing=None) != TableOptions():
        raise InputError(f"{path}: columns of {kind} have no names: expected a table, for options and names of folders")
    return ArrayRows.of(ARRAYS[kind](path))
