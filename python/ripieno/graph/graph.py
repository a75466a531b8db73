"""`Graph`: where edges are and what they mean."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripieno.data.dataset import PathLike, expand, is_path_like
from ripieno.errors import InputError
from ripieno.graph.edges import Edges
from ripieno.graph.memory import InMemory, in_memory
from ripieno.graph.parts import EdgeFile, EmptyFile, divided
from ripieno.graph.tables import NpyEdges, NpzEdges, ParquetEdges
from ripieno.graph.text import TextEdges

FORMATS = {".npy": NpyEdges, ".npz": NpzEdges, ".parquet": ParquetEdges, ".pq": ParquetEdges}
DUPLICATES = ("once", "sum")


@dataclass(frozen=True)
class Files:
    """Files of edges, in order."""

    files: tuple[EdgeFile, ...]

    directed = None
    labels = None
    multiple = False

    @property
    def weighted(self) -> bool:
        """Whether edges have weights."""
        return self.files[0].weighted

    @property
    def vertex_count(self) -> int | None:
        """As many as the largest matrix has rows, if there is one."""
        counts = [file.vertex_count for file in self.files if isinstance(file, NpzEdges)]
        return max((count for count in counts if count is not None), default=None)

    def read_share(self, rank: int, world_size: int) -> Edges:
        """One rank's edges: what stands in its part of the bytes of all files."""
        parts = [file.read(part) for file, part in divided(self.files, rank, world_size)]
        return Edges.joined(parts, weighted=self.weighted)


class Graph:
    """Edges, from files or memory, and what they mean.

    Parameters
    ----------
    source : path, glob, folder, list of paths, array, tuple, sparse matrix or networkx graph
        Files: ``.csv`` with or without a header, ``.parquet``, ``.npy`` of shape (m, 2), ``.npz`` of arrays src, dst
        and perhaps weight or as `scipy.sparse.save_npz` writes it; any other file is text with a line
        ``source target [weight]`` per edge, as SNAP's, or ``source<TAB>target,target,…``. Text may be gzipped
        (``.gz``). Of several files some may be empty. An array has shape (m, 2); a tuple is (sources, targets) or
        (sources, targets, weights). In a matrix, row i, column j is the edge from i to j.
    directed : bool, optional
        With False each edge leads both ways; of weighted edges that do so already, as in a symmetric matrix, each pair
        counts once, and weights that differ by direction are an error. By default what a networkx graph says of itself,
        otherwise True.
    weighted : bool, optional
        True: edges have weights, in the third column or one named weight. False: they count alike. By default weights
        count where something says that they are some; a third column without a name is an error.
    vertex_count : int, optional
        Vertices 0 … vertex_count - 1 are there, be it without edges. By default a vertex is there if an edge says so,
        an adjacency list has a line for it, or the matrix or networkx graph has it.
    duplicates : {"once", "sum"}, optional
        Whether edges of equal ends count as one, as in `networkx.DiGraph`, or their weights add up, as in
        `networkx.MultiDiGraph` and in SciPy. By default "sum" with weights and for multigraphs, otherwise "once".

    Raises
    ------
    InputError
        Nothing matches, a file is missing or empty, or something is not as said here. What stands in the rows is read,
        and complained about, by the workers.

    Notes
    -----
    Ids are whole numbers from 0 to 2^62 - 1, in any order, with any gaps. The vertices of a networkx graph are numbered
    in the order of its nodes; `labels` has the nodes.
    """

    def __init__(
        self,
        source: Any,
        *,
        directed: bool | None = None,
        weighted: bool | None = None,
        vertex_count: int | None = None,
        duplicates: str | None = None,
    ) -> None:
        if vertex_count is not None and (not isinstance(vertex_count, Integral) or vertex_count < 1):
            raise InputError(f"vertex_count={vertex_count!r}: expected a whole number >= 1")
        self.source: Files | InMemory = (
            _open_files(source, weighted) if is_path_like(source) else in_memory(source, weighted)
        )
        said = self.source.directed
        self.directed: bool = directed if directed is not None else said if said is not None else True
        self.weighted: bool = self.source.weighted
        has = self.source.vertex_count
        if has is not None and vertex_count is not None and vertex_count < has:
            raise InputError(f"vertex_count={vertex_count}, but the graph has {has} vertices")
        self.vertex_count: int | None = has if vertex_count is None else int(vertex_count)
        self.duplicates: str = duplicates or ("sum" if self.weighted or self.source.multiple else "once")
        if self.duplicates not in DUPLICATES:
            raise InputError(f"duplicates={duplicates!r}: expected one of {', '.join(DUPLICATES)}")
        if self.weighted and self.duplicates == "once":
            raise InputError("duplicates='once' with weights: nothing says which weight counts; expected 'sum'")

    @property
    def labels(self) -> NDArray[Any] | None:
        """What the user calls vertex 0, 1, …; None where ids are what the user gave."""
        return self.source.labels

    @property
    def names(self) -> list[str]:
        """Paths of the files."""
        return [file.path for file in self.source.files] if isinstance(self.source, Files) else []

    def read_share(self, rank: int, world_size: int) -> Edges:
        """The edges that a rank reads, before any are dealt: its part of the files or arrays.

        Raises
        ------
        InputError
            A line or row is no edge; names file and line.
        """
        edges = self.source.read_share(rank, world_size)
        if self.vertex_count is None:
            return edges
        ids = [*edges.sources[edges.sources >= self.vertex_count], *edges.targets[edges.targets >= self.vertex_count]]
        if ids:
            raise InputError(f"vertex {ids[0]} in an edge, but vertex_count={self.vertex_count}")
        first, end = (self.vertex_count * i // world_size for i in (rank, rank + 1))
        lone = np.concatenate([edges.lone, np.arange(first, end)])
        return Edges(edges.sources, edges.targets, edges.weights, lone)


def open_graph(source: Any) -> Graph:
    """A graph of whatever edges are given as; a `Graph` is one already."""
    return source if isinstance(source, Graph) else Graph(source)


def _open_files(source: PathLike | Sequence[PathLike], weighted: bool | None) -> Files:
    items = source if isinstance(source, (list, tuple)) else [source]
    paths = [path for item in items for path in expand(os.fspath(item))]
    files, empty = [], []
    for path in paths:
        try:
            files.append(_open_file(path, weighted))
        except EmptyFile as error:
            empty.append(error)
    if not files:
        raise empty[0]
    for file in files[1:]:
        if file.weighted != files[0].weighted:
            having, lacking = (file, files[0]) if file.weighted else (files[0], file)
            raise InputError(f"{having.path} has weights but {lacking.path} has none: say weighted=False, or mend one")
    return Files(tuple(files))


def _open_file(path: str, weighted: bool | None) -> EdgeFile:
    try:
        if os.path.getsize(path) == 0:
            raise EmptyFile(f"{path} is empty")
        return FORMATS.get(Path(path).suffix.lower(), TextEdges).open(path, weighted)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
