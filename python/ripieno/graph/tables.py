"""Read edges from arrays of edges in .npy and .npz files, and from sparse matrices in .npz and MatrixMarket files."""

from __future__ import annotations

from dataclasses import dataclass

from ripieno.errors import InputError
from ripieno.files.matrix_market import FIELDS
from ripieno.files.npy import member_names, read_member
from ripieno.files.sources import EmptyFile, size_bytes
from ripieno.graph.edge_files import EdgeColumns, choose_columns
from ripieno.graph.edges import Edges
from ripieno.graph.memory import checked, matrix_edges
from ripieno.input.formats.arrays import StoredArray
from ripieno.input.formats.sparse import SparseFile, opened_archive
from ripieno.input.shares import FileShare


@dataclass(frozen=True)
class NpyEdges:
    """An .npy file of shape (m, 2), mapped into memory."""

    array: StoredArray
    weighted: bool = False

    @classmethod
    def open(cls, path: str, weighted: bool | None) -> NpyEdges:
        """Read the header."""
        array = StoredArray.npy(path)
        if len(array.shape) != 2 or array.shape[1] != 2 or array.stored.hasobject:
            raise InputError(f"{path}: an array of shape {array.shape} and type {array.stored}, expected (edges, 2)")
        if not array.shape[0]:
            raise EmptyFile(f"{path} is empty")
        if weighted:
            raise InputError(f"{path} has no weights: expected them in an .npz file of arrays src, dst and weight")
        return cls(array)

    @property
    def path(self) -> str:
        """The path of the file."""
        return self.array.path

    @property
    def size_bytes(self) -> int:
        """The size of the file in bytes."""
        return size_bytes(self.path)

    def read(self, share: FileShare) -> Edges:
        """Return the edges of a share."""
        start, stop = share.of(self.array.shape[0])
        pairs = self.array.rows(start, stop)
        return checked(pairs[:, 0], pairs[:, 1], where=self.path, first=start)


@dataclass(frozen=True)
class NpzEdges:
    """An .npz archive with arrays src, dst and optionally weight.

    Archives are compressed: a rank with a share reads the whole file and keeps its share.
    """

    path: str
    names: tuple[str, ...]
    columns: EdgeColumns

    @classmethod
    def open(cls, path: str, weighted: bool | None) -> NpzEdges | MatrixEdges:
        """Read the names of the arrays. A matrix that SciPy has saved is opened as such."""
        matrix = SparseFile.npz(path)
        if matrix is not None:
            return MatrixEdges.of(matrix, weighted)
        with opened_archive(path) as archive:
            names = tuple(member_names(archive))
        return cls(path, names, choose_columns(path, names, weighted))

    @property
    def weighted(self) -> bool:
        """Whether edges have weights."""
        return self.columns.weight is not None

    @property
    def size_bytes(self) -> int:
        """The size of the file in bytes."""
        return size_bytes(self.path)

    def read(self, share: FileShare) -> Edges:
        """Return the edges of a share."""
        with opened_archive(self.path) as archive:
            chosen = [read_member(archive, self.names[at]) for at in self.columns if at is not None]
            edges = checked(*chosen, where=self.path)
        return edges.part(slice(*share.of(len(edges))))


@dataclass(frozen=True)
class MatrixEdges:
    """A sparse square matrix: an entry in row i, column j, counted from 0, is the edge from vertex i to vertex j.

    A rank with a share of it reads the whole file and keeps its share.
    """

    matrix: SparseFile
    weighted: bool

    @classmethod
    def open(cls, path: str, weighted: bool | None) -> MatrixEdges:
        """Read the header of a MatrixMarket file."""
        matrix = SparseFile.market(path)
        if matrix is None:
            raise InputError(f"{path}: a dense MatrixMarket file, of layout array: expected coordinate")
        return cls.of(matrix, weighted)

    @classmethod
    def of(cls, matrix: SparseFile, weighted: bool | None) -> MatrixEdges:
        """Check that the matrix is square, and has values if weights are requested."""
        path, shape = matrix.path, matrix.shape
        if len(shape) != 2 or shape[0] != shape[1]:
            raise InputError(f"{path} has shape {shape}: expected a square matrix, a row for each vertex")
        if weighted and not matrix.has_values:
            raise InputError(f"{path} has no weights: a MatrixMarket file of pattern; expected {', '.join(FIELDS[:3])}")
        return cls(matrix, weighted is not False and matrix.has_values)

    @property
    def path(self) -> str:
        """The path of the file."""
        return self.matrix.path

    @property
    def vertex_count(self) -> int:
        """The number of rows."""
        return self.matrix.shape[0]

    @property
    def size_bytes(self) -> int:
        """The size of the file in bytes."""
        return size_bytes(self.path)

    def read(self, share: FileShare) -> Edges:
        """Return the edges of a share, including entries that symmetry implies."""
        edges = matrix_edges(self.matrix.read(), weighted=self.weighted, where=self.path)
        return edges.part(slice(*share.of(len(edges))))
