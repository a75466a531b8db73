"""Provide `Graph`: the location and meaning of edges."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.comm.agreement import agreement
from ripieno.errors import InputError
from ripieno.files.sources import EmptyFile, File, describe_paths, expand_keyed, is_url, open_nonempty, size_bytes
from ripieno.graph.edge_files import EdgeFile, open_edges
from ripieno.graph.edges import Edges, with_both_directions
from ripieno.graph.layout import End
from ripieno.graph.memory import EdgesInMemory, checked, in_memory, named_in_memory
from ripieno.graph.owners import VertexPartitioner, renamed
from ripieno.graph.partitioned import PartitionedGraph
from ripieno.graph.split_edges import SplitEdges, read_edges
from ripieno.host import memory_limit_bytes
from ripieno.input import Split, share
from ripieno.input.columns import (
    TABLES,
    ArchiveColumns,
    Key,
    SparseColumns,
    TableFiles,
    TableOptions,
    paths_and_options,
    typed_keys,
)
from ripieno.input.columns.edges import EdgeText, has_names
from ripieno.input.matrix.dataset import is_path_like
from ripieno.input.partitions import splits_of
from ripieno.input.shares import even_range, file_shares
from ripieno.units import bytes_text, duration_text

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

logger = logging.getLogger("ripieno.graph")

FORMATS = ("text", "csv", "parquet", "arrow", "npy", "npz")
#: Formats by file name suffix, without compression suffixes.
SUFFIXES = (
    {".csv": "csv", ".parquet": "parquet", ".pq": "parquet", ".npy": "npy", ".npz": "npz"}
    | dict.fromkeys((".arrow", ".feather", ".ipc"), "arrow")
    | dict.fromkeys((*EdgeText.suffixes, *SparseColumns.suffixes), "text")
)
DUPLICATES = ("once", "sum")
#: Lower bound of the memory that a vertex takes on its rank: its id, and its place among the edges.
VERTEX_BYTES = 48


@dataclass(frozen=True)
class Files:
    """Files of edges, in order."""

    files: tuple[EdgeFile, ...]

    directed = None
    labels = None
    multiple = False

    @property
    def text(self) -> str:
        """A readable description. The number of edges is unknown until the files are read."""
        size = bytes_text(sum(file.size_bytes for file in self.files))
        return f"{describe_paths([file.path for file in self.files])}, {size}"

    @property
    def weighted(self) -> bool:
        """Whether edges have weights."""
        return self.files[0].weighted

    @property
    def vertex_count(self) -> int | None:
        """The row count of the largest matrix, if there is one."""
        return max(
            (file.source.shape[0] for file in self.files if isinstance(file.source, SparseColumns)), default=None
        )

    def read_share(self, rank: int, world_size: int) -> Edges:
        """Return the edges in this rank's share of the bytes of all files."""
        start_s = time.perf_counter()
        sizes = [file.size_bytes for file in self.files]
        units = [file.source.size for file in self.files]
        parts = [self.files[at].read(*range) for at, *range in file_shares(sizes, units, rank, world_size)]
        edges, took = Edges.joined(parts, weighted=self.weighted), duration_text(time.perf_counter() - start_s)
        logger.info("rank %d of %d has read %d edges of %d files in %s", rank, world_size, len(edges), len(parts), took)
        return edges


