"""Read edges from files of arrays: .npy, and .npz (columns of edges, or a SciPy matrix)."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ripieno.errors import InputError
from ripieno.files.npy import BROKEN_ARCHIVE, check_sparse_format, member_names, read_member, read_sparse
from ripieno.files.sources import EmptyFile, size_bytes
from ripieno.graph.edge_files import EdgeColumns, choose_columns
from ripieno.graph.edges import Edges
from ripieno.graph.memory import checked, matrix_edges
from ripieno.input.formats.arrays import StoredArray
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
    """An .npz archive with arrays src, dst and optionally weight, or a sparse matrix saved by SciPy.

    Archives are compressed: a rank with a share reads the whole file and keeps its share.
    """

    path: str
    names: tuple[str, ...]
    columns: EdgeColumns | None
    weighted: bool

    @classmethod
    def open(cls, path: str, weighted: bool | None) -> NpzEdges:
        """Read the names of the arrays."""
        with _archive(path) as archive:
            names = tuple(member_names(archive))
            if "format" in names:
                check_sparse_format(archive)
        if "format" in names:
            return cls(path, names, None, weighted is not False)
        columns = choose_columns(path, names, weighted)
        return cls(path, names, columns, columns.weight is not None)

    @property
    def size_bytes(self) -> int:
        """The size of the file in bytes."""
        return size_bytes(self.path)

    @property
    def vertex_count(self) -> int | None:
        """The row count of the matrix, if the archive is one."""
        if self.columns is not None:
            return None
        with _archive(self.path) as archive:
            return int(read_member(archive, "shape")[0])

    def read(self, share: FileShare) -> Edges:
        """Return the edges of a share."""
        with _archive(self.path) as archive:
            if self.columns is None:
                edges = matrix_edges(read_sparse(archive), weighted=self.weighted, where=self.path)
            else:
                chosen = [read_member(archive, self.names[at]) for at in self.columns if at is not None]
                edges = checked(*chosen, where=self.path)
        return edges.part(slice(*share.of(len(edges))))


@contextmanager
def _archive(path: str) -> Iterator[zipfile.ZipFile]:
    """Open an archive. Errors in its contents name the file."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except InputError:
        raise
    except BROKEN_ARCHIVE as error:
        raise InputError(f"{path} is not a readable .npz file: {error}") from error
