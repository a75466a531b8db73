"""Read edges from memory: arrays, SciPy sparse matrices, networkx graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.files.frames import NO_NUMBERS, arrow_array, frame_as_table, is_text, without_index
from ripieno.graph.edge_files import LARGEST_ID, choose_columns, table_edges
from ripieno.graph.edges import Edges
from ripieno.graph.names import named_edges
from ripieno.input.shares import even_range
from ripieno.wire.arrays import check_complete


@dataclass(frozen=True)
class EdgesInMemory:
    """Edges as arrays that local workers share. Each worker takes a contiguous part.

    Parameters
    ----------
    edges : Edges
    directed : bool or None
        The direction that a graph object states.
    vertex_count : int or None
        Vertices 0 … vertex_count - 1 exist, with or without edges.
    labels : ndarray or None
        The user's name of each vertex.
    multiple
        Whether edges with equal ends are separate edges.
    """

    edges: Edges
    directed: bool | None = None
    vertex_count: int | None = None
    labels: NDArray[Any] | None = None
    multiple: bool = False

    @property
    def text(self) -> str:
        """A readable description."""
        return f"{len(self.edges)} edges in memory"

    @property
    def weighted(self) -> bool:
        """Whether edges have weights."""
        return self.edges.weights is not None

    def read_share(self, rank: int, world_size: int) -> Edges:
        """Return one rank's edges."""
        mine, lone = (slice(*even_range(count, rank, world_size)) for count in (len(self.edges), len(self.edges.lone)))
        weights = None if self.edges.weights is None else self.edges.weights[mine]
        return Edges(self.edges.sources[mine], self.edges.targets[mine], weights, self.edges.lone[lone])


def in_memory(source: Any, weighted: bool | None) -> EdgesInMemory:
    """Convert edges from any supported object.

    Raises
    ------
    InputError
        The type is not supported, or ids or weights are invalid.
    """
    if isinstance(source, Edges):
        edges = checked(source.sources, source.targets, source.weights, where="edges", weighted=weighted is not False)
        if weighted and edges.weights is None:
            raise InputError("weighted=True, but there are no weights: expected Edges with some")
        return EdgesInMemory(replace(edges, lone=_ids(source.lone, "lone", 0)))
    if hasattr(source, "tocoo"):
        edges = matrix_edges(source, weighted=weighted is not False, where="the matrix")
        return EdgesInMemory(edges, vertex_count=source.shape[0])
    if hasattr(source, "adjacency") and hasattr(source, "is_directed"):
        return _networkx(source, weighted)
    if hasattr(source, "__arrow_c_stream__"):
        return _frame(source, weighted)
    return _columns(source, weighted)


def checked(
    sources: Any, targets: Any, weights: Any = None, *, where: str, first: int = 0, weighted: bool = True
) -> Edges:
    """Return edges from checked columns of ids and weights. `first` is the number of the first edge."""
    sources, targets = (_ids(ids, where, first) for ids in (sources, targets))
    if len(sources) != len(targets):
        raise InputError(f"{where}: {len(sources)} sources and {len(targets)} targets")
    if weights is None or not weighted:
        return Edges(sources, targets)
    check_complete(weights, f"{where}: weights")
    dtype = np.asarray(weights).dtype
    if dtype.kind in NO_NUMBERS:
        raise InputError(f"{where}: weights of type {dtype}, expected real numbers")
    weights = np.ascontiguousarray(weights, np.float64)
    if weights.shape != sources.shape:
        raise InputError(f"{where}: weights of shape {weights.shape} for {len(sources)} edges")
    wrong = np.flatnonzero(~np.isfinite(weights))
    if len(wrong):
        raise InputError(
            f"{where}, edge {first + wrong[0]}: the weight is {weights[wrong[0]]}, expected a finite number"
        )
    return Edges(sources, targets, weights)