class Graph:
    """Edges from files or memory, with their interpretation.

    Parameters
    ----------
    source : path, glob, folder, list of paths, splits, array, tuple, frame, sparse matrix or networkx graph
        Files: ``.csv`` with or without a header, ``.parquet``, ``.arrow`` and ``.feather``; `ripieno.input.TableFiles`
        has options for these tables. ``.npy`` of shape (m, 2); ``.npz`` with arrays src, dst and optionally weight, or
        as written by `scipy.sparse.save_npz`; ``.mtx``; ``.txt``, ``.tsv``, ``.edges``, ``.edgelist``, ``.el``,
        ``.adj``, ``.adjlist`` and names without suffix are text with a line ``source target [weight]`` per edge, like
        SNAP's files, or ``source<TAB>target,target,…``. Text may be compressed (``.gz``, ``.bz2``, ``.xz``, ``.zst``).
        Some of several files may be empty. An array has shape (m, 2); a tuple is (sources, targets) or (sources,
        targets, weights). A frame (pandas, polars, Arrow) has the same columns as a file: two, or more with names for
        source, target and weight. In a matrix, row i, column j is the edge from i to j. With splits, or a
        partition file, each rank reads the splits that `ripieno.input.assign` assigns to it.
    directed : bool, optional
        With False each edge leads both ways. If weighted edges are given in both directions, as in a symmetric matrix,
        each pair counts once, and weights that differ by direction are an error. By default a networkx graph decides;
        otherwise True.
    weighted : bool, optional
        True: edges have weights, in the third column or in a column named weight. False: weights are ignored. By
        default weights are used if a name marks them; a third column without a name is an error. In text, the weight
        may be an attribute that networkx writes, and fields behind it are skipped, such as the times of KONECT.
    vertex_count : int, optional
        Vertices 0 … vertex_count - 1 exist, also without edges. By default a vertex exists if it has an edge or a line
        in an adjacency list, or if the matrix or networkx graph contains it.
    format : {"text", "csv", "parquet", "arrow", "npy", "npz"}, optional
        Format of the files; by default their names determine it.
    duplicates : {"once", "sum"}, optional
        Whether edges with equal ends count as one, as in `networkx.DiGraph`, or their weights are summed, as in
        `networkx.MultiDiGraph` and SciPy. The default is "sum" with weights and for multigraphs, otherwise "once".

    Raises
    ------
    InputError
        No file matches, a file is missing or empty, or an argument is wrong. The workers read the rows, and raise
        errors about them.

    Notes
    -----
    Ids are integers from 0 to 2^62 - 1, in any order, with any gaps. The vertices of a networkx graph are numbered in
    the order of its nodes; `labels` has the nodes. Tables, frames and arrays may have strings as ids. The
    process that creates the graph then reads all files and numbers the vertices by their names, ascending; `labels` has
    the names. It needs 24 bytes for each edge; number larger graphs before.
    """

    def __init__(
        self,
        source: Any,
        *,
        directed: bool | None = None,
        weighted: bool | None = None,
        vertex_count: int | None = None,
        duplicates: str | None = None,
        format: str | None = None,
    ) -> None:
        if vertex_count is not None and (not isinstance(vertex_count, Integral) or vertex_count < 1):
            raise InputError(f"vertex_count={vertex_count!r}: expected a whole number >= 1")
        in_files = is_path_like(source) or isinstance(source, TableFiles)
        # With a format, JSON is a file of edges.
        splits = None if in_files and format is not None else splits_of(source)
        self.source: Files | EdgesInMemory | SplitEdges
        if splits is not None:
            if format is not None:
                raise InputError(f"format={format!r}: splits have formats of their own: expected None")
            options = {"directed": directed, "vertex_count": vertex_count, "duplicates": duplicates}
            self.source = SplitEdges(tuple(splits), {**options, "weighted": weighted})
        elif in_files:
            self.source = _open_files(source, weighted, format)
        else:
            self.source = in_memory(source, weighted)
        stated = self.source.directed
        self.directed: bool = directed if directed is not None else stated if stated is not None else True
        self.weighted: bool = self.source.weighted
        given: dict[str, Any] = {"directed": directed, "weighted": weighted, "vertex_count": vertex_count}
        given |= {"duplicates": duplicates, "format": format}
        #: The arguments that open the same files, for reports; None if the edges are not in files.
        self.arguments: Mapping[str, Any] | None = None
        if in_files:
            self.arguments = {"source": source} | {name: each for name, each in given.items() if each is not None}
        known_count = self.source.vertex_count
        if known_count is not None and vertex_count is not None and vertex_count < known_count:
            raise InputError(f"vertex_count={vertex_count}, but the graph has {known_count} vertices")
        if self.source.labels is not None and vertex_count not in (None, known_count):
            raise InputError(f"vertex_count={vertex_count}, but the {known_count} vertices have names: expected None")
        self.vertex_count: int | None = known_count if vertex_count is None else int(vertex_count)
        self.duplicates: str = _duplicates(duplicates, self.weighted, self.source.multiple)

    def __repr__(self) -> str:
        kind = f"{'directed' if self.directed else 'undirected'}, {'weighted' if self.weighted else 'unweighted'}"
        vertices = "" if self.vertex_count is None else f", {self.vertex_count} vertices"
        return f"<Graph of {self.source.text}, {kind}{vertices}>"

    @staticmethod
    def from_edges(
        sources: Any,
        targets: Any,
        weights: Any = None,
        *,
        comm: Communicator,
        directed: bool = True,
        vertices: Any = (),
        duplicates: str | None = None,
        partitioner: VertexPartitioner = "hash",
        by: End = "source",
        home: VertexPartitioner | None = None,
    ) -> PartitionedGraph:
        """Create a graph on the ranks of `comm` from their edges. Every rank calls it with its own edges.

        Parameters
        ----------
        sources, targets : (m,) integers
            Vertex ids, from 0 to 2^62 - 1. Exactly one rank passes each edge.
        weights : (m,) float64, optional
            On all ranks that have edges, or on none.
        comm : Communicator
        directed : bool
            With False each edge leads both ways, as for `Graph`.
        vertices : (k,) integers, optional
            Vertices that exist even without an edge.
        duplicates : {"once", "sum"}, optional
            Whether edges with equal ends count as one, or stay separate, each with its own message. The default is
            "sum" with weights, otherwise "once".
        partitioner : {"hash", "blocks"} or callable
            The owner of each vertex. "hash": pseudo-random. "blocks": ranks own consecutive ranges of ids of equal
            length. A callable receives (m,) int64 ids and returns (m,) ranks; on every rank, equal ids must map to
            equal ranks.
        by : {"source", "target"}
            The end of an edge that determines its location: the edge lies with the owner of this end.
        home
            Deprecated name of `partitioner`.

        Returns
        -------
        PartitionedGraph

        Raises
        ------
        InputError
            On every rank: ids or weights of any rank are wrong, there is no vertex, or a callable `partitioner` returns
            ranks out of range.
        """
        partitioner = renamed(partitioner, home)
        with agreement(comm, f"a graph of edges, directed={bool(directed)}, duplicates={duplicates}"):
            edges = checked(sources, targets, weights, where=f"edges of rank {comm.rank}")
            lone = checked(vertices, vertices, where=f"vertices of rank {comm.rank}").sources
        weighted = comm.allreduce(weights is not None and len(edges) > 0, op="or")
        with agreement(comm):
            if weighted and weights is None and len(edges):
                raise InputError(f"edges of rank {comm.rank} have no weights, but edges of other ranks have weights")
            once = _duplicates(duplicates, weighted, False) == "once"
        weights = None if not weighted else edges.weights if len(edges) else np.empty(0)
        edges = Edges(edges.sources, edges.targets, weights, lone)
        edges = with_both_directions(comm, edges, directed=directed)
        return PartitionedGraph(comm, edges, partitioner=partitioner, by=by, once=once)

    def partition(
        self,
        comm: Communicator,
        *,
        partitioner: VertexPartitioner = "hash",
        by: End = "source",
        home: VertexPartitioner | None = None,
    ) -> PartitionedGraph:
        """Distribute the graph over the ranks of `comm`: each rank reads a share and sends edges to their owners.

        Parameters
        ----------
        comm : Communicator
            Every rank calls it, with an equal graph.
        partitioner, by, home
            As for `from_edges`.

        Returns
        -------
        PartitionedGraph

        Raises
        ------
        InputError
            On every rank: the edges of a rank cannot be read, or a callable `partitioner` returns ranks out of range.
        """
        partitioner = renamed(partitioner, home)
        if isinstance(self.source, SplitEdges):
            return self._partition_splits(comm, self.source, partitioner, by)
        with agreement(comm, f"a graph's partition, directed={self.directed}, duplicates={self.duplicates}"):
            edges = self.read_share(comm.rank, comm.world_size)
        edges = with_both_directions(comm, edges, directed=self.directed)
        once = self.duplicates == "once"
        return PartitionedGraph(comm, edges, partitioner=partitioner, by=by, once=once, labels=self.labels)

    def _partition_splits(
        self, comm: Communicator, source: SplitEdges, partitioner: VertexPartitioner, by: End
    ) -> PartitionedGraph:
        splits = share(source.splits, comm)
        with agreement(comm):
            graph = self.of_splits(splits)
            edges = Edges(*np.empty((2, 0), np.int64)) if graph is None else graph.source.read_share(0, 1)
            edges = self._with_vertices(edges, comm.rank, comm.world_size)
        return Graph.from_edges(
            edges.sources,
            edges.targets,
            edges.weights,
            comm=comm,
            directed=self.directed,
            vertices=edges.lone,
            duplicates=source.options["duplicates"],
            partitioner=partitioner,
            by=by,
        )

    def of_splits(self, splits: Sequence[Split]) -> Graph | None:
        """Return a graph of the edges in some splits of this graph, with the same options; None without edges.

        Raises
        ------
        InputError
            A split cannot be read, or does not consist of edges.
        """
        assert isinstance(self.source, SplitEdges), "the graph consists of splits"
        edges = read_edges(splits, self.source.options["weighted"])
        return None if edges is None else Graph(edges, **self.source.options)

    @property
    def labels(self) -> NDArray[Any] | None:
        """The user's names of vertices 0, 1, …, or None if the ids are the user's own."""
        return self.source.labels

    @property
    def names(self) -> list[str]:
        """Paths of the files."""
        return [file.path for file in self.source.files] if isinstance(self.source, Files) else []

    def read_share(self, rank: int, world_size: int) -> Edges:
        """Return a rank's part of the files or arrays, before edges are distributed.

        Raises
        ------
        InputError
            A line or row is not an edge. The message names file and line.
        """
        return self._with_vertices(self.source.read_share(rank, world_size), rank, world_size)

    def _with_vertices(self, edges: Edges, rank: int, world_size: int) -> Edges:
        """Return edges with a rank's part of the vertices 0 … vertex_count - 1, after a check of their ends."""
        if self.vertex_count is None:
            return edges
        ids = [*edges.sources[edges.sources >= self.vertex_count], *edges.targets[edges.targets >= self.vertex_count]]
        if ids:
            raise InputError(f"vertex {ids[0]} in an edge, but vertex_count={self.vertex_count}")
        first, end = even_range(self.vertex_count, rank, world_size)
        max_count = memory_limit_bytes() // VERTEX_BYTES
        if end - first > max_count:
            raise InputError(
                f"vertex_count={self.vertex_count}: expected at most {max_count * world_size} vertices, because each "
                f"takes {VERTEX_BYTES} bytes at least in the memory of its rank"
            )
        lone = np.concatenate([edges.lone, np.arange(first, end)])
        return Edges(edges.sources, edges.targets, edges.weights, lone)


