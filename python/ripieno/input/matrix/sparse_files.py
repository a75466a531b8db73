"""Read files of sparse rows: libsvm text by its workers, and MatrixMarket and scipy.sparse.save_npz in one process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from scipy.sparse import csr_matrix, vstack

from ripieno.errors import InputError
from ripieno.files.sources import File, PathLike, describe_paths, expand, expand_keyed, size_bytes, suffix
from ripieno.input.columns import SparseColumns, TableOptions
from ripieno.input.columns.libsvm import COLUMN_LIMIT, LISTS, LibsvmText
from ripieno.input.matrix.dataset import RowShare
from ripieno.input.shares import file_shares


@dataclass(frozen=True)
class LibsvmFiles:
    """Text files, in order, as one list of rows, or one worker's rows from its splits."""

    files: tuple[LibsvmText, ...] = ()
    rows: pa.Table | None = None

    @property
    def name(self) -> str:
        """The first file, and the number of the other files."""
        return describe_paths([file.path for file in self.files])

    @classmethod
    def open(cls, paths: PathLike | Sequence[PathLike] | LibsvmFiles) -> LibsvmFiles:
        """Open files, globs or folders. The workers read them.

        Raises
        ------
        InputError
            A file is missing.
        """
        if isinstance(paths, LibsvmFiles):
            return paths
        items: Sequence[Any] = paths if isinstance(paths, list | tuple) else [paths]
        return cls(tuple(LibsvmText.open(path, TableOptions()) for item in items for path in expand(item)))

    def read_share(self, rank: int, world_size: int) -> RowShare:
        """Read one worker's rows, and their labels.

        Raises
        ------
        InputError
            A line is invalid. The message names the file.
        """
        tables = [LISTS.empty_table()] if self.rows is None else [self.rows]
        lengths = [size_bytes(file.path) for file in self.files] if self.rows is None else []
        for at, start, stop in file_shares(lengths, [file.size for file in self.files], rank, world_size):
            tables.append(self.files[at].read(start, stop, LISTS))
        labels, indices, values = (
            pa.concat_arrays([pa.array([], column.type), *column.chunks]) for column in pa.concat_tables(tables).columns
        )
        parts = (values.values.to_numpy(), indices.values.to_numpy(), indices.offsets.to_numpy())
        return RowShare(csr_matrix(parts, shape=(len(labels), COLUMN_LIMIT)), (), labels=labels.to_numpy())


@dataclass(frozen=True)
class SparseFiles:
    """Files of sparse rows, all in one format."""

    files: tuple[SparseColumns, ...] | tuple[LibsvmText, ...]

    @property
    def names(self) -> list[str]:
        """Paths of the files."""
        return [file.path for file in self.files]

    @property
    def is_text(self) -> bool:
        """Whether the files are libsvm text."""
        return isinstance(self.files[0], LibsvmText)

    @classmethod
    def find(cls, inputs: Sequence[str]) -> SparseFiles | None:
        """Return the files that the inputs name, or None if none of them is sparse.

        Raises
        ------
        InputError
            Some files are sparse and others are not, or the formats differ.
        """
        paths = [path for item in inputs for path, _ in expand_keyed(item)]
        files: Any = tuple(_opened(path) for path in paths)
        if not any(files):
            return None
        paths = [path for item in inputs for path in expand(item)]
        path = next((path for path, file in zip(paths, files, strict=True) if type(file) is not type(files[0])), None)
        if path is not None:
            raise InputError(
                f"{path} and {paths[0]} are of different kinds: expected all dense, or all sparse of one kind"
            )
        return cls(files)

    def read(self, columns: range | None = None) -> tuple[csr_matrix, int | None]:
        """Read the rows. For libsvm text, also return the index of the first column: 0, or 1 if no index is 0.

        `columns` is the range of valid indices in text, if it is known.

        Raises
        ------
        InputError
            The files differ in columns, have columns other than these, or cannot be read.
        """
        parts, others = [], " and others have" if len(self.files) > 1 else " has"
        for file in self.files:
            if isinstance(file, LibsvmText):
                return self._text(columns, f"{file.path}{others}")
            parts.append(csr_matrix(file.matrix()))
            if parts[-1].shape[1] != parts[0].shape[1]:
                raise InputError(
                    f"{file.path} has {parts[-1].shape[1]} columns, {self.names[0]} has {parts[0].shape[1]}"
                )
        return csr_matrix(vstack(parts, format="csr")), None

    def _text(self, columns: range | None, name: str) -> tuple[csr_matrix, int]:
        files: Any = self.files
        matrix = LibsvmFiles(files).read_share(0, 1).points
        low, high = (int(matrix.indices.min()), int(matrix.indices.max())) if matrix.nnz else (None, None)
        if columns is None:
            if low is None or high is None:
                raise InputError(f"{name} no entry: expected lines of 'label index:value …'")
            columns = range(int(low > 0), high + 1)
        wrong = next((index for index in (high, low) if index is not None and index not in columns), None)
        if wrong is not None:
            raise InputError(
                f"{name} index {wrong}: expected {columns.start} to {columns.stop - 1}, the columns that the estimator "
                "was fitted on"
            )
        parts = (matrix.data, matrix.indices - columns.start, matrix.indptr)
        return csr_matrix(parts, shape=(matrix.shape[0], len(columns))), columns.start


def _opened(path: str) -> SparseColumns | LibsvmText | None:
    """Return a file of sparse rows, or None for a file of another kind."""
    kind = File(path, 0).inner_suffix
    if kind in LibsvmText.suffixes:
        return LibsvmText.open(path, TableOptions())
    return SparseColumns.find(path) if kind in SparseColumns.suffixes or suffix(path) == ".npz" else None
