"""Opening and checking of input rows: arrays are checked as in scikit-learn, files by their headers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray
from pyarrow.types import is_nested, is_temporal
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_feature_names, validate_data

from ripieno.algorithms.column_choice import fitted_columns
from ripieno.errors import InputError, MissingColumn
from ripieno.files.frames import (
    arrow_stream_as_table,
    as_numbers,
    check_names,
    frame_as_table,
    list_column,
    list_matrix,
    without_index,
)
from ripieno.files.sources import File, PathLike, expand_keyed
from ripieno.input import Split, TableFiles
from ripieno.input.columns.patches import PatchText
from ripieno.input.columns.source import IGNORE_HINT
from ripieno.input.matrix import BinaryFiles, Dataset, InMemorySparse, RowsInMemory, is_path_like, open_source
from ripieno.input.matrix.dataset import SUFFIXES
from ripieno.input.matrix.sparse_files import LibsvmFiles, SparseFiles
from ripieno.wire.arrays import check_unmasked

POINT_DTYPES = [np.float64, np.float32, np.uint8]

Files = PathLike | Sequence[PathLike] | BinaryFiles | TableFiles | Dataset
Input = ArrayLike | Files | Sequence[Split]


def is_in_files(X: Input) -> TypeGuard[Files]:
    """Return whether X refers to files, or holds rows that were read from libsvm text."""
    return is_path_like(X) or isinstance(X, BinaryFiles | TableFiles | Dataset | LibsvmFiles)


def is_in_libsvm(X: Any) -> TypeGuard[PathLike | Sequence[PathLike] | LibsvmFiles]:
    """Return whether X refers to libsvm text, or holds rows that were read from it."""
    return is_path_like(X) or isinstance(X, LibsvmFiles)


def is_in_columns(X: Any) -> bool:
    """Return whether X refers to files of tables, arrays or matrices. All other files are read as libsvm text."""
    if not is_path_like(X):
        return isinstance(X, TableFiles | Dataset)
    items = [X] if isinstance(X, str | os.PathLike) else X
    kinds = {File(path, 0).inner_suffix for item in items for path, _ in expand_keyed(item)}
    return not kinds.isdisjoint(SUFFIXES) and kinds.isdisjoint(PatchText.suffixes)


def open_rows_or_sparse(
    estimator: BaseEstimator, X: Input | SparseFiles, *, reset: bool, min_rows: int = 1
) -> Dataset | RowsInMemory | InMemorySparse:
    """Open X as `open_rows` does; X may also be a sparse matrix or files of sparse rows, with values as float64.

    On fit, the estimator's `first_column_` becomes the first column index of libsvm text, or None.
    """
    rows: Any = X
    first_column = None
    files = X if isinstance(X, SparseFiles) else sparse_files(X)
    if files is not None:
        rows, first_column = files.read(None if reset else _text_columns(estimator, files))
    if reset:
        estimator.first_column_ = first_column
    if not issparse(rows):
        return open_rows(estimator, rows, reset=reset, min_rows=min_rows)
    matrix = validate_data(
        estimator,
        rows,
        reset=reset,
        dtype=[np.float64, np.float32],
        accept_sparse="csr",
        ensure_all_finite=False,
        # 64-bit indices are converted to 32 bits, which the number of columns must fit.
        accept_large_sparse=True,
        ensure_min_samples=min_rows if reset else 1,
    )
    return InMemorySparse.of(matrix)


def sparse_files(X: Input) -> SparseFiles | None:
    """Return the files of sparse rows that X names, or None if it names none."""
    if not is_path_like(X):
        return None
    return SparseFiles.find([os.fspath(path) for path in ([X] if isinstance(X, str | os.PathLike) else X)])


def _text_columns(estimator: BaseEstimator, files: SparseFiles) -> range | None:
    """Return the column indices that an estimator expects in libsvm text, or None for other files."""
    if not files.is_text:
        return None
    first = estimator.first_column_
    if first is None:
        raise InputError(
            f"{files.names[0]} is libsvm text, but the estimator was fitted on other input, so its "
            "indices may start at 0 or at 1: expected a matrix, as sklearn.datasets.load_svmlight_file returns it"
        )
    return range(first, first + estimator.n_features_in_)


def open_rows(estimator: BaseEstimator, X: Input, *, reset: bool, min_rows: int = 1) -> Dataset | RowsInMemory:
    """Open the rows of X for a fit (`reset`) or a prediction; require at least `min_rows` rows in arrays.

    Raises
    ------
    InputError
        A file is invalid, or its columns differ from the columns of the fit.
    """
    X = X if reset else fitted_columns(estimator, X)
    if is_in_files(X):
        source = open_source(X)
        check_columns(estimator, source, reset=reset)
        return source
    X = rows_in_memory(X)
    # The computation checks for non-finite values later and reports row and column.
    array = validate_data(
        estimator,
        X,
        reset=reset,
        dtype=POINT_DTYPES,
        order="C",
        ensure_all_finite=False,
        ensure_min_samples=min_rows if reset else 1,
    )
    return RowsInMemory(array)


def rows_in_memory(X: Any) -> Any:
    """Return X in a form that scikit-learn accepts; load Arrow streams (such as DuckDB relations) and Dask frames.

    Raises
    ------
    InputError
        X has masked values, is a query that has not run, or consists of splits, which only a fit accepts.
    """
    if isinstance(X, list | tuple) and X and isinstance(X[0], Split):
        raise InputError("X: only fit accepts splits: expected rows or files")
    X = arrow_stream_as_table(X)
    if hasattr(X, "__dask_graph__"):
        return X.compute()
    if isinstance(X, pa.Table):
        return _table_in_memory(without_index(X))
    if hasattr(X, "collect") and hasattr(X, "collect_schema") and not hasattr(X, "__array__"):
        raise InputError(f"X: a {type(X).__name__} has no rows yet: expected the result of its collect()")
    if hasattr(X, "__arrow_c_stream__") and (hasattr(X, "to_arrow") or not hasattr(X, "__array__")):
        # A frame of polars.
        return _table_in_memory(X.to_arrow() if hasattr(X, "to_arrow") else without_index(pa.table(X)))
    if hasattr(X, "iloc") and getattr(X, "ndim", 0) == 2 and len(X):
        if all(isinstance(name, str) for name in X.columns):
            check_names(list(X.columns), "X")
        _check_types({name: kind for name, kind in X.dtypes.items() if getattr(kind, "kind", "O") in "mM"})
        first = X.iloc[0]
        lists = [at for at, value in enumerate(first) if isinstance(value, list | np.ndarray)]
        if lists:
            return _table_in_memory(frame_as_table(X, "numbers or lists of numbers")[0])
    check_unmasked(X, "X")
    if getattr(getattr(X, "dtype", None), "kind", "O") in "mM":
        raise InputError(f"X: the type of the values is {X.dtype}, expected real numbers")
    return X


def _check_types(wrong: Mapping[str, Any]) -> None:
    """Raise `InputError` if there are columns of these types, such as dates: NumPy converts them to numbers."""
    for name, kind in wrong.items():
        hint = IGNORE_HINT.format(name=name)
        raise InputError(f"X, column {name!r}: the type of the values is {kind}, expected real numbers{hint}")


def _table_in_memory(table: pa.Table) -> Any:
    """Return a table with numbers as in files, or its column of lists as an array."""
    check_names(table.column_names, "X")
    table = pa.table([as_numbers(column) for column in table.columns], table.column_names)
    lists = list_column(table.schema, "X")
    lengths = [] if lists is None else pc.list_value_length(table[lists.name]).drop_null()
    if lists is None or not len(lengths):
        kinds = {field.name: field.type for field in table.schema}
        _check_types({name: kind for name, kind in kinds.items() if is_temporal(kind) or is_nested(kind)})
        return table
    return list_matrix(table[lists.name], lengths[0].as_py(), f"X, column {lists.name!r}")


def check_columns(estimator: BaseEstimator, source: Dataset, *, reset: bool, target: int | None = None) -> None:
    """Record the columns of files on the estimator, or check them against the fit; a target column is excluded.

    Raises
    ------
    InputError
        The columns differ from the columns of the fit.
    """
    count = source.column_count - (target is not None)
    if reset:
        estimator.n_features_in_ = count
    elif count != estimator.n_features_in_:
        name = type(estimator).__name__
        raise InputError(f"{source.names[0]} has {count} columns, but {name} was fitted on {estimator.n_features_in_}")
    try:
        _check_feature_names(estimator, _header(source, target), reset=reset)
    except ValueError as error:
        raise InputError(str(error)) from None


def open_with_classes(estimator: BaseEstimator, X: Files, name: str) -> tuple[Dataset, int, NDArray[Any] | None]:
    """Open rows of files for a fit as `open_with_target` does, and return the classes of a target of strings, or None.

    Raises
    ------
    InputError
        As for `open_with_target`; or some files have strings, and others have numbers.
    """
    source, classes = open_source(X, name).with_classes()
    return *open_with_target(estimator, source, name, reset=True), classes


def open_with_target(
    estimator: BaseEstimator, X: Files, name: str, *, reset: bool, keeps_missing: bool = True
) -> tuple[Dataset, int]:
    """Open rows of files; return them and the position of the target column `name`.

    With `keeps_missing`, a missing target is not replaced by the column mean.

    Raises
    ------
    InputError
        No such column exists, or the other columns differ from the columns of the fit.
    """
    source = open_source(X, required=(name,))
    target = target_column(source, name)
    check_columns(estimator, source, reset=reset, target=target)
    # Only fits and scores need the target.
    return (source.leaving_missing(target) if keeps_missing else source), target


def open_for_prediction(
    estimator: BaseEstimator,
    X: Input,
    target_name: str | None,
    *,
    keeps_missing: bool = False,
    classes: NDArray[Any] | None = None,
) -> tuple[Dataset | RowsInMemory, int | None]:
    """Open rows for prediction, and return the position of the target column if the files have it.

    Targets that are strings are read as class numbers; unknown strings are read as -1.
    """
    X = fitted_columns(estimator, X)
    if is_in_files(X) and target_name is not None:
        strings = None if classes is None or classes.dtype.kind != "U" else tuple(classes.tolist())
        source = open_source(X, None if strings is None else target_name, strings, (target_name,))
        if target_name in (source.column_names or ()):
            return open_with_target(estimator, source, target_name, reset=False, keeps_missing=keeps_missing)
    return open_rows(estimator, X, reset=False), None


def target_column(source: Dataset, name: str) -> int:
    """Return the position of a column of files by its name.

    Raises
    ------
    InputError
        The column is missing, or it is the only column.
    """
    names = source.column_names or ()
    if name not in names:
        raise MissingColumn("y", name, source.names[0], names)
    if len(names) == 1:
        raise InputError(f"y={name!r}: {source.names[0]} has no other column")
    return names.index(name)


def _header(source: Dataset, target: int | None) -> pa.Table | None:
    """Return an empty frame with the columns of the files. scikit-learn reads their names from it."""
    if source.column_names is None:
        return None
    names = [name for at, name in enumerate(source.column_names) if at != target]
    return pa.table([pa.array([], pa.float64())] * len(names), names=names)
