"""Splits and partition files as the input of a fit: each rank reads its assigned splits.

Splits are assigned by maximum flow, which maximizes the splits read on a host that stores them
(`ripieno.input.assign`). A rank's rows are then its own rows, and no rows are sent.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import copy
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.files.sources import size_bytes
from ripieno.graph.edges import Edges
from ripieno.graph.text import TextEdges
from ripieno.input import Split, assign, open_partitions
from ripieno.input.columns import TableOptions
from ripieno.input.columns.patches import PatchText
from ripieno.input.columns.source import INDEX_NAMES
from ripieno.input.matrix.tables import TableRows
from ripieno.input.shares import FileShare

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: File name suffix of a partition file.
PARTITION_FILE = ".json"
#: Parameters that apply to the calling estimator, not to the ranks.
_OF_CALLER = {
    "workers": 1,
    "threads": None,
    "engine": "local",
    "on_failure": "raise",
    "on_iteration": None,
    "verbose": 0,
}


def splits_of(X: Any) -> list[Split] | None:
    """Return X if it consists of splits, or the splits in a partition file; None for other input.

    Raises
    ------
    InputError
        The file is not a partition file.
    """
    # Commands pass a list of paths.
    if isinstance(X, list | tuple) and len(X) == 1 and isinstance(X[0], str | os.PathLike):
        X = X[0]
    if isinstance(X, str | os.PathLike) and os.fspath(X).lower().endswith(PARTITION_FILE):
        return open_partitions(X)
    if isinstance(X, list | tuple) and X and all(isinstance(each, Split) for each in X):
        return list(X)
    return None


def assigned(splits: Sequence[Split], comm: Communicator) -> list[int]:
    """Return the numbers of the splits that this rank reads."""
    return assign(splits, comm.hosts)[comm.rank]


def read(splits: Sequence[Split], *, of_graph: bool) -> tuple[Any, list[int]]:
    """Return the rows or edges of some splits, or None without splits, and the count of each split.

    Raises
    ------
    InputError
        A split cannot be read, or has no numeric rows.
    """
    parts = [_rows(split, of_graph=of_graph) for split in splits]
    counts = [len(part) for part in parts]
    filled = [part for part in parts if len(part)]
    if not filled:
        return None, counts
    if len({type(part) for part in filled}) > 1:
        raise InputError(f"{splits[0]} and others are of different formats: expected splits of one format")
    if isinstance(filled[0], Edges):
        return Edges.joined(filled, weighted=filled[0].weights is not None), counts
    if isinstance(filled[0], pa.Table):
        return pa.concat_tables(filled), counts
    return filled[0] if len(filled) == 1 else np.concatenate(filled), counts


def without_target(X: Any, name: str) -> tuple[Any, Any]:
    """Return the columns of a table without the target column, and the target column.

    Raises
    ------
    InputError
        No such column exists.
    """
    names = X.column_names if isinstance(X, pa.Table) else []
    if name not in names:
        raise InputError(f"y={name!r}: the splits have no such column: expected one of {', '.join(names) or 'none'}")
    return X.drop_columns([name]), X[name].to_numpy()


def _rows(split: Split, *, of_graph: bool) -> Any:
    if split.format.name == "text":
        return _text_rows(split, of_graph=of_graph)
    rows = split.read()
    if isinstance(rows, pa.Table) and not of_graph:
        return rows.drop_columns([name for name in INDEX_NAMES if name in rows.column_names])
    return rows


def _text_rows(split: Split, *, of_graph: bool) -> Any:
    """Return the edges, or the patch rows, whose lines begin in the split."""
    if split.compression is not None:
        raise InputError(f"{split}: compressed text: expected it unpacked")
    place = split.place()
    if not of_graph:
        return TableRows.of(PatchText.open(place, TableOptions()), TableOptions()).read(split.start, split.stop)
    size = size_bytes(place)
    return TextEdges.open(place, None).read(FileShare(Fraction(split.start, size), Fraction(split.stop, size)))


def fit_on_ranks(estimator: Any, method: str, given: dict[str, Any], splits: list[Split]) -> Any:
    """Run a fit on splits on the workers of an estimator, and store the results in it.

    Attributes with one entry per row follow the order of the splits.
    """
    model = copy(estimator)
    model.set_params(**{name: value for name, value in _OF_CALLER.items() if name in model.get_params(deep=False)})
    for name in ("_is_fitting", "_facts_of_ranks", "report_"):
        model.__dict__.pop(name, None)
    on_event = getattr(estimator, "_on_event", None)
    given = given | {next(iter(given)): splits}
    parts = estimator._run(_fit, model, method, given, comm=None, on_event=on_event)
    found, _, _ = parts[0]
    estimator.__dict__.update(found)
    for name in estimator._of_rows:
        by_split: dict[int, NDArray[Any]] = {}
        for attributes, numbers, counts in parts:
            by_split |= zip(numbers, np.split(attributes[name], np.cumsum(counts)[:-1]), strict=True) if numbers else ()
        setattr(estimator, name, np.concatenate([by_split[number] for number in sorted(by_split)]))
    return estimator


def _fit(
    comm: Communicator, model: Any, method: str, given: dict[str, Any]
) -> tuple[dict[str, Any], list[int], list[int]]:
    """Fit on this rank and return attributes, split numbers and row counts; only rank 0 returns all attributes."""
    if "on_iteration" in model.get_params(deep=False):
        model.on_iteration = comm.emit
    getattr(model, method)(**given, comm=comm)
    numbers, counts = model.__dict__.pop("_splits_read")
    parameters = model.get_params(deep=False)
    found = {name: value for name, value in vars(model).items() if name not in parameters and name != "_facts_of_ranks"}
    return found if comm.rank == 0 else {name: found[name] for name in model._of_rows}, numbers, counts
