"""Splits and partition files as the input of a fit: each rank reads its assigned splits.

`ripieno.input.assign` assigns splits by maximum flow, which maximizes the number of splits read on a host that stores
them. A rank then fits these rows as its own rows, and no rows are sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ripieno.algorithms.column_choice import target_values
from ripieno.algorithms.parameters import names_of, parameters_of
from ripieno.errors import InputError, MissingColumn
from ripieno.files.sources import EmptyFile
from ripieno.graph import Graph
from ripieno.graph.split_edges import SplitEdges
from ripieno.input import Split, assign
from ripieno.input.columns import TableOptions
from ripieno.input.columns.libsvm import LISTS, LibsvmText
from ripieno.input.columns.patches import PatchText
from ripieno.input.columns.source import INDEX_NAMES
from ripieno.input.matrix.sparse_files import LibsvmFiles
from ripieno.input.matrix.tables import TableRows
from ripieno.input.partitions import splits_of

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

Method = TypeVar("Method", bound=Callable[..., Any])

#: Formats with splits that are tables of a matrix's entries, or of arrays, not of rows.
ENTRIES = ("npz", "mtx")


def splits_in(X: Any) -> list[Split] | None:
    """Return the splits of X, a partition file, splits or a graph of splits; None for other input.

    Raises
    ------
    InputError
        The file is not a partition file.
    """
    source = X.source if isinstance(X, Graph) else X
    return list(source.splits) if isinstance(source, SplitEdges) else splits_of(source)


def assigned(splits: Sequence[Split], comm: Communicator) -> list[int]:
    """Return the numbers of the splits that this rank reads."""
    return assign(splits, comm.hosts)[comm.rank]


def read(splits: Sequence[Split], *, libsvm: bool) -> tuple[Any, list[int]]:
    """Return the rows of some splits, or None without rows, and the row count of each split.

    Parameters
    ----------
    splits
        Arrays, tables or text.
    libsvm
        Whether lines of text are "label index:value …", not patches "picture row col f1 …".

    Raises
    ------
    InputError
        A split cannot be read, or has no numeric rows.
    """
    parts = [_rows(split, libsvm=libsvm) for split in splits]
    counts = [len(part) for part in parts]
    nonempty = [part for part in parts if len(part)]
    if not nonempty:
        return None, counts
    if len({type(part) for part in nonempty}) > 1:
        raise InputError(f"{splits[0]} and others are of different formats: expected splits of one format")
    rows = nonempty[0]
    if isinstance(rows, pa.Table):
        other = next((part for part in nonempty if part.column_names != rows.column_names), None)
        if other is not None:
            names = "; and ".join(", ".join(each.column_names) for each in (rows, other))
            raise InputError(f"tables of different columns: {names}: expected the same columns in the same order")
        rows = pa.concat_tables(nonempty, promote_options="permissive")
    elif len(nonempty) > 1:
        rows = np.concatenate(nonempty)
    is_text = libsvm and splits[0].format.name == "text"
    return LibsvmFiles(tuple(LibsvmText(split.path, LISTS, 0) for split in splits), rows) if is_text else rows, counts


def without_target(X: Any, name: str) -> tuple[Any, Any]:
    """Return the columns of a table without the target column, and the target column.

    Raises
    ------
    InputError
        No such column exists.
    """
    names = X.column_names if isinstance(X, pa.Table) else []
    if name not in names:
        raise MissingColumn("y", name, "the table of the splits", names)
    return X.drop_columns([name]), target_values(X, name)


def _rows(split: Split, *, libsvm: bool) -> Any:
    if split.format.name == "text":
        kind: type[LibsvmText] | type[PatchText] = LibsvmText if libsvm else PatchText
        try:
            source = kind.open(split.place(), TableOptions())
        except EmptyFile:
            return np.empty((0, 0))
        # A split of compressed text contains the whole text.
        stop = split.stop if source.compression is None else source.size
        if isinstance(source, LibsvmText):
            return source.read(split.start, stop, LISTS)
        return TableRows.of(source, TableOptions()).read(split.start, stop)
    if split.format.name in ENTRIES:
        raise InputError(f"{split.path} is read as {split.format.name}, entries of a matrix: expected rows")
    rows = split.read()
    if isinstance(rows, pa.Table):
        return rows.drop_columns([name for name in INDEX_NAMES if name in rows.column_names])
    return rows


def apply_to_splits(
    estimator: Any, method: str, splits: Sequence[Split], y: str | None = None
) -> tuple[list[Any], NDArray[Any] | None]:
    """Return the results of a method for the rows of each split, in order, and the targets of all rows.

    Each rank of the estimator applies the method to the splits assigned to it. The targets are the column `y`, or the
    labels of libsvm text.

    Raises
    ------
    InputError
        A split cannot be read, or there are no rows.
    """
    parts = estimator._run(_apply, _on_rank(estimator), method, splits, y, comm=None)
    by_number = {number: each for rank_results in parts for number, each in rank_results.items()}
    if not by_number:
        raise InputError(f"{splits[0]} and others: there are no rows" if splits else "X: there are no splits")
    results, targets = zip(*(by_number[number] for number in sorted(by_number)), strict=True)
    return list(results), None if targets[0] is None else np.concatenate(targets)


def takes_splits(method: Method) -> Method:
    """Wrap a method that returns arrays with one entry per row, so that it also accepts splits."""

    @wraps(method)
    def wrapped(self: Any, X: Any) -> Any:
        splits = splits_in(X)
        if splits is None:
            return method(self, X)
        results, _ = apply_to_splits(self, method.__name__, splits)
        if isinstance(results[0], tuple):
            return tuple(np.concatenate(each) for each in zip(*results, strict=True))
        return np.concatenate(results)

    return cast(Method, wrapped)


def _apply(
    comm: Communicator, model: Any, method: str, splits: Sequence[Split], y: str | None
) -> dict[int, tuple[Any, NDArray[Any] | None]]:
    """Return the result and the targets of each split of this rank that has rows, by number."""
    found = {}
    for number in assigned(splits, comm):
        rows, _ = read([splits[number]], libsvm=model._is_libsvm)
        if rows is None:
            continue
        target = None
        if isinstance(rows, LibsvmFiles):
            target = rows.read_share(0, 1).labels
        elif y is not None:
            rows, target = without_target(rows, y)
        known = getattr(model, "_target_name", None)
        if isinstance(rows, pa.Table) and known in rows.column_names:
            rows = rows.drop_columns([known])
        found[number] = getattr(model, method)(rows), target
    return found


def _on_rank(estimator: Any) -> Any:
    """Return a copy of an estimator for a single rank, without the parameters that apply to the caller."""
    model = copy(estimator)
    declared = parameters_of(type(model))
    model.set_params(**{name: declared[name].default for name in names_of(type(model), "running", "showing")})
    for name in ("_is_fitting", "_facts_of_ranks", "report_"):
        model.__dict__.pop(name, None)
    return model


def fit_on_ranks(estimator: Any, method: str, passed: dict[str, Any]) -> Any:
    """Run a fit on splits on the workers of an estimator, and store the results in it.

    Attributes with one entry per row follow the order of the splits.
    """
    on_event = getattr(estimator, "_on_event", None)
    parts = estimator._run(_fit, _on_rank(estimator), method, passed, comm=None, on_event=on_event)
    attributes, _, _ = parts[0]
    estimator.__dict__.update(attributes)
    for name in estimator._row_attributes:
        by_split: dict[int, NDArray[Any]] = {}
        for rank_attributes, numbers, counts in parts:
            by_split |= (
                zip(numbers, np.split(rank_attributes[name], np.cumsum(counts)[:-1]), strict=True) if numbers else ()
            )
        setattr(estimator, name, np.concatenate([by_split[number] for number in sorted(by_split)]))
    return estimator


def _fit(
    comm: Communicator, model: Any, method: str, passed: dict[str, Any]
) -> tuple[dict[str, Any], list[int], list[int]]:
    """Fit on this rank and return attributes, split numbers and row counts; only rank 0 returns all attributes."""
    if "on_iteration" in model.get_params(deep=False):
        model.on_iteration = comm.emit
    getattr(model, method)(**passed, comm=comm)
    for name in ("_row_runs", "_row_order"):
        model.__dict__.pop(name, None)
    numbers, counts = model.__dict__.pop("_splits_read")
    parameters = model.get_params(deep=False)
    attributes = {
        name: value for name, value in vars(model).items() if name not in parameters and name != "_facts_of_ranks"
    }
    return attributes if comm.rank == 0 else {name: attributes[name] for name in model._row_attributes}, numbers, counts
