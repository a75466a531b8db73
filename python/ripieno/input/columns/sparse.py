"""Provide sparse matrices: MatrixMarket of layout coordinate, and results of scipy.sparse.save_npz.

A file is read as a whole. Its entries are columns of rows, columns and weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

from ripieno.errors import InputError
from ripieno.files import matrix_market
from ripieno.files.npy import check_sparse_format, member_names, opened_archive, read_member, read_sparse
from ripieno.files.sources import File, size_bytes, suffix
from ripieno.input.columns.source import TableOptions, TableSplits, WholeColumns


@dataclass(frozen=True)
class SparseColumns(WholeColumns):
    """Entries of a sparse matrix: `row` and `col` from 0, and `weight` unless the header states that all are 1."""

    shape: tuple[int, ...] = ()

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
                if not {"format", "shape"} <= set(member_names(archive)):
                    return None
                check_sparse_format(archive)
                shape = tuple(read_member(archive, "shape").tolist())
        else:
            info = matrix_market.read_info(path)
            if info.layout != "coordinate":
                return None
            shape, has_values = info.shape, info.field != "pattern"
        ends = [pa.field("row", pa.int64()), pa.field("col", pa.int64())]
        own = pa.schema([*ends, pa.field("weight", pa.float64())] if has_values else ends)
        return cls(path, own, size_bytes(path), shape=shape)

    def matrix(self) -> Any:
        """Return the matrix, in a format of SciPy.

        Raises
        ------
        InputError
            The file is damaged.
        """
        if suffix(self.path) != ".npz":
            return matrix_market.read_matrix(self.path)
        with opened_archive(self.path, "is no sparse matrix of SciPy") as archive:
            return read_sparse(archive)

    def _table(self, names: Sequence[str]) -> pa.Table:
        entries = self.matrix().tocoo()
        columns = (entries.row.astype(np.int64), entries.col.astype(np.int64), entries.data.astype(np.float64))
        return pa.table(columns[: len(self.own)], schema=self.own).select(list(names))


@dataclass(frozen=True)
class MarketSplits(TableSplits):
    """Splits of MatrixMarket files, as tables of their entries."""

    name = "mtx"
    unit = "bytes"
    source = SparseColumns
    suffixes = source.suffixes
