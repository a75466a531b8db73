"""Reports of fits: outcome, time breakdown of each rank, and code that repeats the fit.

The decorator `reported` wraps each ``fit``. It creates a report for estimators without their own report, and
adds the parts that all reports share.
"""

from __future__ import annotations

import logging
import resource
import time
from collections.abc import Callable, Mapping, Sequence, Sized
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ripieno import log
from ripieno.algorithms.clock import IterationTime
from ripieno.algorithms.parameters import names_of
from ripieno.algorithms.predictions import Predictions, of_classes, of_targets
from ripieno.algorithms.progress import Progress
from ripieno.algorithms.repeated import repeating_code
from ripieno.comm.thread_statistics import ThreadStatisticsStart
from ripieno.files.results import ResultPath, write_text
from ripieno.files.tables import check_format
from ripieno.input.split import LOGGER as INPUT
from ripieno.units import duration_text

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

logger = logging.getLogger("ripieno.algorithms")

Fit = TypeVar("Fit", bound=Callable[..., Any])

#: Maximum numbers of positions, cluster profiles and coefficients that a page shows.
MAX_POINT_COUNT = 3000
MAX_PROFILE_COUNT = 50
MAX_COEFFICIENT_COUNT = 30
#: Counted statistics of a communicator.
TRAFFIC = ("call_count", "seconds_communicating", "bytes_sent", "bytes_received", "seconds_serializing")


