"""Base classes of estimators that run their programs on workers, or on the ranks of a communicator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
from sklearn.utils import check_random_state

from ripieno._types import Rows
from ripieno.algorithms.documentation import document
from ripieno.algorithms.parameters import (
    FitParameters,
    ObservedParameters,
    WorkerParameters,
    arguments_of,
    check_parameters,
    compared_parameters,
    options_of,
    parameters_of,
    warn_of_names,
    with_current_names,
)
from ripieno.algorithms.reported import MeasuredProgram, RankFacts
from ripieno.algorithms.result_folder import SavedEstimator
from ripieno.algorithms.same_call import plain_fact
from ripieno.checkpoints.iterations import CheckpointOptions
from ripieno.errors import InputError
from ripieno.files.sources import absolute
from ripieno.input.matrix import Dataset, InMemorySparse, RowsInMemory

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator
    from ripieno.launch import Job

Options = TypeVar("Options")

SEED_LIMIT = 2**31 - 1

#: Prefix of scikit-learn for the names of single options.
_OPTION = "options__"


class WorkerEstimator(WorkerParameters, SavedEstimator):
    """An estimator that runs its programs on workers, or on the ranks of a communicator.

    All estimators share its parameters.
    """

    # Whether a fit is running; set by the decorator `reported`.
    _is_fitting = False
    # Names of attributes with one entry per row. A fit on splits returns them in the order of the splits.
    _row_attributes: tuple[str, ...] = ()
    # Whether the fit on splits needs the numbers of the rows of all ranks.
    _needs_order = False
    # Whether splits of text without `y` are libsvm lines, and whether the model was fitted on such lines.
    _takes_libsvm = False
    _is_libsvm = False
    # Whether the fit chose columns by name; later input may then have further columns.
    _chose_columns = False
    # Time breakdown of each rank in the last run.
    _facts_of_ranks: tuple[RankFacts, ...] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        document(cls)

    def _run(
        self,
        program: Callable[..., Any],
        *arguments: Any,
        comm: Communicator | None,
        rows: Rows | None = None,
        on_event: Callable[[dict[str, Any]], None] | None = None,
        alone: bool = False,
    ) -> list[Any]:
        """Run `program(comm, *arguments)` on each worker, or on each rank of `comm`, and return the results.

        With `alone`, the program runs in this process, and `workers` is ignored. With ``rows="own"``, other
        ranks receive only the part of this rank's result that `_part_for_other_ranks` returns.
        """
        check_parameters(self, WorkerParameters)
        measured = MeasuredProgram(program)
        if comm is not None:
            result, facts = measured(comm, *arguments)
            facts = replace(facts, notes=(*self.__dict__.pop("_read_notes", ()), *facts.notes))
            outcomes = comm.allgather((self._part_for_other_ranks(result) if rows == "own" else result, facts))
            outcomes[comm.rank] = (result, facts)
            return self._store_facts(outcomes)
        # Imported here to avoid a circular import.
        from ripieno.launch import Job, launch

        if alone:
            with launch(1, threads=self.threads, on_event=on_event) as job:
                return self._run_on(job, measured, *arguments)
        if isinstance(self.engine, Job):
            self._check_job(self.engine)
            with self.engine.report_to(on_event):
                return self._run_on(self.engine, measured, *arguments)
        with launch(self.workers, self.engine, self.threads, on_event, on_failure=self.on_failure) as job:
            return self._run_on(job, measured, *arguments)

    def _run_fit(
        self, program: Callable[..., Any], *arguments: Any, comm: Communicator | None, rows: Rows | None = None
    ) -> list[Any]:
        """Run the program of a fit, as `_run` does."""
        return self._run(program, *arguments, comm=comm, rows=rows)

    def _part_for_other_ranks(self, part: Any) -> Any:
        """Return the part of this rank's own-rows result that other ranks need."""
        return part

    def _run_on(self, job: Job, measured: MeasuredProgram, *arguments: Any) -> list[Any]:
        if self._is_fitting:
            job.announce(type(self).__name__, getattr(self, "max_iter", None))
        return self._store_facts(job.run(measured, *arguments))

    def _store_facts(self, outcomes: list[tuple[Any, RankFacts]]) -> list[Any]:
        """Return the results of the ranks, and store their time breakdowns for the fit's report."""
        if self._is_fitting:
            self._facts_of_ranks = tuple(facts for _, facts in outcomes)
        return [result for result, _ in outcomes]

    def _apply(
        self, program: Callable[..., Any], source: Dataset | RowsInMemory | InMemorySparse, *arguments: Any
    ) -> list[Any]:
        """Run `program(comm, source, *arguments)`: on all workers for files, in this process for an array."""
        return self._run(
            program, source, *arguments, comm=None, alone=isinstance(source, RowsInMemory | InMemorySparse)
        )

    def _check_parameters(self) -> None:
        """Raise InputError if a parameter is invalid. Estimators add checks of several parameters together."""
        check_parameters(self)

    def _worker_options(self, kind: type[Options], **values: Any) -> Options:
        """Return the options of the workers, a dataclass. By default a field gets the parameter of the same name."""
        declarations = parameters_of(type(self))
        for field in fields(kind):  # type: ignore[arg-type]  # a dataclass
            if field.name in declarations:
                values.setdefault(field.name, declarations[field.name].domain.plain(getattr(self, field.name)))
            elif field.name == "checkpoint_options":
                values.setdefault(field.name, self._checkpoint_options())
        return kind(**values)

    def _check_job(self, job: Job) -> None:
        """Raise InputError if a parameter contradicts a setting of the running job."""
        if self.workers not in (1, job.workers) or self.threads not in (None, job.threads):
            raise InputError(
                f"workers={self.workers}, threads={self.threads}, but the job passed as engine has {job.workers} "
                f"workers with {job.threads} threads: leave both out"
            )
        if self.on_failure != "raise":
            raise InputError(
                f"on_failure={self.on_failure!r}, but the job passed as engine has its own setting: leave it out"
            )
        if job.replicas != 1:
            raise InputError(
                f"engine: the job has {job.replicas} replicas of each rank, estimators support one: replicas=1"
            )

    def _seed(self, comm: Communicator | None) -> int:
        """Return a seed from the parameter `random_state`; with `comm`, all ranks use rank 0's seed."""
        self._check_seeds(comm)
        seed = int(check_random_state(self.random_state).randint(SEED_LIMIT))
        return seed if comm is None else comm.broadcast(seed)

    def _own_seed(self, comm: Communicator | None) -> int:
        """Return `random_state` itself if it is a whole number, else a seed from it; the same on all ranks."""
        if not isinstance(self.random_state, Integral):
            return self._seed(comm)
        return int(self.random_state) if comm is None else comm.broadcast(int(self.random_state))

    def _check_seeds(self, comm: Communicator | None) -> None:
        """Raise InputError if replicas of a rank would draw different seeds."""
        has_own_seeds = self.random_state is None or self.random_state is np.random
        if has_own_seeds and comm is not None and comm.replicas > 1:
            raise InputError(
                f"random_state={self.random_state!r}: each of the {comm.replicas} replicas of a rank would draw its "
                "own seed: expected a whole number"
            )


