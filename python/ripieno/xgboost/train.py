"""`train`: XGBoost training on rows that are divided among workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ripieno._checks import check_count
from ripieno.algorithms.inputs import rows_in_memory
from ripieno.algorithms.worker_estimator import WorkerEstimator
from ripieno.comm.agreement import agreement
from ripieno.errors import InputError
from ripieno.input import TableFiles
from ripieno.input.matrix import Dataset, RowsInMemory, is_path_like, open_source
from ripieno.wire.arrays import check_complete, check_unmasked
from ripieno.xgboost.network import network

if TYPE_CHECKING:
    from xgboost import Booster, DMatrix

    from ripieno.comm.communicator import Communicator
    from ripieno.launch import Job
    from ripieno.launch.engine.contract import Engine

# Tree methods based on histograms, which ranks can add up.
_METHODS = ("auto", "approx", "hist")


@dataclass(frozen=True)
class LabeledRows:
    """The source of rows for XGBoost, with labels and weights.

    Parameters
    ----------
    source
        The rows.
    labels
        Labels of all rows, or the name of the label column in files.
    weights
        Weights of all rows, or None.
    name
        Name of the rows in evaluations.
    """

    source: Dataset | RowsInMemory
    labels: NDArray[Any] | str
    weights: NDArray[Any] | None
    name: str

    @classmethod
    def of(cls, X: Any, y: Any, weights: ArrayLike | None, name: str) -> LabeledRows:
        """Create the rows from a user's arguments; an `InputError` names the argument."""
        if is_path_like(X) or isinstance(X, TableFiles):
            source: Dataset | RowsInMemory = open_source(X)
        else:
            check_unmasked(X, name)
            rows = np.asarray(rows_in_memory(X))
            if rows.ndim != 2 or rows.dtype.kind not in "biuf":
                raise InputError(f"{name}: shape {rows.shape}, dtype {rows.dtype}: expected rows of numbers")
            source = RowsInMemory(rows)
        if isinstance(y, str):
            if not isinstance(source, Dataset) or y not in (source.column_names or ()):
                raise InputError(f"{name}: no column is called {y!r}: expected the column of labels")
            return cls(source, y, _one_each(weights, source, f"weights of {name}"), name)
        labels = _one_each(y, source, f"labels of {name}")
        if labels is None:
            raise InputError(f"{name}: labels are missing")
        return cls(source, labels, _one_each(weights, source, f"weights of {name}"), name)

    def of_rank(self, comm: Communicator) -> DMatrix:
        """Return this rank's share, which may be empty."""
        import xgboost

        with agreement(comm):
            points = self.source.read_share(comm.rank, comm.world_size).points
        counts = comm.allgather(len(points))
        first, total = sum(counts[: comm.rank]), sum(counts)
        labels: Any = self.labels
        if isinstance(labels, str):
            assert isinstance(self.source, Dataset) and self.source.column_names is not None
            column = self.source.column_names.index(labels)
            labels, points = points[:, column], np.delete(points, column, axis=1)
        else:
            if len(labels) != total:
                raise InputError(f"labels of {self.name}: {len(labels)} for {total} rows")
            labels = labels[first : first + len(points)]
        weights = None if self.weights is None else self.weights[first : first + len(points)]
        return xgboost.DMatrix(points, labels, weight=weights, nthread=comm.threads)