@dataclass(frozen=True)
class RankFacts:
    """The time breakdown of a rank during a fit.

    Parameters
    ----------
    host
        Host of the rank.
    threads
        Number of its compute threads.
    program_s
        Seconds that its program ran. Time outside the categories below is computation.
    waiting_s
        Seconds of waits for other ranks in communication calls.
    transfer_s
        Remaining seconds in communication calls, which transfer or combine bytes.
    serializing_s
        Seconds of serializing and deserializing objects. Arrays are not serialized.
    bytes_sent, bytes_received
        Payload bytes.
    memory_bytes
        Peak memory of its process so far.
    traffic
        Statistics of its communicator and of the threads of its kernels during the fit, as in `Communicator.stats`.
    notes
        Notes about damaged copies of partitions that the rank replaced by other copies.
    """

    host: str
    threads: int
    program_s: float
    waiting_s: float
    transfer_s: float
    serializing_s: float
    bytes_sent: int
    bytes_received: int
    memory_bytes: int
    traffic: dict[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def computing_s(self) -> float:
        """Seconds of computation: program time minus all other categories."""
        return max(self.program_s - self.waiting_s - self.transfer_s - self.serializing_s, 0.0)


@dataclass(frozen=True)
class About:
    """The subject of a report.

    Parameters
    ----------
    estimator
        Class name of the estimator.
    outcome
        Outcome of the fit, as text.
    parameters
        Parameters of the estimator.
    code
        Code that repeats the fit: Python or a command line.
    results
        Scalar results of the fit, by name.
    points
        Points in a plane to draw, (n, 2 or more), if the result has any.
    sizes
        Size of each point, (n,), if known.
    profiles
        For clusters of rows with named columns: the name of each column, and its values by cluster.
    rows, row_clusters
        A sample of the rows in the same plane, (m, 2), and the cluster of each, (m,), unless the rows are sparse.
    coefficients
        The largest coefficients of a linear model, by the name of their column, the largest first.
    coefficient_count
        Number of all coefficients.
    variance_shares
        Share of the variance of each axis, for principal components.
    target
        Name of the predicted column, if known.
    predictions
        Predictions for some of the rows.
    """

    estimator: str
    outcome: str
    parameters: Mapping[str, Any]
    code: str
    results: Mapping[str, float] = field(default_factory=dict)
    points: NDArray[np.float64] | None = None
    sizes: NDArray[np.int64] | None = None
    profiles: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    rows: NDArray[np.float64] | None = None
    row_clusters: NDArray[np.int64] | None = None
    coefficients: Mapping[str, float] = field(default_factory=dict)
    coefficient_count: int = 0
    variance_shares: NDArray[np.float64] | None = None
    target: str | None = None
    predictions: Predictions | None = None


def _shortened(value: object) -> str:
    """Return a value as text, or the length of a sequence or mapping."""
    return repr(value) if isinstance(value, str) or not isinstance(value, Sized) else f"<{len(value)}>"


class ShownReport:
    """A report that renders itself in a notebook and can be saved to a file."""

    ranks: tuple[RankFacts, ...]

    @property
    def traffic(self) -> tuple[dict[str, Any], ...]:
        """Communication and kernel threads of each rank during the fit, as in `Communicator.stats`."""
        return tuple(each.traffic for each in self.ranks)

    def __repr__(self) -> str:
        entries = ((each.name, getattr(self, each.name)) for each in fields(self))  # type: ignore[arg-type]
        shown = (f"{name}={_shortened(value)}" for name, value in entries if value is not None and name != "about")
        return f"{type(self).__name__}({', '.join(shown)})"

    def _repr_html_(self) -> str:
        from ripieno.report import framed

        return framed(self)

    def save(self, path: ResultPath) -> None:
        """Write the report as a self-contained page.

        Parameters
        ----------
        path : path or URL
            File to write. An existing file is replaced.

        Raises
        ------
        InputError
            The file cannot be written.
        """
        from ripieno.report import page_of

        check_format(path, (".html", ".htm"))
        html = page_of(self)
        write_text(path, html)


@dataclass(frozen=True, kw_only=True, repr=False)
class PlainReport(ShownReport):
    """The report of a fit. Reports of iterative fits have more fields.

    Parameters
    ----------
    iterations
        Time of each iteration; empty for fits that record none.
    total_s
        Seconds from the call of fit to its end, including the start of workers.
    ranks
        Time breakdown of each rank.
    about
        Subject of the report.
    """

    iterations: tuple[IterationTime, ...] = ()
    total_s: float = 0.0
    ranks: tuple[RankFacts, ...] = ()
    about: About | None = None


class MeasuredProgram:
    """Wraps a program and returns its result with the `RankFacts` of its rank."""

    def __init__(self, program: Callable[..., Any]) -> None:
        self._program = program
        # Name for errors and warnings.
        self.__qualname__ = getattr(getattr(program, "func", program), "__qualname__", "fit")

    def __call__(self, comm: Communicator, *arguments: Any) -> tuple[Any, RankFacts]:
        stats_before, threads_before, start_s = comm.stats(), ThreadStatisticsStart(), time.perf_counter()
        with log.noted(INPUT) as notes:
            result = self._program(comm, *arguments)
        program_s = time.perf_counter() - start_s
        # A program that restarted on the survivors has a new communicator.
        is_new, comm = comm._latest is not comm, comm._latest
        stats_after = comm.stats() if not comm.closed else stats_before
        if is_new:
            stats_before = dict.fromkeys(stats_before, 0) | {"seconds_waited_for": [0.0] * comm.world_size}
        traffic = {name: stats_after[name] - stats_before[name] for name in TRAFFIC}
        waits = zip(stats_after["seconds_waited_for"], stats_before["seconds_waited_for"], strict=True)
        traffic["seconds_waited_for"] = [after - before for after, before in waits]
        traffic["threads"] = threads_before.until_now()
        waited_s = sum(traffic["seconds_waited_for"])
        return result, RankFacts(
            host=comm.hosts[comm.rank],
            threads=comm.threads,
            program_s=program_s,
            waiting_s=max(waited_s, 0.0),
            transfer_s=max(traffic["seconds_communicating"] - waited_s, 0.0),
            serializing_s=traffic["seconds_serializing"],
            bytes_sent=traffic["bytes_sent"],
            bytes_received=traffic["bytes_received"],
            memory_bytes=1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            traffic=traffic,
            notes=tuple(notes),
        )


def report_warning() -> AbstractContextManager[None]:
    """Return a context that turns errors of report creation into warnings, so that the fit itself succeeds."""
    return log.warn_on_failure("ripieno.algorithms", "the report of the fit")


def reported(fit: Fit) -> Fit:
    """Wrap a ``fit``: ranks compare their calls first, and `report_` is completed afterwards."""
    # Imported here, because workers import this module and must not import scikit-learn.
    from ripieno.algorithms.column_choice import completed_signature
    from ripieno.algorithms.same_call import same_call

    compared, called = same_call(fit), completed_signature(fit)

    @wraps(compared)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        for name in ("report_", "_drawn"):
            self.__dict__.pop(name, None)
        start_s = time.perf_counter()
        self._is_fitting = True
        logger.info("%s begins", type(self).__name__)
        try:
            result = compared(self, *args, **kwargs)
        finally:
            del self._is_fitting
            listener = getattr(self, "on_iteration", None)
            if isinstance(listener, Progress):
                listener.done()
        report = self.__dict__.pop("report_", None) or PlainReport()
        report = replace(report, ranks=self._facts_of_ranks, total_s=time.perf_counter() - start_s)
        self.report_ = report
        drawn = self.__dict__.pop("_drawn", None)
        with report_warning():
            passed = called.bind(self, *args, **kwargs).arguments
            del passed["self"]
            about = _about(self, passed, drawn, report)
            if report.about is not None:
                # In a fit on splits, only the ranks have rows to show.
                about = replace(report.about, parameters=about.parameters, code=about.code)
            self.report_ = replace(self.report_, about=about)
        duration = duration_text(time.perf_counter() - start_s)
        ranks = len(self._facts_of_ranks)
        logger.info("%s on %d rank%s: %s, %s", type(self).__name__, ranks, "s"[: ranks != 1], _outcome(self), duration)
        return result

    cast(Any, wrapped).__signature__ = called
    return cast(Fit, wrapped)


def joined(parts: Sequence[tuple[NDArray[Any], ...] | None]) -> tuple[NDArray[Any], ...] | None:
    """Return the rows of all ranks that a report shows, in rank order; None if a rank has none."""
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        return None
    return tuple(np.concatenate(each) for each in zip(*found, strict=True))


def _about(model: Any, passed: Mapping[str, Any], drawn: tuple[NDArray[Any], ...] | None, report: Any) -> About:
    names = [str(name) for name in getattr(model, "feature_names_in_", ())]
    centers = getattr(model, "cluster_centers_", None)
    points, sizes, profiles = getattr(model, "embedding_", getattr(model, "positions_", None)), None, {}
    rows = clusters = predictions = None
    shares = getattr(model, "explained_variance_ratio_", None)
    if shares is not None and drawn is not None:
        (points,) = drawn
    if centers is not None:
        project = _plane_projection(centers)
        points, sizes = project(centers[:MAX_POINT_COUNT]), getattr(report, "cluster_sizes", None)
        if drawn is not None:
            rows, clusters = project(drawn[0]), drawn[1].astype(np.int64)
        profiles = {
            name: np.asarray(centers[:MAX_PROFILE_COUNT, column], np.float64) for column, name in enumerate(names)
        }
    if hasattr(model, "coef_") and drawn is not None:
        actual, predicted = drawn
        predictions = (
            of_classes(actual, predicted, model.classes_, report.row_count)
            if hasattr(model, "classes_")
            else of_targets(actual, predicted, report.row_count)
        )
    is_plane = points is not None and points.ndim == 2 and points.shape[1] >= 2
    return About(
        estimator=type(model).__name__,
        outcome=_outcome(model),
        parameters=_parameters(model),
        code=repeating_code(model, passed, names_of(type(model), "model", "tuning", "saving", "running")),
        results={
            name[:-1].removeprefix("n_").replace("_", " "): float(value)
            for name, value in vars(model).items()
            if _is_result(name, value)
        },
        points=np.asarray(points, np.float64)[:MAX_POINT_COUNT] if is_plane and points is not None else None,
        sizes=sizes,
        profiles=profiles,
        rows=rows,
        row_clusters=clusters,
        coefficients=_largest_coefficients(model, names),
        coefficient_count=np.size(getattr(model, "coef_", ())),
        variance_shares=shares,
        target=getattr(model, "_target_name", None),
        predictions=predictions,
    )


def _largest_coefficients(model: Any, names: Sequence[str]) -> dict[str, float]:
    """Return the largest coefficients of a linear model by column, and by class if there are several."""
    coefficients = getattr(model, "coef_", None)
    if not isinstance(coefficients, np.ndarray) or not coefficients.size:
        return {}
    table = np.atleast_2d(coefficients)
    classes = [f"{name}: " for name in getattr(model, "classes_", range(len(table)))] if len(table) > 1 else [""]
    count = min(MAX_COEFFICIENT_COUNT, table.size)
    largest = np.argpartition(-np.abs(table), count - 1, axis=None)[:count]
    order = largest[np.argsort(-np.abs(table.ravel()[largest]), kind="stable")]
    places = [divmod(int(at), table.shape[1]) for at in order]
    return {
        f"{classes[row]}{names[column] if names else f'column {column}'}": float(table[row, column])
        for row, column in places
    }


def _is_result(name: str, value: Any) -> bool:
    is_own = name.endswith("_") and not name.startswith(
        ("_", "n_iter", "n_features", "n_samples", "n_steps", "resumed", "first_column", "noise_variance")
    )
    return is_own and isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _outcome(model: Any) -> str:
    """Return the outcome of the fit as text."""
    count, max_iter = getattr(model, "n_iter_", None), getattr(model, "max_iter", None)
    if count is None:
        return "done"
    iterations = f"{count} iteration{'' if count == 1 else 's'}"
    if isinstance(max_iter, int) and count >= max_iter:
        return f"hit max_iter: stopped after {iterations}, and may not have converged"
    return f"converged after {iterations}" if max_iter is not None else f"done after {iterations}"


def _parameters(model: Any) -> dict[str, Any]:
    """Return all listed parameters.

    A job or session is replaced by its `repr`, because the report may outlive it.
    """
    listed = {name: getattr(model, name) for name in names_of(type(model), "model", "saving", "running")}
    if not isinstance(listed.get("engine"), str | None):
        listed["engine"] = repr(listed["engine"])
    return listed


def _plane_projection(centers: NDArray[Any]) -> Callable[[NDArray[Any]], NDArray[np.float64]]:
    """Return the projection onto the two directions with the largest spread of the centers."""
    points = np.asarray(centers[:MAX_POINT_COUNT], np.float64)
    if points.shape[1] <= 2 or len(points) < 2:
        return lambda rows: np.asarray(rows, np.float64)
    center = points.mean(axis=0)
    _, _, axes = np.linalg.svd(points - center, full_matrices=False)
    return lambda rows: cast("NDArray[np.float64]", (np.asarray(rows, np.float64) - center) @ axes[:2].T)
