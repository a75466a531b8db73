"""Fits of each rank's own rows, as one data set in rank order.

A rank without rows passes None and adopts the columns of the other ranks. An invalid row on one rank raises an error on
all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix

from ripieno._types import Rows
from ripieno.algorithms.checks import checked_weights
from ripieno.algorithms.inputs import open_rows_or_sparse
from ripieno.comm.agreement import agreement
from ripieno.errors import InputError, RipienoError
from ripieno.graph import Graph
from ripieno.graph.edges import Edges
from ripieno.graph.graph import open_graph
from ripieno.input.matrix import Dataset, InMemorySparse, LocalRows, RowsInMemory

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

Source = Dataset | RowsInMemory | InMemorySparse | LocalRows
T = TypeVar("T")


def open_for_fit(
    estimator: Any,
    X: Any,
    sample_weight: ArrayLike | None,
    *,
    comm: Communicator | None,
    rows: Rows | None,
    open: Callable[..., Dataset | RowsInMemory | InMemorySparse],
    reset: bool = True,
) -> tuple[Any, NDArray[np.float64] | None]:
    """Return the rows of a fit, opened with ``open(estimator, X, reset=reset)``, and their weights, None for own rows.

    Raises
    ------
    InputError
        Invalid rows or weights; with own rows, on every rank.
    """
    if rows != "own" or comm is None:
        source = open(estimator, X, reset=reset)
        return source, checked_weights(sample_weight, source)
    with opening(comm):
        mine = None if X is None else open(estimator, X, reset=reset)
        weights = own_weights(sample_weight, mine)
        if reset and open is open_rows_or_sparse:
            estimator.first_column_ = None if mine is None else estimator.first_column_
            if estimator.first_column_ is not None:
                raise InputError(
                    "the number of columns of libsvm text depends on all rows: with rows='own' expected a sparse "
                    "matrix, as sklearn.datasets.load_svmlight_file(…, n_features=…) returns it"
                )
    return own_points(estimator, comm, mine, weights, reset=reset), None


@contextmanager
def opening(comm: Communicator) -> Iterator[None]:
    """Context that raises an error in one rank's own rows as InputError on every rank."""
    with agreement(comm, "opening rows of each rank"):
        try:
            yield
        except RipienoError:
            raise
        except (TypeError, ValueError) as error:
            raise InputError(f"rank {comm.rank}: {error}") from error


def own_weights(sample_weight: ArrayLike | None, source: Any) -> NDArray[np.float64] | None:
    """Return the checked weights of own rows. They may all be 0, and are empty for a rank without rows."""
    if source is None:
        return None if sample_weight is None else np.empty(0)
    return checked_weights(sample_weight, source, needs_positive=False)


def check_weights(comm: Communicator, weights: NDArray[np.float64] | None) -> None:
    """Raise InputError on every rank if the weights of all ranks are 0."""
    sums = comm.allgather(None if weights is None else float(weights.sum()))
    if any(each is not None for each in sums) and not sum(each or 0.0 for each in sums):
        raise InputError("sample_weight: expected a number >= 0 for each row, not all of them 0")


def agreed(comm: Communicator, mine: T | None, name: str) -> T:
    """Return the value that all ranks with a value share.

    Raises
    ------
    InputError
        On every rank: ranks have different values.
    """
    return one_of(comm.allgather(mine), name)


def one_of(values: Sequence[T | None], name: str) -> T:
    """Return the common value of `values`, one per rank, as `agreed` does."""
    found = [(rank, value) for rank, value in enumerate(values) if value is not None]
    assert found, "at least one rank has rows"
    (first, expected), *rest = found
    for rank, value in rest:
        if value != expected:
            raise InputError(
                f"{name}: {expected!r} on rank {first}, {value!r} on rank {rank}: expected the same on every rank that "
                "has rows"
            )
    return expected


def classes_of_all(comm: Communicator, y: NDArray[Any] | None, known: NDArray[Any] | None = None) -> NDArray[Any]:
    """Return the classes of all ranks' rows, ascending, or the `known` classes.

    Raises
    ------
    InputError
        On every rank: classes have different types, a class is not among the known classes, or there are fewer than
        two.
    """
    own = None if y is None else np.unique(y)
    gathered = comm.allgather(own)
    one_of([None if each is None else each.dtype.kind for each in gathered], "the type of classes")
    found = np.unique(np.concatenate([each for each in gathered if each is not None]))
    classes = found if known is None else known
    unknown = np.setdiff1d(found, classes)
    if len(unknown):
        raise InputError(f"y has {unknown[0]!r}, which is not among the classes {classes}")
    if len(classes) < 2:
        raise InputError(f"y has {len(classes)} class: expected at least 2")
    return classes


