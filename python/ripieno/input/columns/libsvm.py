"""Provide libsvm text: lines "label index:value …". Indices are not shifted."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from ripieno.errors import InputError
from ripieno.files.sources import File, input_errors, opened, size_bytes, unpacked_bytes
from ripieno.input import lines
from ripieno.input.columns.source import ColumnSource, TableOptions

WINDOW_BYTES = 32 << 20
#: An upper bound. The actual number of columns is known when all ranks have read their rows.
COLUMN_LIMIT = 2**31 - 1
LISTS = pa.schema([
    ("label", pa.float64()), ("indices", pa.large_list(pa.int32())), ("values", pa.large_list(pa.float64()))
])  # fmt: skip


@dataclass(frozen=True)
class LibsvmText(ColumnSource):
    """Rows as a label, and lists of the indices and values of their entries."""

    compression: str | None = None

    suffixes = (".libsvm", ".svmlight", ".svm")
    counted = False

    @classmethod
    def open(cls, path: str, options: TableOptions) -> Self:
        """Determine the length of the file."""
        file = File(path, size_bytes(path))
        return cls(path, LISTS, unpacked_bytes(file), compression=file.compression)

    def _batches(self, start: int, stop: int, schema: pa.Schema, hint: str) -> Iterator[pa.Table]:
        with opened(self.path, self.compression) as file, input_errors(self.path):
            for _, text in lines.blocks(self.path, file, start, stop, WINDOW_BYTES):
                if text.strip():
                    yield self._parsed(text).select(schema.names)

    def _parsed(self, text: bytes) -> pa.Table:
        from sklearn.datasets import load_svmlight_file

        try:
            matrix, labels = load_svmlight_file(io.BytesIO(text), n_features=COLUMN_LIMIT, zero_based=True)
        except OverflowError as error:
            raise InputError(f"{self.path}: an index is above {COLUMN_LIMIT - 1}, the largest allowed index") from error
        except ValueError as error:
            raise InputError(f"{self.path}: {error}: expected lines of 'label index:value …'") from error
        wrong = np.flatnonzero(~np.isfinite(matrix.data))
        if len(wrong):
            index, value = matrix.indices[wrong[0]], matrix.data[wrong[0]]
            raise InputError(f"{self.path}: index {index} has the value {value}: expected finite numbers")
        if np.isnan(labels).any():
            raise InputError(f"{self.path}: the label of a line is nan: expected numbers")
        offsets = pa.array(matrix.indptr, pa.int64())
        lists = [
            pa.LargeListArray.from_arrays(offsets, pa.array(part, kind.value_type))
            for part, kind in zip((matrix.indices, matrix.data), LISTS.types[1:], strict=True)
        ]
        return pa.table([labels, *lists], schema=LISTS)