def open_graph(source: Any) -> Graph:
    """Return a `Graph` of edges in any supported form. A `Graph` is returned unchanged."""
    return source if isinstance(source, Graph) else Graph(source)


def _duplicates(given: str | None, weighted: bool, multiple: bool) -> str:
    """Return the handling of edges with equal ends, "once" or "sum". The default depends on the edges."""
    duplicates = given or ("sum" if weighted or multiple else "once")
    if duplicates not in DUPLICATES:
        raise InputError(f"duplicates={duplicates!r}: expected one of {', '.join(DUPLICATES)}")
    if weighted and duplicates == "once":
        raise InputError("duplicates='once' with weights: the weight to keep is undefined; expected 'sum'")
    return duplicates


def _open_files(source: Any, weighted: bool | None, format: str | None) -> Files | EdgesInMemory:
    if format is not None and format not in FORMATS:
        raise InputError(f"format={format!r}: expected one of {', '.join(FORMATS)}")
    source, options = paths_and_options(source)
    items: Sequence[Any] = source if isinstance(source, (list, tuple)) else [source]
    found = typed_keys([each for item in items for each in expand_keyed(item)])
    files = open_nonempty(found, lambda each: _open_file(*each, options, weighted, format))
    for file in files[1:]:
        if file.weighted != files[0].weighted:
            having, lacking = (file, files[0]) if file.weighted else (files[0], file)
            raise InputError(
                f"{having.path} has weights but {lacking.path} has none: pass weighted=False, or correct one"
            )
    # Text states no types; its first file decides.
    if any(file.has_named_vertices() for file in files if file is files[0] or file.source.counted):
        tables: tuple[type, ...] = (*TABLES.values(), ArchiveColumns)
        numbered = next((file for file in files if not isinstance(file.source, tables)), None)
        if numbered is not None:
            raise InputError(f"{numbered.path} has numbers of vertices, other files have names: expected the same kind")
        return named_in_memory([file.read_named() for file in files])
    return Files(tuple(files))


def _open_file(
    path: str, keys: tuple[Key, ...], options: TableOptions, weighted: bool | None, format: str | None
) -> EdgeFile:
    if is_url(path):
        raise InputError(f"{path}: each worker reads graphs by a local path: copy it first")
    if size_bytes(path) == 0:
        raise EmptyFile(f"{path} is empty")
    kind = format or _format_of(path)
    is_table = options != TableOptions() or bool(keys)
    if format is None and File(path, 0).inner_suffix == ".tsv" and (is_table or has_names(path)):
        kind = "csv"
    return open_edges(path, kind, weighted, options, keys)


def _format_of(path: str) -> str:
    """Return the format indicated by the name of a file."""
    end = File(path, 0).inner_suffix
    if end not in SUFFIXES:
        raise InputError(
            f"{path}: unknown kind of graph file, {end}: expected {', '.join(filter(None, SUFFIXES))}; or "
            f"pass format={', '.join(FORMATS)}"
        )
    return SUFFIXES[end]