class IterativeEstimator(FitParameters, WorkerEstimator):
    """An estimator that saves its fit between iterations and can resume from the saved state."""

    resumed_from_: int | None

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the estimator, and single options as ``options__every=5``."""
        params = with_current_names(type(self), params)
        options = {name.removeprefix(_OPTION): params.pop(name) for name in list(params) if name.startswith(_OPTION)}
        former = [name for name in params if name in parameters_of(type(self)) and name not in arguments_of(type(self))]
        if former:
            warn_of_names(type(self), former)
            options |= {name: params.pop(name) for name in former}
        super().set_params(**params)
        if options:
            self.options = options_of(self).replaced(**options)
        return self

    def _checkpoint_options(self) -> CheckpointOptions:
        """Return the checkpoint settings for the workers; raise InputError if they are invalid."""
        options = options_of(self)
        every = None if options.every is None else int(options.every)
        if self.checkpoint is None:
            return CheckpointOptions(every=every)
        declarations = parameters_of(type(self))
        facts = {
            name: plain_fact(declarations[name].domain.fact(getattr(self, name)))
            for name in compared_parameters(type(self))
        }
        return CheckpointOptions(absolute(self.checkpoint), every, int(options.keep), facts=facts)


class ObservedEstimator(ObservedParameters, WorkerEstimator):
    """An estimator that passes events to the callable `on_iteration` during a fit."""

    def _run_fit(
        self, program: Callable[..., Any], *arguments: Any, comm: Communicator | None, rows: Rows | None = None
    ) -> list[Any]:
        """Run `program(comm, *arguments, emit)` on each rank, and pass its events to `on_iteration`."""
        # Workers emit events through the job. On the ranks of `comm`, the callable receives events directly.
        emit = None if comm is None else self._on_event
        on_event = None if self.on_iteration is None else self._on_event
        return self._run(program, *arguments, emit, comm=comm, rows=rows, on_event=on_event)

    def _on_event(self, event: dict[str, Any]) -> None:
        if self.on_iteration is not None:
            self.on_iteration(event)
