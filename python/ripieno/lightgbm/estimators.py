"""LightGBM's estimators, trained on ranks that they start themselves."""

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

#: Parameters of these estimators that LightGBM does not have.
_OWN = ("workers", "engine", "threads", "tree_learner")
#: Arguments of `fit` with one value per row.
_PER_ROW = ("sample_weight", "init_score")


class _Distributed:
    """Mixin that trains an estimator on ranks; LightGBM's class comes after it in the bases."""

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
        # Parameters for LightGBM itself, for predictions.
        params: dict[str, Any] = super()._process_params(stage)  # type: ignore[misc]  # of LightGBM's own class
        return {name: value for name, value in params.items() if name not in _OWN}

    def fit(self, X: Any, y: Any, **options: Any) -> Self:
        """Train on ranks, which divide the rows among them.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame of shape (n_samples, n_features)
            Row i goes to rank i modulo `workers`; with groups, whole groups of rows are assigned to ranks.
        y : array of shape (n_samples,)
            Labels, targets or relevances. Each class must have at least as many rows as there are workers.
        **options
            As in LightGBM's own class: "sample_weight", "init_score", "group", "eval_set" and related options,
            "callbacks", "categorical_feature" … Every rank evaluates the complete evaluation sets, so early stopping
            ends all ranks in the same round.

        Returns
        -------
        self
            The fitted estimator, with the attributes of LightGBM's own class.
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
        # Parameters keep the user's values; network parameters are not copied.
        unchanged = {*params, *fitted.get_params(), "_other_params"}
        self.__dict__.update({name: value for name, value in fitted.__dict__.items() if name not in unchanged})
        return self


class LGBMClassifier(_Distributed, lightgbm.LGBMClassifier):
    """`lightgbm.LGBMClassifier` on `workers` ranks.

    Parameters
    ----------
    workers : int
        Number of ranks.
    engine : str or object
        Where the ranks run, as in `ripieno.launch`: "local", a SparkSession, a Dask client …, or a `Job`.
    threads : int, optional
        Threads of each rank; by default its share of the cores.
    tree_learner : {"data", "voting"}
        Distribution of the work, as in `network`.
    **params
        Parameters of LightGBM's class.

    Examples
    --------
    >>> import numpy as np, ripieno as rp
    >>> x = np.random.default_rng(0).normal(size=(400, 3))
    >>> model = rp.lightgbm.LGBMClassifier(workers=2, n_estimators=10, verbose=-1).fit(x, x[:, 0] > 0)
    >>> bool(model.score(x, x[:, 0] > 0) > 0.95)
    True
    """


class LGBMRegressor(_Distributed, lightgbm.LGBMRegressor):
    """`lightgbm.LGBMRegressor` on `workers` ranks; parameters as in `LGBMClassifier`."""


class LGBMRanker(_Distributed, lightgbm.LGBMRanker):
    """`lightgbm.LGBMRanker` on `workers` ranks; parameters as in `LGBMClassifier`. Groups are never divided."""


def _train(
    comm: Communicator, kind: Any, params: dict[str, Any], tree_learner: Any, X: Any, y: Any, options: dict[str, Any]
) -> Any:
    """Train on this rank's rows; return the estimator on rank 0."""
    group = options.get("group")
    rows, groups = _rows_of(comm, len(y), group)
    own = options | {name: _rows_at(options[name], rows) for name in _PER_ROW if options.get(name) is not None}
    if group is not None:
        own["group"] = np.asarray(group)[groups]
    part = np.asarray(_rows_at(y, rows))
    if issubclass(kind, lightgbm.LGBMClassifier):
        _check_classes(comm, np.asarray(y), part)
    with network(comm, tree_learner) as net:
        fitted = kind(**(params | net.params)).fit(_rows_at(X, rows), part, **own)
    return fitted if comm.rank == 0 else None


def _rows_of(comm: Communicator, row_count: int, group: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of this rank, and the sizes of its groups."""
    if group is None:
        return np.arange(comm.rank, row_count, comm.world_size), np.empty(0, np.int64)
    sizes = np.asarray(group, np.int64)
    if sizes.sum() != row_count:
        raise InputError(f"group: sizes that add up to {sizes.sum()}: expected {row_count}, one for each row")
    groups = np.arange(comm.rank, len(sizes), comm.world_size)
    stops = sizes.cumsum()
    ranges = [np.arange(stops[each] - sizes[each], stops[each]) for each in groups]
    return np.concatenate(ranges) if ranges else np.empty(0, np.int64), groups


def _rows_at(values: Any, rows: NDArray[np.int64]) -> Any:
    return (
        values.iloc[rows]
        if hasattr(values, "iloc")
        else np.asarray(values)[rows]
        if isinstance(values, (list, tuple))
        else values[rows]
    )


def _check_classes(comm: Communicator, labels: NDArray[Any], part: NDArray[Any]) -> None:
    """Raise unless this rank has rows of all classes: LightGBM numbers the classes that a rank has."""
    missing = np.setdiff1d(np.unique(labels), np.unique(part))
    if len(missing):
        raise InputError(
            f"y: rank {comm.rank} has no row of class {missing[0]!r} in its every {comm.world_size}th row: expected "
            "rows of each class on every rank; shuffle the rows, or take fewer workers"
        )
