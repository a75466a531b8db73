"""Read MatrixMarket files of edges: an entry in row i, column j is the edge from vertex i - 1 to vertex j - 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ripieno.errors import InputError
from ripieno.files.matrix_market import FIELDS, read_info, read_matrix
from ripieno.files.sources import size_bytes
from ripieno.graph.edges import Edges
from ripieno.graph.memory import matrix_edges
from ripieno.input.shares import FileShare


@dataclass(frozen=True)
class MatrixMarketEdges:
    """A sparse square matrix. A rank with a share of it reads the whole file and keeps its share."""

    path: str
    weighted: bool
    vertex_count: int

    @classmethod
    def open(cls, path: str, weighted: bool | None) -> Self:
        """Read the banner and the line of sizes.

        Raises
        ------
        InputError
            These lines are invalid; the matrix is dense, complex or not square; or requested weights are missing.
        """
        info = read_info(path)
        if info.layout != "coordinate":
            raise InputError(f"{path}: a MatrixMarket file of {info.layout} {info.field}: expected coordinate")
        if info.shape[0] != info.shape[1]:
            raise InputError(f"{path} has shape {info.shape}: expected a square matrix, a row for each vertex")
        if weighted and info.field == "pattern":
            raise InputError(f"{path} has no weights: a MatrixMarket file of pattern; expected {', '.join(FIELDS[:3])}")
        return cls(path, weighted is not False and info.field != "pattern", info.shape[0])

    @property
    def size_bytes(self) -> int:
        """The size of the file in bytes."""
        return size_bytes(self.path)

    def read(self, share: FileShare) -> Edges:
        """Return the edges of a share, including entries that symmetry implies."""
        edges = matrix_edges(read_matrix(self.path), weighted=self.weighted, where=self.path)
        return edges.part(slice(*share.of(len(edges))))
