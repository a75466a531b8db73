"""Provide `StageRun`: the barrier stage that runs the ranks of a job as its tasks, and its slots."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from ripieno.errors import EngineError, TooFewSlots
from ripieno.launch.deadline import Deadline, pauses
from ripieno.launch.engine.contract import Run
from ripieno.launch.engines.spark.internals import running_tasks, slots
from ripieno.launch.limits import LEAVE_S, PAUSE_S_MAX, SHUTDOWN_S

_FAILED_TASK = re.compile(r"(?:ResultTask|ShuffleMapTask)\((\d+), (\d+)\) finished unsuccessfully\.\s*(.*)", re.DOTALL)
_JAVA_CLASS = re.compile(r"^(?:\w+\.)+\w+: ")
_numbers = itertools.count()


class StageRun(Run):
    """A Spark job that runs in a thread as long as its ranks.

    Parameters
    ----------
    session : SparkSession
    workers : int
        Number of tasks of the barrier stage.
    action : callable
        Runs the Spark job and returns at its end.

    Attributes
    ----------
    result : object
        Return value of `action`.
    error : Exception or None
        Exception that `action` has raised.
    """

    def __init__(self, session: SparkSession, workers: int, action: Callable[[], Any]) -> None:
        super().__init__()
        self._context = session.sparkContext
        self._workers = workers
        self._action = action
        self._group = f"ripieno-{self._context.applicationId}-{next(_numbers)}"
        self._has_ended = threading.Event()
        self._is_kept = False
        self.result: Any = None
        self.error: Exception | None = None
        # The thread inherits the properties of this thread (scheduler pool, tags), and changes only its own.
        self._thread = InheritableThread(self._run, session=session, name=self._group, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._context.setJobGroup(self._group, f"Ripieno: {self._workers} ranks", interruptOnCancel=True)
            self.result = self._action()
            # Ranks that have left ignore this failure.
            self.failed(None, "its job is over, and there were fewer tasks than ranks")
        except Exception as error:
            self.error = error
            self.failed(*failure_of(error))
        finally:
            self._has_ended.set()

    def await_tasks(self, timeout_s: float) -> None:
        """Return when the ranks run, or the job is over.

        Raises
        ------
        TooFewSlots
            If other jobs have taken the slots meanwhile: no task has run for longer than `timeout_s`.
        """
        deadline = Deadline(timeout_s)
        # Spark does not report when tasks begin.
        while not self._has_ended.wait(PAUSE_S_MAX / 4):
            found = running_tasks(self._context, self._stages())
            if (True, self._workers) in found:
                return
            if not found or any(count for _, count in found):
                deadline = Deadline(timeout_s)
            elif not deadline.left_s:
                self.end()
                raise too_few(self._workers, *slots(self._context))

    def _stages(self) -> list[int]:
        """Return the ids of the stages of its Spark jobs."""
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group)]
        return [stage for job in jobs if job is not None for stage in job.stageIds]

    def finish(self) -> Any:
        """Wait without limit until Spark has received the ranks' results, and return the result of the action."""
        try:
            self._has_ended.wait()
        finally:
            self._is_kept = False
            self.end()
        if self.error is not None:
            raise EngineError(f"spark rejected the results of the ranks: {failure_of(self.error)[1]}") from self.error
        return self.result

    def keep(self) -> None:
        """Do not cancel tasks that are leaving: their results are still needed."""
        self._is_kept = True

    def end(self) -> None:
        if self._is_kept or self._has_ended.wait(LEAVE_S):
            return
        # The driver's JVM may have ended already.
        with suppress(Py4JError, OSError):
            self._context.cancelJobGroup(self._group)
        self._has_ended.wait(SHUTDOWN_S)


def failure_of(error: Exception) -> tuple[int | None, str]:
    """Return the rank that Spark names as failed, if any, and the cause in one line."""
    message = str(error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else error)
    found = _FAILED_TASK.search(message)
    if found is None:
        return None, f"{type(error).__name__}: {message}".partition("\n")[0]
    return int(found[2]), _cause(found[3])


def _cause(text: str) -> str:
    """Return the exception of a Python traceback, or the first line of a Java one."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(("\tat ", "    at "))]
    if any("Traceback (most recent call last)" in line for line in lines):
        ends = [line for line in lines if not line.startswith((" ", "\t", "Driver stacktrace", "Caused by"))]
        return ends[-1].strip()
    return _JAVA_CLASS.sub("", lines[0].strip()).partition(" Consider setting")[0] if lines else "no cause is known"


def await_slots(context: Any, workers: int, timeout_s: float) -> None:
    """Return when `workers` slots are free; raise `TooFewSlots` after `timeout_s`. Executors may register meanwhile."""
    for _ in pauses(timeout_s):
        free, total = slots(context)
        if free >= workers:
            return
        # The number of slots of a local master is constant.
        if total < workers and is_local(context.master):
            break
    raise too_few(workers, free, total)


def is_local(master: str) -> bool:
    """Return whether tasks run in the driver process."""
    return master == "local" or master.startswith("local[")


def too_few(workers: int, free: int, total: int) -> TooFewSlots:
    """Return the error for missing slots, with advice."""
    if total < workers:
        advice = (
            "request fewer workers, or start Spark with more: master local[N], --num-executors, --executor-cores, "
            "spark.cores.max"
        )
    else:
        advice = "wait until other jobs of this application are over, request fewer workers, or raise slots_timeout_s"
    return TooFewSlots("spark", workers, free, total, advice)
