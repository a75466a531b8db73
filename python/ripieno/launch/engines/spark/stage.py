"""`StageRun`: the barrier stage whose tasks are the ranks of a job, and the slots that it takes."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from ripieno.errors import EngineError, TooFewSlots
from ripieno.launch.engine.contract import Run
from ripieno.launch.engines.spark.internals import running_tasks, slots

# Spark tells nobody when tasks begin or end, so it is asked this often.
ASK_S = 0.05
# Tasks that were told to leave have this long, then they are cancelled, and Spark has this long to say that they are.
LEAVE_S = 1.0
CANCEL_S = 5.0

# By default somebody waits so long for slots.
SLOTS_S = 10.0

_FAILED_TASK = re.compile(r"(?:ResultTask|ShuffleMapTask)\((\d+), (\d+)\) finished unsuccessfully\.\s*(.*)", re.DOTALL)
_JAVA_CLASS = re.compile(r"^(?:\w+\.)+\w+: ")
_numbers = itertools.count()


class StageRun(Run):
    """A Spark job that runs in a thread for as long as its ranks do.

    Parameters
    ----------
    session : SparkSession
    workers : int
        How many tasks its barrier stage has.
    action : callable
        Starts the Spark job and returns when it is over.

    Attributes
    ----------
    result : object
        What `action` has returned.
    error : Exception or None
        What it has raised.
    """

    def __init__(self, session: SparkSession, workers: int, action: Callable[[], Any]) -> None:
        super().__init__()
        self._context = session.sparkContext
        self._workers = workers
        self._action = action
        self._group = f"ripieno-{self._context.applicationId}-{next(_numbers)}"
        self._over = threading.Event()
        self._is_kept = False
        self.result: Any = None
        self.error: Exception | None = None
        # It begins with the properties of this thread (scheduler pool, tags), and changes only its own.
        self._thread = InheritableThread(self._run, session=session, name=self._group, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._context.setJobGroup(self._group, f"Ripieno: {self._workers} ranks", interruptOnCancel=True)
            self.result = self._action()
            # Ranks that have left heed it no more.
            self.failed(None, "its job is over, and there were fewer tasks than ranks")
        except Exception as error:
            self.error = error
            self.failed(*account(error))
        finally:
            self._over.set()

    def await_tasks(self, timeout_s: float) -> None:
        """Return once the ranks run, or the job is over.

        Raises
        ------
        TooFewSlots
            If others have taken the slots meanwhile: none of its tasks has run for longer than `timeout_s`.
        """
        waiting_since = time.monotonic()
        while not self._over.wait(ASK_S):
            found = running_tasks(self._context, self._stages())
            if (True, self._workers) in found:
                return
            if not found or any(count for _, count in found):
                waiting_since = time.monotonic()
            elif time.monotonic() - waiting_since > timeout_s:
                self.end()
                raise too_few(self._workers, *slots(self._context))

    def _stages(self) -> list[int]:
        """Those of its Spark jobs."""
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group)]
        return [stage for job in jobs if job is not None for stage in job.stageIds]

    def finish(self) -> Any:
        """Wait, for as long as it takes, until Spark has taken what the ranks return; the result of the action."""
        try:
            self._over.wait()
        finally:
            self._is_kept = False
            self.end()
        if self.error is not None:
            raise EngineError(f"spark has not taken what the ranks returned: {account(self.error)[1]}") from self.error
        return self.result

    def keep(self) -> None:
        """Let the tasks that were told to leave do it in their own time: what they return is still needed."""
        self._is_kept = True

    def end(self) -> None:
        if self._is_kept or self._over.wait(LEAVE_S):
            return
        # Spark's side may be gone with its driver.
        with suppress(Py4JError, OSError):
            self._context.cancelJobGroup(self._group)
        self._over.wait(CANCEL_S)


def account(error: Exception) -> tuple[int | None, str]:
    """The rank that Spark blames, if it can be told, and why in one line."""
    message = str(error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else error)
    found = _FAILED_TASK.search(message)
    if found is None:
        return None, f"{type(error).__name__}: {message}".partition("\n")[0]
    return int(found[2]), _cause(found[3])


def _cause(text: str) -> str:
    """Of a Python traceback the exception, of a Java one what it says first."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(("\tat ", "    at "))]
    if any("Traceback (most recent call last)" in line for line in lines):
        ends = [line for line in lines if not line.startswith((" ", "\t", "Driver stacktrace", "Caused by"))]
        return ends[-1].strip()
    return _JAVA_CLASS.sub("", lines[0].strip()).partition(" Consider setting")[0] if lines else "no cause is known"


def await_slots(context: Any, workers: int, timeout_s: float) -> None:
    """Return once so many are free; `TooFewSlots` if they are not within `timeout_s`, in which executors may come."""
    deadline = time.monotonic() + timeout_s
    while True:
        free, total = slots(context)
        if free >= workers:
            return
        # The slots of a local master do not change.
        if time.monotonic() > deadline or (total < workers and is_local(context.master)):
            raise too_few(workers, free, total)
        time.sleep(ASK_S)


def is_local(master: str) -> bool:
    """Whether tasks run in the driver itself."""
    return master == "local" or master.startswith("local[")


def too_few(workers: int, free: int, total: int) -> TooFewSlots:
    """The error."""
    if total < workers:
        advice = (
            "ask for fewer workers, or start Spark with more: master local[N], --num-executors, --executor-cores, "
            "spark.cores.max"
        )
    else:
        advice = "wait until other jobs of this application are over, ask for fewer workers, or raise slots_timeout_s"
    return TooFewSlots("spark", workers, free, total, advice)