def matrix_edges(matrix: Any, *, weighted: bool, where: str) -> Edges:
    """Return the entries of a sparse matrix: row i, column j is the edge from i to j."""
    if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"{where} has shape {matrix.shape}: expected a square one, a row and a column per vertex")
    entries = matrix.tocoo()
    return checked(entries.row, entries.col, entries.data if weighted else None, where=where)


def _ids(ids: Any, where: str, first: int) -> NDArray[np.int64]:
    check_complete(ids, where)
    ids = np.asarray(ids)
    if ids.ndim != 1 or (ids.dtype.kind not in "iu" and ids.size):
        raise InputError(f"{where}: ids of type {ids.dtype} and shape {ids.shape}, expected whole numbers in a row")
    if ids.size and not (ids.min() >= 0 and ids.max() <= LARGEST_ID):
        at = int(np.flatnonzero((ids < 0) | (ids > LARGEST_ID))[0])
        raise InputError(f"{where}, edge {first + at}: vertex id {ids[at]}, expected 0 … {LARGEST_ID}")
    return np.ascontiguousarray(ids, np.int64)


def named_in_memory(tables: Sequence[tuple[Any, Callable[[int], str]]]) -> EdgesInMemory:
    """Return the edges of tables between vertices with names, as for `named_edges`."""
    edges, labels = named_edges(tables)
    return EdgesInMemory(edges, vertex_count=len(labels), labels=labels)


def _frame(source: Any, weighted: bool | None) -> EdgesInMemory:
    """Read the rows of a frame: two or three columns, with the same names as in files."""
    table, where = frame_as_table(source, "edges")
    table = without_index(table)
    chosen = [table.column_names[at] for at in choose_columns(where, table.column_names, weighted) if at is not None]
    table = table.select(chosen)

    def describe(row: int) -> str:
        return f"{where}, row {row}"

    if any(is_text(table.schema.field(end).type) for end in (0, 1)):
        return named_in_memory([(table, describe)])
    return EdgesInMemory(table_edges(table, describe))


def _columns(source: Any, weighted: bool | None) -> EdgesInMemory:
    expected = "a frame, an array of shape (edges, 2), or a tuple (sources, targets) or (sources, targets, weights)"
    if isinstance(source, np.ndarray) and source.ndim == 2 and source.shape[1] == 2:
        source = (source[:, 0], source[:, 1])
    if not isinstance(source, tuple) or len(source) not in (2, 3):
        raise InputError(f"a graph cannot be made of {type(source).__name__}: expected {expected}, or a path")
    if weighted and len(source) < 3:
        raise InputError(f"weighted=True, but there are no weights: expected {expected}")
    if any(np.asarray(ids).dtype.kind in "OSTU" for ids in source[:2]):
        try:
            columns = [arrow_array(each) if isinstance(each, np.ndarray) else each for each in source]
            return _frame(pa.table(dict(zip(("source", "target", "weight"), columns, strict=False))), weighted)
        except pa.ArrowException as error:
            raise InputError(
                f"edges: {error}: expected whole numbers, or strings, in columns of equal length"
            ) from None
    return EdgesInMemory(checked(*source, where="edges", weighted=weighted is not False))


def _networkx(graph: Any, weighted: bool | None) -> EdgesInMemory:
    nodes = list(graph.nodes)
    numbers = {node: number for number, node in enumerate(nodes)}
    ends = np.array([(numbers[a], numbers[b]) for a, b in graph.edges()], np.int64).reshape(-1, 2)
    edge_weights = [weight for _, _, weight in graph.edges(data="weight")]
    weights = None
    if weighted or (weighted is None and any(weight is not None for weight in edge_weights)):
        weights = np.array([1.0 if weight is None else weight for weight in edge_weights])
    labels = np.empty(len(nodes), object)
    labels[:] = nodes
    if all(type(node) is int for node in nodes):
        labels = labels.astype(np.int64)
    edges = checked(ends[:, 0], ends[:, 1], weights, where="the graph")
    return EdgesInMemory(edges, graph.is_directed(), len(nodes), labels, graph.is_multigraph())