def train(
    params: Mapping[str, Any],
    X: Any,
    y: ArrayLike | str,
    num_boost_round: int = 10,
    *,
    weights: ArrayLike | None = None,
    evals: Sequence[tuple[Any, Any, str]] = (),
    evals_result: dict[str, Any] | None = None,
    early_stopping_rounds: int | None = None,
    maximize: bool | None = None,
    workers: int = 1,
    threads: int | None = None,
    engine: str | Engine | Job = "local",
    on_failure: Literal["raise", "shrink", "respawn"] = "raise",
    comm: Communicator | None = None,
) -> Booster:
    """Train a booster on rows that are divided among workers.

    Parameters
    ----------
    params
        Parameters of XGBoost. ``nthread`` defaults to the worker's share of cores.
    X : array-like of shape (n_samples, n_features), path, glob or list of paths
        Rows; NaN is a missing value. From files (.npy, .npz, .csv, .parquet) each worker reads its own share.
    y : array-like of shape (n_samples,), or str
        Labels; for files with named columns, the name of the label column.
    num_boost_round : int
        Maximum number of rounds.
    weights : array-like of shape (n_samples,), optional
        Weights of the rows.
    evals : sequence of (X, y, name)
        Rows for evaluation after each round, divided like the training rows.
    evals_result : dict, optional
        Receives the results of evaluations, by name and metric.
    early_stopping_rounds : int, optional
        Stop after this many rounds without an improvement on the last of `evals`.
    maximize : bool, optional
        Whether larger values of the metric are better.
    workers, threads, engine, on_failure
        As in estimators; see `ripieno.launch`.
    comm : Communicator, optional
        Ranks that all make this call with equal rows, instead of workers. Every rank gets the booster.

    Returns
    -------
    xgboost.Booster
        The trained booster, equal on every rank.

    Raises
    ------
    InputError
        If an argument is invalid, or the parameters do not support several workers.
    RankFailed
        If a worker died.
    RipienoError
        If XGBoost's ranks did not join.

    Notes
    -----
    Splits come from histograms over quantiles of all rows, which depend slightly on the division of the rows. For a
    fixed number of workers, repeated runs give equal trees. Other numbers of workers give trees of equal quality.
    """
    import xgboost

    check_count("num_boost_round", num_boost_round)
    method = params.get("tree_method", "auto")
    if method not in _METHODS:
        raise InputError(f"tree_method={method!r}: with several workers, expected one of {', '.join(_METHODS)}")
    rows = LabeledRows.of(X, y, weights, "X")
    evaluated = [LabeledRows.of(evaluated_rows, labels, None, _checked(name)) for evaluated_rows, labels, name in evals]
    options = {"early_stopping_rounds": early_stopping_rounds, "maximize": maximize, "verbose_eval": False}
    ranks = WorkerEstimator(workers=workers, threads=threads, engine=engine, on_failure=on_failure)
    model, results = ranks._run(_train, rows, evaluated, dict(params), num_boost_round, options, comm=comm)[0]
    if evals_result is not None:
        evals_result.update(results)
    booster = xgboost.Booster()
    booster.load_model(bytearray(model))
    return booster


def _train(
    comm: Communicator,
    rows: LabeledRows,
    evaluated: Sequence[LabeledRows],
    params: dict[str, Any],
    num_boost_round: int,
    options: dict[str, Any],
) -> tuple[bytes, dict[str, Any]]:
    import xgboost

    results: dict[str, Any] = {}
    with network(comm):
        dtrain = rows.of_rank(comm)
        evals = [(each.of_rank(comm), each.name) for each in evaluated]
        params = {"nthread": comm.threads, **params}
        booster = xgboost.train(params, dtrain, num_boost_round, evals=evals, evals_result=results, **options)
    return (bytes(booster.save_raw("ubj")), results) if comm.rank == 0 else (b"", {})


def _checked(name: str) -> str:
    """Return the name of an evaluation if XGBoost can parse it in its own log lines."""
    if not isinstance(name, str) or not name or any(letter.isspace() or letter in ":-" for letter in name):
        raise InputError(f"evals: name {name!r}: expected a word without spaces, colons and dashes")
    return name


def _one_each(given: Any, source: Dataset | RowsInMemory, name: str) -> NDArray[Any] | None:
    if given is None:
        return None
    check_complete(given, name)
    found = np.asarray(given)
    if found.ndim != 1 or found.dtype.kind not in "biuf":
        raise InputError(f"{name}: shape {found.shape}, dtype {found.dtype}: expected a number for each row")
    if isinstance(source, RowsInMemory) and len(found) != source.row_count:
        raise InputError(f"{name}: {len(found)} for {source.row_count} rows")
    return found
