"""LightGBM's estimators, trained by ranks that start by themselves."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ripieno._extras import needs
from ripieno.comm.communicator import Communicator
from ripieno.errors import InputError
from ripieno.launch import Job, launch
from ripieno.lightgbm.exchange import LEARNERS, network

with needs("lightgbm"):
    import lightgbm

#: What is ours among the parameters of an estimator.
_OWN = ("workers", "engine", "threads", "tree_learner")
#: What `fit` takes one value of per row.
_PER_ROW = ("sample_weight", "init_score")


class _Distributed:
    """What an estimator needs to train on ranks; the class of LightGBM comes after it."""

    def __init__(
        self,
        *,
        workers: int = 2,
        engine: Any = "local",
        threads: int | None = None,
        tree_learner: str = "data",
        **params: Any,
    ) -> None:
        self.workers = workers
        self.engine = engine
        self.threads = threads
        self.tree_learner = tree_learner
        super().__init__(**params)

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted({*_OWN, *super()._get_param_names()})  # type: ignore[misc]  # of scikit-learn's BaseEstimator

    def _process_params(self, stage: str) -> dict[str, Any]:
        # What LightGBM itself is told, to predict.
        params: dict[str, Any] = super()._process_params(stage)  # type: ignore[misc]  # of LightGBM's own class
        return {name: value for name, value in params.items() if name not in _OWN}

    def fit(self, X: Any, y: Any, **options: Any) -> Self:
        """Train on ranks, which share the rows among them.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame of shape (n_samples, n_features)
            Row i goes to rank i modulo `workers`; whole groups of rows where there are groups.
        y : array of shape (n_samples,)
            Labels, targets or relevances. Each class has at least as many rows as there are workers.
        **options
            As of LightGBM's own class: "sample_weight", "init_score", "group", "eval_set" and what belongs to it,
            "callbacks", "categorical_feature" … Every rank evaluates on the whole of the evaluation sets, so that all
            stop early together.

        Returns
        -------
        self
            As LightGBM's own class leaves it.
        """
        if self.tree_learner not in LEARNERS:
            raise InputError(f"tree_learner={self.tree_learner!r}: expected one of {', '.join(LEARNERS)}")
        kind = next(each for each in type(self).__mro__ if each.__module__.startswith("lightgbm."))
        params = {name: value for name, value in self.get_params().items() if name not in _OWN}  # type: ignore[attr-defined]
        arguments = (kind, params, self.tree_learner, X, y, options)
        if isinstance(self.engine, Job):
            fitted = self.engine.run(_train, *arguments)[0]
        else:
            with launch(self.workers, engine=self.engine, threads=self.threads) as job:
                fitted = job.run(_train, *arguments)[0]
        # Parameters stay as they were given, without those of the network.
        kept = {*params, *fitted.get_params(), "_other_params"}
        self.__dict__.update({name: value for name, value in fitted.__dict__.items() if name not in kept})
        return self


class LGBMClassifier(_Distributed, lightgbm.LGBMClassifier):
    """`lightgbm.LGBMClassifier` on `workers` ranks.

    Parameters
    ----------
    workers : int
        How many ranks train.
    engine : str or object
        Where they run, as of `ripieno.launch`: "local", a SparkSession, a Dask client …, or a `Job`.
    threads : int, optional
        Threads of each rank; by default its share of the cores.
    tree_learner : {"data", "voting"}
        As of `network`.
    **params
        Those of LightGBM's class.

    Examples
    --------
    >>> import numpy as np, ripieno as rp
    >>> x = np.random.default_rng(0).normal(size=(400, 3))
    >>> model = rp.lightgbm.LGBMClassifier(workers=2, n_estimators=10, verbose=-1).fit(x, x[:, 0] > 0)
    >>> bool(model.score(x, x[:, 0] > 0) > 0.95)
    True
    """


class LGBMRegressor(_Distributed, lightgbm.LGBMRegressor):
    """`lightgbm.LGBMRegressor` on `workers` ranks; parameters as of `LGBMClassifier`."""


class LGBMRanker(_Distributed, lightgbm.LGBMRanker):
    """`lightgbm.LGBMRanker` on `workers` ranks; parameters as of `LGBMClassifier`. Groups are never divided."""


def _train(
    comm: Communicator, kind: Any, params: dict[str, Any], tree_learner: Any, X: Any, y: Any, options: dict[str, Any]
) -> Any:
    """Train on this rank's rows; the estimator, from rank 0."""
    group = options.get("group")
    rows, groups = _rows_of(comm, len(y), group)
    mine = options | {name: _taken(options[name], rows) for name in _PER_ROW if options.get(name) is not None}
    if group is not None:
        mine["group"] = np.asarray(group)[groups]
    part = np.asarray(_taken(y, rows))
    if issubclass(kind, lightgbm.LGBMClassifier):
        _check_classes(comm, np.asarray(y), part)
    with network(comm, tree_learner) as net:
        fitted = kind(**(params | net.params)).fit(_taken(X, rows), part, **mine)
    return fitted if comm.rank == 0 else None


def _rows_of(comm: Communicator, row_count: int, group: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows of this rank, and its groups of rows."""
    if group is None:
        return np.arange(comm.rank, row_count, comm.world_size), np.empty(0, np.int64)
    sizes = np.asarray(group, np.int64)
    if sizes.sum() != row_count:
        raise InputError(f"group: sizes that add up to {sizes.sum()}: expected {row_count}, one for each row")
    groups = np.arange(comm.rank, len(sizes), comm.world_size)
    stops = sizes.cumsum()
    ranges = [np.arange(stops[each] - sizes[each], stops[each]) for each in groups]
    return np.concatenate(ranges) if ranges else np.empty(0, np.int64), groups


def _taken(values: Any, rows: NDArray[np.int64]) -> Any:
    return (
        values.iloc[rows]
        if hasattr(values, "iloc")
        else np.asarray(values)[rows]
        if isinstance(values, (list, tuple))
        else values[rows]
    )


def _check_classes(comm: Communicator, labels: NDArray[Any], part: NDArray[Any]) -> None:
    """Each rank numbers the classes that it sees, so all have to see all."""
    missing = np.setdiff1d(np.unique(labels), np.unique(part))
    if len(missing):
        raise InputError(
            f"y: rank {comm.rank} has no row of class {missing[0]!r} in its every {comm.world_size}th row: expected "
            "rows of each class on every rank; shuffle the rows, or take fewer workers"
        )
