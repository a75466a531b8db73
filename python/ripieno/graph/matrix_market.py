"""Read MatrixMarket files of edges: an entry in row i, column j is the edge from vertex i - 1 to vertex j - 1.

SciPy parses them. The banner and the line of sizes determine the entries, whatever the name of the file is.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from typing import IO, Any

from ripieno.errors import InputError
from ripieno.files.sources import EmptyFile, opened
from ripieno.graph.edges import Edges
from ripieno.graph.memory import matrix_edges
from ripieno.input.shares import FileShare

BANNER = b"%%MatrixMarket"
FIELDS = ("real", "integer", "unsigned-integer", "pattern")
#: Size of the shortest entry, "1 1" and a line end.
ENTRY_BYTES = 4


@dataclass(frozen=True)
class MatrixMarketEdges:
    """A sparse square matrix. A rank with a share of it reads the whole file and keeps its share."""

    path: str
    weighted: bool
    vertex_count: int

    @classmethod
    def open(cls, path: str, file: IO[bytes], weighted: bool | None) -> MatrixMarketEdges:
        """Read the banner and the line of sizes.

        Raises
        ------
        InputError
            These lines are invalid; the matrix is dense, complex or not square; or requested weights are missing.
        """
        from scipy.io import mminfo

        try:
            rows, columns, entries, layout, field, _ = mminfo(file)
        except (ValueError, OverflowError) as error:
            raise InputError(f"{path} is no MatrixMarket file: {error}") from error
        if layout != "coordinate" or field not in FIELDS:
            raise InputError(
                f"{path}: a MatrixMarket file of {layout} {field}: expected coordinate, {', '.join(FIELDS)}"
            )
        if rows != columns:
            raise InputError(f"{path} has shape {(rows, columns)}: expected a square matrix, a row for each vertex")
        if not entries:
            raise EmptyFile(f"{path} is empty: it has no entry")
        if weighted and field == "pattern":
            raise InputError(f"{path} has no weights: a MatrixMarket file of pattern; expected {', '.join(FIELDS[:3])}")
        return cls(path, weighted is not False and field != "pattern", rows)

    @property
    def size_bytes(self) -> int:
        """The size of the file in bytes."""
        return os.path.getsize(self.path)

    def read(self, share: FileShare) -> Edges:
        """Return the edges of a share, including entries that symmetry implies."""
        edges = matrix_edges(self._matrix(), weighted=self.weighted, where=self.path)
        mine = slice(*share.of(len(edges)))
        return Edges(edges.sources[mine], edges.targets[mine], None if edges.weights is None else edges.weights[mine])

    def _matrix(self) -> Any:
        from scipy.io import mminfo, mmread

        with opened(self.path, "gzip" if self.path.lower().endswith(".gz") else None) as file:
            text = file.read()
        try:
            entries = mminfo(io.BytesIO(text))[2]
            # SciPy allocates memory for as many entries as the line of sizes states.
            if entries * ENTRY_BYTES > len(text) + 1:
                raise ValueError(f"{entries:,} entries in {len(text):,} bytes")
            return mmread(io.BytesIO(text))
        except (ValueError, OverflowError) as error:
            raise InputError(f"{self.path} is damaged: {' '.join(str(error).split())}") from error


def is_matrix_market(begin: bytes) -> bool:
    """Return whether a file with this beginning is a MatrixMarket file."""
    return begin.lower() == BANNER.lower()
