"""Comparison of a joint call of a fit between ranks, before the fit begins.

The decorator `same_call` makes each rank describe its call in one message: class and method, every parameter that
changes the result, and its rows. Different calls raise `CollectiveMismatch` on every rank. Cost: one allgather of about
1 kB per rank, and a digest of at most `DIGEST_BYTES` per argument.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import issparse

from ripieno import log
from ripieno._types import Rows
from ripieno.algorithms.column_choice import choose, declared_by
from ripieno.algorithms.documentation import fit_documentation
from ripieno.algorithms.own_rows import opening, row_runs, rows_of
from ripieno.algorithms.parameters import names_of
from ripieno.algorithms.split_rows import assigned, fit_on_ranks, read, splits_in, without_target
from ripieno.errors import CollectiveMismatch, InputError
from ripieno.files.frames import arrow_stream_as_table
from ripieno.graph import Graph
from ripieno.input import Split
from ripieno.input.split import LOGGER as INPUT
from ripieno.keyed.agreement import check
from ripieno.wire.fingerprint import fingerprint

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

Fit = TypeVar("Fit", bound=Callable[..., Any])

#: Arrays up to this size are compared completely. For larger arrays, evenly spread blocks of this total size are
#: compared.
DIGEST_BYTES = 8 << 20
_BLOCK_BYTES = 4096
#: Number of rows of a frame, or entries of an object array, that are compared.
SAMPLE_ROWS = 4096
#: Arguments with one entry per row.
_ROW_ARGUMENTS = ("y", "sample_weight")
_MAX_TEXT_LENGTH = 80


@dataclass(frozen=True)
class Value:
    """One argument or parameter of a rank.

    Parameters
    ----------
    text
        Description for messages.
    digest
        Equal on two ranks if the values are equal; None if they cannot be compared.
    is_empty
        Whether the value is None or has no rows.
    """

    text: str
    digest: str | None
    is_empty: bool = False


@dataclass(frozen=True)
class FitCall:
    """A rank's call of a fit: its name, the value of `rows`, the parameters, and the arguments by name.

    `has_splits` is whether the rows are in splits, and `chose_columns` whether the fit chose columns by name.
    `refusal` is the reason why a rank cannot read its rows, or None.
    """

    name: str
    rows: Any
    has_splits: bool
    chose_columns: bool
    refusal: str | None
    parameters: Mapping[str, Value]
    arguments: Mapping[str, Value]


def same_call(fit: Fit) -> Fit:
    """Compare the calls of `fit` on all ranks of its argument `comm`, and resolve its argument `rows`.

    With `comm`, `fit` receives ``rows="own"`` or ``rows="shared"``. With own rows, `fit` on a rank without rows
    receives None for them, and empty weights if other ranks have weights. The parameters of the estimator are checked
    before `fit`. The documentation of `comm` and `rows`, of the result and of common errors is added.

    Raises
    ------
    CollectiveMismatch
        On every rank: ranks call different fits, or with different parameters, or with different rows without
        ``rows="own"``.
    InputError
        `rows` has an unknown value, or is passed without `comm`.
    """
    signature = inspect.signature(fit)
    own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    signature = signature.replace(parameters=own)
    names = [each.name for each in own if each.name not in ("self", "comm", "rows")]
    declared = declared_by(fit)
    choice_names = () if declared is None else tuple(declared.__annotations__)
    has_target = "target" in choice_names

    @functools.wraps(fit)
    def wrapped(self: Any, *args: Any, comm: Communicator | None = None, rows: Any = None, **kwargs: Any) -> Any:
        choice = {name: kwargs.pop(name) for name in choice_names if name in kwargs}
        bound = signature.bind(self, *args, **kwargs)
        given, refusal = {name: bound.arguments.get(name) for name in names}, None
        passed = dict(given)
        try:
            if declared is not None:
                passed = choose(self, given, choice, has_target=has_target)
        except InputError as error:
            if comm is None:
                raise
            refusal = str(error)
        if comm is None:
            if rows is not None:
                raise InputError(f"rows={rows!r} without comm=: expected both, or neither")
            self._check_parameters()
            splits = splits_in(passed[names[0]])
            if splits is not None:
                passed[names[0]] = _with_splits(passed[names[0]], splits)
                return fit_on_ranks(self, fit.__name__, passed)
            fit(self, **passed)
        else:
            for name in ("_splits_read", "_row_runs", "_row_order"):
                self.__dict__.pop(name, None)
            title = f"{type(self).__name__}.{fit.__name__}"
            chosen = {name: _as_names(choice.get(name)) for name in choice_names}
            rows, passed, has_splits = _agreed_call(comm, self, title, rows, passed, chosen, refusal)
            self._check_parameters()
            if has_splits:
                passed, rows = _read_splits(comm, self, rows, passed, is_graph=names[0] == "graph"), "own"
            fit(self, **passed, comm=comm, rows=rows)
        target = choice.get("target") or given.get("y")
        if isinstance(target, str) and (has_target or declared is None):
            self._target_name = target
        return self

    wrapped.__doc__ = fit_documentation(inspect.getdoc(fit) or "", declared)
    return cast(Fit, wrapped)


def _as_names(columns: Any) -> Any:
    """Return names of columns as a tuple, empty without names, so that equal choices have equal digests."""
    return tuple(columns or ()) if isinstance(columns, list | tuple | None) else columns


def _agreed_call(
    comm: Communicator,
    estimator: Any,
    name: str,
    rows: Any,
    passed: dict[str, Any],
    choice: dict[str, Any],
    refusal: str | None,
) -> tuple[Rows, dict[str, Any], bool]:
    """Return whether rows are own or shared, the arguments of this rank, and whether any rank passes splits.

    `choice` has the names of columns that the call chooses. `refusal` is the reason why this rank cannot read its rows,
    if that is known already.
    """
    first = next(iter(passed))
    splits = None
    try:
        splits = splits_in(passed[first])
        passed[first] = arrow_stream_as_table(passed[first]) if splits is None else _with_splits(passed[first], splits)
    except InputError as error:
        refusal = refusal or str(error)
    row_parameters: Sequence[str] = getattr(estimator, "_row_parameters", ())
    parameters = {name: getattr(estimator, name) for name in names_of(type(estimator), "model", "saving")}
    arguments = {key: value for key, value in passed.items() if key == first or key in _ROW_ARGUMENTS}
    parameters |= {key: value for key, value in passed.items() if key not in arguments} | choice
    arguments |= {key: parameters.pop(key) for key in row_parameters}
    has_splits, is_compared = splits is not None, comm.world_size > 1
    mine = FitCall(
        name,
        rows,
        has_splits,
        estimator._chose_columns,
        refusal,
        {key: value_of(value) for key, value in parameters.items()} if is_compared else {},
        {key: value_of(value, compared=is_compared and rows != "own") for key, value in arguments.items()},
    )
    calls: list[FitCall] = comm._allgather_values("a fit of an estimator", mine)
    check([call.name for call in calls])
    for key in mine.parameters:
        _check_equal(calls, key)
    check([f"{name} with rows={call.rows!r}" for call in calls])
    refused = next((call.refusal for call in calls if call.refusal is not None), None)
    if refused is not None:
        raise InputError(refused)
    # A rank without rows cannot choose columns itself.
    estimator._chose_columns = any(call.chose_columns for call in calls)
    if rows not in (None, *get_args(Rows)):
        raise InputError(f"rows={rows!r}: expected 'own', 'shared' or None")
    if rows != "own":
        if is_compared:
            _check_shared(calls, name)
        return "shared", passed, has_splits
    return "own", _own_arguments(calls, mine, passed, first), any(call.has_splits for call in calls)


def _with_splits(X: Any, splits: list[Split]) -> Any:
    """Return the splits instead of a partition file, which may be missing on other hosts; return graphs unchanged."""
    return X if isinstance(X, Graph) else splits


def _read_splits(
    comm: Communicator, estimator: Any, rows: Rows, passed: dict[str, Any], *, is_graph: bool
) -> dict[str, Any]:
    """Replace splits in the arguments by their rows: all own splits, or the assigned part of shared splits.

    Raises
    ------
    InputError
        On every rank: a split cannot be read, or other arguments do not have an entry for each row.
    """
    first, source = next(iter(passed.items()))
    is_shared = rows == "shared"
    numbers: list[int] = []
    counts: list[int] = []
    with log.noted(INPUT) as notes, opening(comm):
        splits = splits_in(source)
        if splits is not None:
            numbers = assigned(splits, comm) if is_shared else list(range(len(splits)))
            mine = [splits[number] for number in numbers]
            if is_graph:
                graph = source if isinstance(source, Graph) else Graph(splits)
                passed = passed | {first: graph.of_splits(mine)}
            else:
                found, counts = read(mine, libsvm=estimator._takes_libsvm and passed.get("y") is None)
                passed = passed | {first: found}
        row_arguments = [name for name in _ROW_ARGUMENTS if not isinstance(passed.get(name), str | None)]
        if isinstance(passed.get("y"), str):
            X, y = (None, None) if passed[first] is None else without_target(passed[first], passed["y"])
            passed = passed | {first: X, "y": y}
    estimator._read_notes = tuple(notes)
    if is_graph or not is_shared:
        estimator._splits_read = [], []
        return passed
    runs_by_rank = row_runs(comm, numbers, counts)
    estimator._splits_read, estimator._row_runs = (numbers, counts), runs_by_rank[comm.rank]
    if estimator._needs_order:
        estimator._row_order = rows_of(run for runs in runs_by_rank for run in runs)
    total = sum(count for runs in runs_by_rank for _, count in runs)
    for name in row_arguments:
        values = np.asarray(passed[name])
        if len(values) != total:
            raise InputError(f"{name} has {len(values)} entries for {total} rows of the splits")
        own = values[rows_of(runs_by_rank[comm.rank])]
        passed[name] = own if len(own) or name != "y" else None
    return passed


def _check_equal(calls: Sequence[FitCall], parameter: str) -> None:
    """Raise CollectiveMismatch if a parameter differs between ranks."""
    values = [call.parameters[parameter] for call in calls]
    if len({value.digest for value in values}) > 1:
        texts = _distinct_texts(values)
        check([f"{calls[0].name} with {parameter}={text}" for text in texts])


def _check_shared(calls: Sequence[FitCall], name: str) -> None:
    """Raise CollectiveMismatch unless all ranks have the same arguments."""
    differing = [
        key
        for key, value in calls[0].arguments.items()
        if value.digest is None or any(call.arguments[key].digest != value.digest for call in calls)
    ]
    if not differing:
        return
    is_comparable = all(call.arguments[key].digest is not None for call in calls for key in differing)
    if not is_comparable and calls[0].rows == "shared":
        return
    texts = zip(*(_distinct_texts([call.arguments[key] for call in calls]) for key in differing), strict=True)
    ranks: dict[str, list[int]] = {}
    for rank, rank_texts in enumerate(texts):
        description = ", ".join(f"{key}={text}" for key, text in zip(differing, rank_texts, strict=True))
        ranks.setdefault(description, []).append(rank)
    listed = "; ".join(
        f"{'rank' if len(on) == 1 else 'ranks'} {', '.join(map(str, on))}: {description}"
        for description, on in ranks.items()
    )
    problem = "differ in" if is_comparable else "cannot compare"
    raise CollectiveMismatch(
        f"{name}: ranks {problem} {' and '.join(differing)}: {listed}: expected rows='own' if each rank passes rows of "
        "its own, or the same rows on every rank, rows='shared'"
    )


def _distinct_texts(values: Sequence[Value]) -> list[str]:
    """Return a text for each value; different values get different texts."""
    by_text: dict[str, set[str | None]] = {}
    for value in values:
        by_text.setdefault(value.text, set()).add(value.digest)
    return [
        value.text if len(by_text[value.text]) == 1 else f"{value.text} (digest {(value.digest or 'unknown')[:8]})"
        for value in values
    ]


def _own_arguments(calls: Sequence[FitCall], mine: FitCall, passed: dict[str, Any], first: str) -> dict[str, Any]:
    """Return the arguments of a rank with own rows."""
    with_rows = [rank for rank, call in enumerate(calls) if not call.arguments[first].is_empty]
    if not with_rows:
        raise InputError(f"{mine.name}: no rank has rows")
    for key in [key for key in mine.arguments if key != first]:
        ranks_without = [str(rank) for rank in with_rows if calls[rank].arguments[key].text == "None"]
        if 0 < len(ranks_without) < len(with_rows):
            raise CollectiveMismatch(
                f"{mine.name} with rows='own': {key}=None on {'rank' if len(ranks_without) == 1 else 'ranks'} "
                f"{', '.join(ranks_without)}, not on other ranks: expected it on every rank that has rows, or on none"
            )
    if not mine.arguments[first].is_empty:
        return passed
    empty = passed | {key: None for key in passed if key == first or key in _ROW_ARGUMENTS}
    if calls[with_rows[0]].arguments.get("sample_weight", _NONE).text != "None":
        empty["sample_weight"] = np.empty(0)
    return empty


def value_of(value: Any, *, compared: bool = True) -> Value:
    """Return the description of an argument, without a digest if it is not `compared`."""
    shape = getattr(value, "shape", None)
    count = shape[0] if shape else len(value) if isinstance(value, list) else None
    is_empty = value is None or (isinstance(count, int) and count == 0)
    try:
        digest = _digest(value) if compared else None
    except _NotComparable:
        digest = None
    return Value(_text(value), digest, is_empty)


def plain_fact(value: Any) -> bool | int | float | str | None:
    """Return a number or text that is equal for equal values of a parameter, for checkpoints."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, Integral | Real):
        return int(value) if isinstance(value, Integral) else float(value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        # Digest all bytes, unlike the comparison between ranks, which samples large arrays: a checkpoint may belong to
        # another call.
        content = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        return f"{_text(value)}, digest {hashlib.blake2b(content.data, digest_size=16).hexdigest()}"
    # Equal dicts may differ in their order.
    described = value_of(dict(sorted(value.items(), key=repr)) if isinstance(value, Mapping) else value)
    return f"{described.text}, digest {described.digest}"


def _text(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        dtype = getattr(value, "dtype", None)
        type_text = "" if dtype is None else f" of {dtype}"
        return f"<{type(value).__name__}{type_text}, shape {shape}>"
    if callable(value):
        return f"<function {getattr(value, '__qualname__', type(value).__name__)}>"
    text = repr(value)
    if len(text) <= _MAX_TEXT_LENGTH:
        return text
    count = f" of {len(value)}" if hasattr(value, "__len__") else ""
    return f"<{type(value).__name__}{count}>"


class _NotComparable(Exception):
    """Raised for a value that ranks cannot compare."""


def _digest(value: Any) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for piece in _pieces(value):
        digest.update(f"{len(piece)}:".encode())
        digest.update(piece)
    return digest.hexdigest()


def _pieces(value: Any) -> Iterator[bytes]:
    """Yield bytes that are equal if and only if the values are equal; large values are sampled."""
    if hasattr(value, "__dask_graph__"):
        raise _NotComparable
    if isinstance(value, bool | np.bool_):
        yield repr(bool(value)).encode()
    elif isinstance(value, str | bytes | ModuleType | np.dtype | pa.Schema) or value is None:
        yield repr(value).encode(errors="surrogatepass")
    elif isinstance(value, int | float | np.integer | np.floating):
        # Equal numbers of different types count as equal parameters.
        whole = int(value) if float(value).is_integer() else None
        yield repr(float(value) if whole is None else whole).encode()
    elif isinstance(value, os.PathLike):
        yield repr(os.fspath(value)).encode(errors="surrogatepass")
    elif isinstance(value, np.random.RandomState):
        yield _digest(value.get_state(legacy=True)).encode()
    elif isinstance(value, np.random.Generator):
        yield _digest(value.bit_generator.state).encode()
    elif isinstance(value, np.ndarray):
        yield from _array_pieces(value)
    elif issparse(value):
        matrix: Any = value
        rows = matrix.tocsr()
        yield repr(rows.shape).encode()
        for part in (rows.indptr, rows.indices, rows.data):
            yield from _array_pieces(part)
    elif hasattr(value, "iloc") or hasattr(value, "__arrow_c_stream__"):
        yield from _frame_pieces(value)
    elif isinstance(value, list | tuple | set | frozenset):
        yield from _list_pieces(value)
    elif isinstance(value, Mapping):
        yield from sorted(_digest((key, each)).encode() for key, each in value.items())
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield type(value).__qualname__.encode()
        for field in dataclasses.fields(value):
            yield _digest(getattr(value, field.name)).encode()
    elif isinstance(value, Graph):
        yield _digest(vars(value)).encode()
    elif hasattr(value, "nodes") and hasattr(value, "edges"):
        yield type(value).__qualname__.encode()
        yield repr(list(value.nodes(data=True))).encode()
        yield repr(list(value.edges(data=True))).encode()
    elif hasattr(value, "__array__"):
        yield from _array_pieces(np.asarray(value))
    elif callable(value):
        yield fingerprint({"": value}).encode()
    else:
        raise _NotComparable


def _array_pieces(array: NDArray[Any]) -> Iterator[bytes]:
    yield f"{array.dtype} {array.shape}".encode()
    if array.dtype.hasobject:
        flat = array.ravel()
        yield repr(flat[_sample_rows(len(flat))].tolist()).encode(errors="surrogatepass")
        return
    if array.nbytes <= DIGEST_BYTES:
        yield np.ascontiguousarray(array).tobytes()
        return
    row_bytes = array.nbytes // max(len(array), 1)
    block_rows = max(1, _BLOCK_BYTES // max(row_bytes, 1))
    block_count = max(1, DIGEST_BYTES // max(block_rows * row_bytes, 1))
    for begin in np.linspace(0, len(array) - block_rows, block_count).astype(np.int64).tolist():
        yield np.ascontiguousarray(array[begin : begin + block_rows]).tobytes()


def _frame_pieces(frame: Any) -> Iterator[bytes]:
    if hasattr(frame, "iloc"):
        names = frame.columns if hasattr(frame, "columns") else [getattr(frame, "name", "")]
        yield repr([str(name) for name in names]).encode()
        yield repr(frame.shape).encode()
        sample = frame.iloc[_sample_rows(len(frame))]
        yield repr(sample.to_numpy().tolist()).encode(errors="surrogatepass")
        return
    table = pa.table(frame) if not hasattr(frame, "to_pylist") else frame
    yield repr(getattr(table, "schema", getattr(table, "type", None))).encode()
    yield repr(len(table)).encode()
    yield repr(table.take(pa.array(_sample_rows(len(table)))).to_pylist()).encode(errors="surrogatepass")


def _list_pieces(values: Any) -> Iterator[bytes]:
    yield f"{type(values).__name__} {len(values)}".encode()
    if isinstance(values, set | frozenset):
        yield from sorted(_digest(each).encode() for each in values)
        return
    if values and isinstance(values[0], int | float | str | list | tuple):
        try:
            array = np.asarray(values)
        except ValueError:  # rows of different lengths
            array = np.empty(0, object)
        if not array.dtype.hasobject:
            yield from _array_pieces(array)
            return
    for index in _sample_rows(len(values)).tolist():
        yield _digest(values[index]).encode()


def _sample_rows(count: int) -> NDArray[np.int64]:
    """Return evenly spread row numbers, including the first and the last."""
    return np.unique(np.linspace(0, max(count - 1, 0), min(count, SAMPLE_ROWS)).astype(np.int64))


_NONE = Value("None", None, is_empty=True)
