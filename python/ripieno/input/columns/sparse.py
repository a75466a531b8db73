"""Provide sparse matrices: MatrixMarket of layout coordinate, and results of scipy.sparse.save_npz.

The entries are columns of rows, columns and weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

from ripieno.errors import InputError
from ripieno.files import matrix_market
from ripieno.files.frames import arrow_array, arrow_type_of
from ripieno.files.npy import (
    check_sparse_format,
    member_header,
    member_names,
    opened_archive,
    read_entries,
    read_sparse,
    sparse_shape,
)
from ripieno.files.sources import File, size_bytes, suffix
from ripieno.input.columns.source import TableOptions, TableSplits, WholeColumns

#: The end of errors about archives.
FAULT = "is not a sparse matrix of SciPy"


@dataclass(frozen=True)
class SparseColumns(WholeColumns):
    """Entries of a sparse matrix: `row` and `col` from 0, and `weight` unless the header states that all are 1."""

    shape: tuple[int, ...] = ()
    #: The number of entries in the file, without those that symmetry implies.
    count: int = 0

    suffixes = (matrix_market.SUFFIX,)

    @classmethod
    def open(cls, path: str, options: TableOptions) -> Self:
        """Read the header of a MatrixMarket file under any name, or the shape in an archive."""
        found = cls.find(path)
        if found is None:
            raise InputError(f"{path}: a dense MatrixMarket file, of layout array: expected coordinate")
        return found

    @classmethod
    def find(cls, path: str) -> Self | None:
        """Return the matrix, or None if a file has a dense matrix or other arrays."""
        has_values = True
        if File(path, 0).inner_suffix == ".npz":
            with opened_archive(path) as archive:
                names = set(member_names(archive))
            if not {"format", "shape"} <= names:
                return None
            with opened_archive(path, FAULT) as archive:
                check_sparse_format(archive)
                shape = sparse_shape(archive)
                (count, *_), dtype = member_header(archive, "data")
        else:
            info = matrix_market.read_info(path)
            if info.layout != "coordinate":
                return None
            shape, count, dtype = info.shape, info.stored_count, info.dtype
            has_values = info.field != "pattern"
        ends = [pa.field("row", pa.int64()), pa.field("col", pa.int64())]
        own = pa.schema([*ends, pa.field("weight", arrow_type_of(dtype))] if has_values else ends)
        return cls(path, own, size_bytes(path), shape=shape, count=count)

    def matrix(self) -> Any:
        """Return the matrix, in a format of SciPy.

        Raises
        ------
        InputError
            The file is damaged.
        """
        if suffix(self.path) != ".npz":
            return matrix_market.read_matrix(self.path)
        with opened_archive(self.path, FAULT) as archive:
            return read_sparse(archive)

    def _count(self, names: Sequence[str]) -> int:
        return self.count

    def _table(self, names: Sequence[str], start: int, stop: int) -> pa.Table:
        if suffix(self.path) == ".npz":
            with opened_archive(self.path, FAULT) as archive:
                rows, columns, values = read_entries(archive, start, stop)
        else:
            entries = matrix_market.read_matrix(self.path, start, stop)
            rows, columns, values = entries.row, entries.col, entries.data
        parts = (rows.astype(np.int64), columns.astype(np.int64), values)
        return pa.table([arrow_array(part) for part in parts[: len(self.own)]], schema=self.own).select(list(names))


@dataclass(frozen=True)
class MarketSplits(TableSplits):
    """Splits of MatrixMarket files, as tables of their entries."""

    name = "mtx"
    unit = "bytes"
    source = SparseColumns
    suffixes = source.suffixes
