"""Read sparse rows: libsvm text with lines of "label index:value …", and CSR matrices. Each worker reads its share.

A share of a text has the lines that begin in its part of the bytes. Indices are not shifted.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack

from ripieno.errors import InputError
from ripieno.files.sources import PathLike, absolute_paths, describe_paths, input_errors, is_url, opened, size_bytes
from ripieno.input.lines import blocks
from ripieno.input.shares import even_range, file_shares
from ripieno.wire.zero_copy import ZeroCopyFields

COMPRESSED_SUFFIXES = (".gz", ".bz2")
# An upper bound. The actual number of columns is known when all shares have been read.
_COLUMN_LIMIT = 2**31 - 1


@dataclass(frozen=True)
class LabeledSparseRows:
    """Rows with their labels.

    Parameters
    ----------
    matrix : (n, columns) csr_matrix of float64
    labels : (n,) array
    """

    matrix: csr_matrix
    labels: NDArray[Any]


_NO_ROWS = LabeledSparseRows(csr_matrix((0, _COLUMN_LIMIT)), np.empty(0))


@dataclass(frozen=True)
class InMemoryRows(ZeroCopyFields):
    """The parts of a CSR matrix and its labels. Each worker process takes its rows."""

    indptr: NDArray[Any]
    indices: NDArray[Any]
    data: NDArray[np.float64]
    column_count: int
    labels: NDArray[Any]

    @property
    def name(self) -> str:
        """The name of the labels, in errors."""
        return "y"

    @classmethod
    def of(cls, matrix: csr_matrix, labels: NDArray[Any]) -> InMemoryRows:
        """Return the parts of a matrix, with labels."""
        return cls(matrix.indptr, matrix.indices, matrix.data, matrix.shape[1], labels)

    def read_share(self, rank: int, world_size: int) -> LabeledSparseRows:
        """Return one worker's rows."""
        first, last = even_range(len(self.labels), rank, world_size)
        starts = self.indptr[first : last + 1]
        begin, end = starts[0], starts[-1]
        parts = (self.data[begin:end], self.indices[begin:end], starts - begin)
        return LabeledSparseRows(csr_matrix(parts, shape=(last - first, self.column_count)), self.labels[first:last])


@dataclass(frozen=True)
class LibsvmFiles:
    """Text files by path or URL, in order, as one list of rows."""

    paths: tuple[str, ...]

    @property
    def name(self) -> str:
        """The first file, and the number of the other files."""
        return describe_paths(self.paths)

    @classmethod
    def open(cls, paths: PathLike | Sequence[PathLike] | LibsvmFiles) -> LibsvmFiles:
        """Open files by name. The workers read them.

        Raises
        ------
        InputError
            A file is missing, or compressed.
        """
        if isinstance(paths, LibsvmFiles):
            return paths
        names = absolute_paths(paths)
        for name in names:
            if name.endswith(COMPRESSED_SUFFIXES):
                raise InputError(f"{name}: workers read parts of libsvm files: unpack it first")
            if not is_url(name) and not os.path.isfile(name):
                raise InputError(f"{name} does not exist" if not os.path.exists(name) else f"{name} is no file")
        return cls(tuple(names))

    def read_share(self, rank: int, world_size: int) -> LabeledSparseRows:
        """Read one worker's rows.

        Raises
        ------
        InputError
            A line is invalid. The message names the file.
        """
        lengths = [size_bytes(path) for path in self.paths]
        parts = [_NO_ROWS]
        for at, share in file_shares(lengths, rank, world_size):
            start, stop = share.of(lengths[at])
            if start < stop:
                parts.append(_read(self.paths[at], start, stop))
        return _joined(parts)


@dataclass(frozen=True)
class LibsvmTexts(LibsvmFiles):
    """Rows from texts that one worker has read, with the paths of the texts."""

    rows: LabeledSparseRows

    @classmethod
    def of(cls, text: bytes, path: str) -> LibsvmTexts:
        """Parse a text; messages name the path.

        Raises
        ------
        InputError
            A line is invalid.
        """
        return cls((path,), _parsed(text, path))

    @classmethod
    def joined(cls, parts: Sequence[LibsvmTexts]) -> LibsvmTexts:
        """Concatenate rows."""
        return cls(tuple(path for part in parts for path in part.paths), _joined([part.rows for part in parts]))

    def __len__(self) -> int:
        return len(self.rows.labels)

    def read_share(self, rank: int, world_size: int) -> LabeledSparseRows:
        """Return the rows."""
        return self.rows


def _joined(parts: Sequence[LabeledSparseRows]) -> LabeledSparseRows:
    matrix = vstack([part.matrix for part in parts], format="csr")
    return LabeledSparseRows(matrix, np.concatenate([part.labels for part in parts]))


def _read(path: str, start: int, stop: int) -> LabeledSparseRows:
    """Read the rows with lines that begin in bytes `start .. stop`."""
    with opened(path) as file, input_errors(path):
        text = b"".join(lines for _, lines in blocks(file, start, stop, stop - start))
    return _parsed(text, path)


def _parsed(text: bytes, path: str) -> LabeledSparseRows:
    from sklearn.datasets import load_svmlight_file

    if not text.strip():
        return _NO_ROWS
    try:
        rows = LabeledSparseRows(*load_svmlight_file(io.BytesIO(text), n_features=_COLUMN_LIMIT, zero_based=True))
    except OverflowError as error:
        raise InputError(f"{path}: an index is above {_COLUMN_LIMIT - 1}, the largest allowed index") from error
    except ValueError as error:
        raise InputError(f"{path}: {error}: expected lines of 'label index:value …'") from error
    wrong = np.flatnonzero(~np.isfinite(rows.matrix.data))
    if len(wrong):
        index, value = rows.matrix.indices[wrong[0]], rows.matrix.data[wrong[0]]
        raise InputError(f"{path}: index {index} has the value {value}: expected finite numbers")
    return rows
