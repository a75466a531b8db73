"""Read dense MatrixMarket files as rows.

The files are text in column-major order, so each read of some rows parses the whole file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.files.matrix_market import read_info, read_matrix


@dataclass(frozen=True)
class MarketFile:
    """A dense matrix in a MatrixMarket file of layout array."""

    path: str
    size: int
    column_count: int

    counted: ClassVar[bool] = True
    column_names: ClassVar[None] = None
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.float64)

    @classmethod
    def open(cls, path: str) -> Self:
        """Open a file: read its banner and its line of sizes."""
        info = read_info(path)
        if info.layout != "array":
            raise InputError(f"{path} is a sparse matrix, which is not read here: expected dense rows")
        return cls(path, *info.shape)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows `start .. stop`."""
        return np.require(read_matrix(self.path)[start:stop], np.float64, ["C"])

    def describe(self, start: int, row: int) -> str:
        """Return the position of a row as text."""
        return f"{self.path}, row {start + row}"
