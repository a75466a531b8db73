"""Provide the Spark engine: ranks are the tasks of a barrier stage inside an existing SparkSession.

Spark starts all tasks together and sends the invitation in their closures. The tasks synchronize by one ``allGather``.
The stage runs in a thread during the job. Requires ``pip install 'ripieno[spark]'``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BooleanType, StructField, StructType
from pyspark.sql.utils import is_remote

from ripieno.errors import EngineError, InputError
from ripieno.launch.engine.contract import Engine, EngineJob, Handover, Run
from ripieno.launch.engine.member_server import Invitation
from ripieno.launch.engines.spark import frames, task
from ripieno.launch.engines.spark.archive import shipped
from ripieno.launch.engines.spark.internals import check_version, has_pinned_threads, is_stopped, racks, slots
from ripieno.launch.engines.spark.stage import StageRun, await_slots, is_local
from ripieno.launch.job.programs import ProgramCall
from ripieno.launch.job.stand_ins import RankValue
from ripieno.launch.limits import SLOTS_S

# Ranks with rows join after Spark has computed the rows, which may take long.
ROWS_S = 7 * 24 * 3600.0
# Schema of a stage that returns no rows to Spark.
_NOTHING = StructType([StructField("nothing", BooleanType())])


class SparkEngine(Engine):
    """Runs ranks as tasks of a Spark application.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession, optional
        The session; by default the active one.
    slots_timeout_s : float
        Maximum wait until enough slots are free, or until executors with enough slots have registered.

    Raises
    ------
    EngineError
        If no session is active, or ranks cannot run in the session: an old version, Spark Connect, or dynamic
        allocation.
    """

    NAME: ClassVar[str] = "spark"
    OPTIONS: ClassVar[frozenset[str]] = frozenset({"spark", "slots_timeout_s"})

    def __init__(self, *, spark: SparkSession | None = None, slots_timeout_s: float = SLOTS_S) -> None:
        self.session = _checked(_active() if spark is None else spark)
        self.slots_timeout_s = slots_timeout_s
        self.threads = int(self._context.getConf().get("spark.task.cpus", "1"))

    @property
    def _context(self) -> Any:
        return self.session.sparkContext

    def slots(self) -> int:
        """Return the number of tasks that the executors can run concurrently."""
        return slots(self._context)[1]

    def host(self) -> str:
        """Return the address of the driver for executors."""
        return str(self._context.getConf().get("spark.driver.host")).strip("[]")

    def handover(self) -> Handover:
        """Return the security of Spark's connections, which carry the closures of tasks."""
        if is_local(self._context.master):
            return Handover("to the Python processes of this machine's Spark", True, True)
        conf = self._context.getConf()
        is_authenticated, tls, aes, sasl = (
            conf.get(f"spark.{name}", "false") == "true"
            for name in (
                "authenticate",
                "ssl.rpc.enabled",
                "network.crypto.enabled",
                "authenticate.enableSaslEncryption",
            )
        )
        advice = (
            "set spark.authenticate=true with spark.network.crypto.enabled=true or spark.ssl.rpc.enabled=true, and "
            "spark.io.encryption.enabled=true for the data that Spark spills to disks"
        )
        return Handover(
            "in the closures of Spark's tasks", is_authenticated, tls or (is_authenticated and (aes or sasl)), advice
        )

    def start(self, workers: int, invitation: Invitation) -> StageRun:
        """Start ranks without data."""
        await_slots(self._context, workers, self.slots_timeout_s)
        run_rank = task.plain(invitation, shipped(self._context), racks(self._context))
        tasks = self._context.parallelize(range(workers), workers).barrier().mapPartitions(run_rank)
        return self._started(workers, tasks.collect)

    def start_on(
        self, frame: DataFrame, workers: int, invitation: Invitation, output: StructType | None = None
    ) -> StageRun:
        """Start ranks with the rows of `frame`. With `output` they return rows, and the result is a DataFrame."""
        await_slots(self._context, workers, self.slots_timeout_s)
        rows = frames.rows_on_ranks(frame, workers, invitation, _NOTHING if output is None else output)
        if output is None:
            return self._started(workers, rows.collect)
        return self._started(workers, lambda: frames.checkpointed(rows, workers))

    def _started(self, workers: int, action: Callable[[], Any]) -> StageRun:
        run = StageRun(self.session, workers, action)
        try:
            run.await_tasks(self.slots_timeout_s)
        except BaseException:
            run.close()
            raise
        return run

    def job(self, workers: int, **options: Any) -> SparkJob:
        """Return a job of `workers` ranks here, which also accepts DataFrames."""
        return SparkJob(self, workers, **options)