@dataclass(frozen=True)
class _OwnEdges:
    """The edges of one rank. The rank reads all of them."""

    source: Any

    text = "the edges of each rank"
    directed = None
    labels = None
    multiple = False

    @property
    def weighted(self) -> bool:
        """Return whether edges have weights."""
        return bool(self.source.weighted)

    def read_share(self, rank: int, world_size: int) -> Edges:
        """Return all edges of this rank."""
        edges: Edges = self.source.read_share(0, 1)
        return edges


def graph_for_fit(graph: Any, *, comm: Communicator | None, rows: Rows | None) -> Graph:
    """Return the graph of a fit; with own rows, each rank passes its own edges.

    Raises
    ------
    InputError
        Invalid edges. With own edges, on every rank; also if vertices have names, or ranks interpret edges differently.
    """
    if rows != "own" or comm is None:
        return open_graph(graph)
    with opening(comm):
        mine = None if graph is None else open_graph(graph)
        if mine is not None and mine.labels is not None:
            raise InputError(
                f"rank {comm.rank}: each rank numbers the nodes of a networkx graph, or strings, differently: with "
                "rows='own' expected edges as numbers of vertices"
            )
    meaning = None if mine is None else (mine.directed, mine.weighted, mine.duplicates)
    directed, weighted, duplicates = agreed(comm, meaning, "(directed, weighted, duplicates) of the graph")
    counts = comm.allgather(None if mine is None else mine.vertex_count)
    none = np.empty(0, np.int64)
    edges = Edges(none, none, np.empty(0) if weighted else None)
    combined = copy(Graph(edges) if mine is None else mine)
    combined.source = cast(Any, _OwnEdges(combined.source))
    combined.directed, combined.weighted, combined.duplicates = directed, weighted, duplicates
    combined.vertex_count = max((count for count in counts if count is not None), default=None)
    return combined


@dataclass(frozen=True)
class _Columns:
    """The columns of a rank's rows: all columns of `source`, the columns of the fit, and their names."""

    width: int
    fitted: int
    names: list[str] | None
    is_sparse: bool
    dtype: np.dtype[Any] | None


def own_points(
    estimator: Any,
    comm: Communicator,
    source: Dataset | RowsInMemory | InMemorySparse | None,
    weights: NDArray[np.float64] | None,
    *,
    reset: bool = True,
) -> LocalRows:
    """Return this rank's own rows, none if `source` is None; set `n_features_in_` and `feature_names_in_`.

    Raises
    ------
    InputError
        On every rank: ranks have different columns, or a mixture of sparse and dense rows.
    """
    mine = None
    if source is not None:
        names = getattr(estimator, "feature_names_in_", None)
        mine = _Columns(
            width=source.column_count,
            fitted=estimator.n_features_in_,
            names=None if names is None else list(names),
            is_sparse=isinstance(source, InMemorySparse),
            dtype=np.dtype(source.given_dtype) if isinstance(source, InMemorySparse) else source.dtype,
        )
    gathered = comm.allgather(mine)
    known = [each for each in gathered if each is not None]
    fitted = one_of([None if each is None else each.fitted for each in gathered], "columns")
    kinds = ["dense", "sparse"]
    is_sparse = one_of([None if each is None else kinds[each.is_sparse] for each in gathered], "rows") == kinds[1]
    named = [None if each is None else each.names for each in gathered]
    if reset:
        estimator.n_features_in_ = fitted
        if any(names is not None for names in named):
            estimator.feature_names_in_ = np.array(one_of(named, "names of columns"), object)
    check_weights(comm, weights)
    width, dtypes = known[0].width, [each.dtype for each in known if each.dtype is not None]
    if is_sparse:
        source = InMemorySparse.of(csr_matrix((0, width))) if source is None else source
        # Results have one type on all ranks.
        source = replace(cast(InMemorySparse, source), given_dtype=np.result_type(*dtypes).str)
    elif source is None:
        source = RowsInMemory(np.empty((0, width), dtypes[0] if dtypes else np.uint8))
    return LocalRows(source, weights, f"rank {comm.rank}", getattr(estimator, "_row_runs", None))


#: The first row number and the row count of each split that a rank has read.
Runs = tuple[tuple[int, int], ...]


def row_runs(comm: Communicator, numbers: Sequence[int], counts: Sequence[int]) -> list[Runs]:
    """Return the runs of all ranks; this rank passes the numbers and row counts of the splits that it has read."""
    gathered = comm.allgather((numbers, counts))
    row_counts = {number: count for mine in gathered for number, count in zip(*mine, strict=True)}
    firsts, total = {}, 0
    for number in sorted(row_counts):
        firsts[number] = total
        total += row_counts[number]
    return [tuple((firsts[number], count) for number, count in zip(*mine, strict=True) if count) for mine in gathered]


def rows_of(runs: Iterable[tuple[int, int]]) -> NDArray[np.int64]:
    """Return the row numbers of runs."""
    return np.concatenate([np.empty(0, np.int64), *(np.arange(first, first + count) for first, count in runs)])
