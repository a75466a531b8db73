"""Choice of the columns of a fit by name, in frames and in tables of files."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict

from ripieno.errors import InputError, MissingColumn
from ripieno.wire.arrays import check_complete

if TYPE_CHECKING:
    from ripieno.input import TableFiles


class ColumnChoice(TypedDict, total=False):
    """Keyword arguments of a fit that choose columns by name, in frames and in tables of files.

    Parameters
    ----------
    columns : sequence of str, default=None
        The columns to read, in this order; by default all. For graphs: source, target and weight.
    ignore : sequence of str, default=()
        Columns that are not read.
    id : str, default=None
        The column with the names of the rows, which is not a value.
    """

    columns: Sequence[str] | None
    ignore: Sequence[str]
    id: str | None


class TargetChoice(ColumnChoice, total=False):
    """Keyword arguments of a fit with a target that choose columns by name, in addition to `ColumnChoice`.

    Parameters
    ----------
    target : str, default=None
        The column to predict. Passing its name as `y` has the same effect.
    """

    target: str | None


_DEFAULTS: dict[str, Any] = {"columns": None, "ignore": (), "id": None, "target": None}


def declared_by(fit: Callable[..., Any]) -> type[ColumnChoice] | None:
    """Return the type of the keyword arguments of a fit that choose columns, or None for a fit without them."""
    kinds = [each.annotation for each in inspect.signature(fit).parameters.values() if each.kind is each.VAR_KEYWORD]
    return next((kind for kind in (TargetChoice, ColumnChoice) if any(kind.__name__ in each for each in kinds)), None)


def completed_signature(fit: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a fit with each of the arguments that choose columns."""
    signature, declared = inspect.signature(fit), declared_by(fit)
    if declared is None:
        return signature
    own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    more = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULTS[name], annotation=each.__forward_arg__
        )
        for name, each in declared.__annotations__.items()
    ]
    return signature.replace(parameters=[*own, *more])


def choose(estimator: Any, passed: Mapping[str, Any], given: Mapping[str, Any], *, has_target: bool) -> dict[str, Any]:
    """Return the arguments of a fit with only the chosen columns of the first one, and with the target as `y`.

    The target is a column of a frame, or the name of a column of files. Without `has_target`, `y` is ignored.

    Raises
    ------
    InputError
        There is no such column, or columns have no names.
    """
    (first, X), y = next(iter(passed.items())), given.get("target")
    if y is not None and passed["y"] is not None:
        raise InputError(f"target={y!r}: y is passed, too: expected one of them")
    y = passed["y"] if y is None and has_target else y
    options = {name: given[name] for name in ("columns", "ignore", "id") if given.get(name)}
    found, y = chosen(X, y, options)
    estimator._chose_columns = found is not X
    return {**passed, first: found, "y": y if has_target else passed["y"]}


def chosen(X: Any, y: Any, options: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return X with the columns that options of tables name, and the target `y` if it is a column of a frame."""
    if X is None or (not options and not isinstance(y, str)):
        return X, y
    # Imported here, because estimators of graphs in memory do not need Arrow.
    from ripieno.input.columns import TableFiles, TableOptions
    from ripieno.input.matrix import is_path_like
    from ripieno.input.partitions import splits_of

    first = next(iter(options), "y")
    if splits_of(X) is not None:
        if options:
            raise InputError(f"{first}: X consists of splits: pass the columns to ripieno.input.splits")
        return X, y
    if is_path_like(X) or isinstance(X, TableFiles):
        return (_files(X, options) if options else X), y
    frame = _frame(X)
    if frame is None:
        if options:
            kind = type(X).__name__
            raise InputError(f"{first}: the columns of a {kind} have no names: expected a frame, or files of tables")
        return X, y
    names = list(_names(frame))
    target = None
    if isinstance(y, str):
        if y not in names:
            raise MissingColumn("y", y, "X", names)
        target, y = y, target_values(frame, y)
    read = TableOptions(**options).chosen("X", names)
    return _selected(frame, [name for name in read if name != target]), y


def target_values(frame: Any, name: str) -> Any:
    """Return a column of a frame as an array.

    Raises
    ------
    InputError
        A value of a table is missing.
    """
    check_complete(frame[name], f"y, column {name!r}")
    return frame[name].to_numpy()


def fitted_columns(estimator: Any, X: Any) -> Any:
    """Return X with the columns of a fit that chose columns by name.

    A frame that lacks one of these columns is returned unchanged, like files without column names.
    """
    names = getattr(estimator, "feature_names_in_", None)
    if names is None or not estimator._chose_columns:
        return X
    # Imported here, because estimators of graphs do not need Arrow.
    from ripieno.input.columns import TableFiles
    from ripieno.input.matrix import has_column_names, is_path_like

    files = TableFiles(X) if is_path_like(X) else X
    if isinstance(files, TableFiles):
        is_chosen = not files.columns and has_column_names(files)
        return replace(files, columns=tuple(names), ignore=()) if is_chosen else X
    frame = _frame(X)
    if frame is None:
        return X
    return _selected(frame, list(names)) if set(names) <= set(_names(frame)) else frame


def _files(X: Any, options: Mapping[str, Any]) -> TableFiles:
    from ripieno.input.columns import TableFiles

    if not isinstance(X, TableFiles):
        return TableFiles(X, **options)
    twice = next((name for name in options if getattr(X, name)), None)
    if twice is not None:
        raise InputError(
            f"{twice}={options[twice]!r}: TableFiles has {twice}={getattr(X, twice)!r}: expected one of them"
        )
    return replace(X, **options)


def _frame(X: Any) -> Any:
    """Return a frame of pandas or polars, or other data with named columns as a table; None for other data."""
    import pyarrow as pa

    from ripieno.files.frames import arrow_stream_as_table, check_names

    X = arrow_stream_as_table(X)
    if hasattr(X, "__dask_graph__"):
        X = X.compute()
    is_frame = isinstance(X, pa.Table) or (
        getattr(X, "ndim", 2) == 2 and (hasattr(X, "iloc") or hasattr(X, "to_arrow"))
    )
    if not is_frame or not len(_names(X)):
        return None
    check_names(_names(X), "X")
    return X


def _names(frame: Any) -> Sequence[str]:
    names: Sequence[str] = list(getattr(frame, "column_names", None) or frame.columns)
    return names


def _selected(frame: Any, names: Sequence[str]) -> Any:
    return frame[list(names)] if hasattr(frame, "iloc") else frame.select(list(names))