class SparkJob(EngineJob):
    """A job with ranks in executors. A DataFrame argument of `run` becomes the `Batches` of each rank's own rows.

    The ranks keep these rows: a further program with the same DataFrame reads nothing again. For another DataFrame, new
    ranks are started, and their ``comm.cache`` is empty.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame, optional
        Start ranks with the rows of this DataFrame; by default without rows.
    output : pyspark.sql.types.StructType, optional
        Schema of the rows that ranks return to Spark.
    """

    engine: SparkEngine

    def __init__(
        self,
        engine: SparkEngine,
        workers: int,
        *,
        frame: DataFrame | None = None,
        output: StructType | None = None,
        **options: Any,
    ) -> None:
        self._frame = frame
        self._output = output
        super().__init__(engine, workers, **options)

    def _start(self, invitation: Invitation) -> Run:
        if self._frame is None:
            return super()._start(invitation)
        return self.engine.start_on(self._frame, self.workers, invitation, self._output)

    def _join_limit_s(self) -> float:
        return super()._join_limit_s() if self._frame is None else ROWS_S

    def _run(self, call: ProgramCall) -> list[Any]:
        frame = _only_frame([*call.args, *call.kwargs.values()])
        if frame is not None and frame is not self._frame:
            frames.check(frame)
            self._frame = frame
            with self._recovering():
                self._restart_members()
        here = RankValue(task.ROWS)
        return super()._run(call.mapped(lambda each: here if isinstance(each, DataFrame) else each))

    def returned(self) -> DataFrame:
        """Close the job, so that the ranks return their rows; wait for Spark and return all rows as a DataFrame."""
        run = self._started
        assert isinstance(run, StageRun), "ranks in executors are tasks of Spark"
        run.keep()
        self.close()
        return run.finish()


def _only_frame(values: list[Any]) -> DataFrame | None:
    found = list({id(value): value for value in values if isinstance(value, DataFrame)}.values())
    if len(found) > 1:
        raise InputError(f"{len(found)} DataFrames among the arguments: expected one; join or union them first")
    return found[0] if found else None


def _active() -> SparkSession:
    if is_remote():
        raise _connect()
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        raise EngineError(
            "engine='spark' runs ranks inside a SparkSession, and there is none: start one by "
            "SparkSession.builder.getOrCreate(), or pass spark="
        ) from None


def _checked(session: SparkSession) -> SparkSession:
    if not isinstance(session, SparkSession):
        raise _connect() if "connect" in type(session).__module__ else InputError(f"spark={session!r}: no SparkSession")
    context = session.sparkContext
    if is_stopped(context):
        raise EngineError("this SparkSession was stopped: start another one")
    check_version(session.version)
    if context.getConf().get("spark.dynamicAllocation.enabled") == "true" and not is_local(context.master):
        raise EngineError(
            "spark.dynamicAllocation.enabled is true: executors would come and go while ranks wait for each other, so "
            "Spark refuses barrier stages; start the session with false and a number of executors"
        )
    if not has_pinned_threads(context):
        raise EngineError("PYSPARK_PIN_THREAD is false: ranks could not be distinguished from other jobs; unset it")
    return session


def _connect() -> EngineError:
    return EngineError(
        "Spark Connect has no barrier stages, and its executors cannot reach this process: run this in the driver, by "
        "spark-submit or with a master (local[4], spark://…, yarn, k8s://…) in SparkSession.builder"
    )
