"""Ranks in the executors of Spark: with one JVM, with executors of their own, at a standalone master."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import cloudpickle
import pytest
import ripieno as rp
import spark_programs as programs
from ripieno.errors import EngineError, InputError, TooFewSlots
from varied import exhaustively
from watching import comes_true, under_load

pyspark = pytest.importorskip("pyspark", reason="no pyspark: pip install 'ripieno[spark]'")

# Without this, the executors would need the file.
cloudpickle.register_pickle_by_value(programs)

EXECUTORS = ["spark_cluster", *exhaustively("spark_standalone")]
ON_ALL = pytest.mark.parametrize("spark", ["spark_local", *EXECUTORS], indirect=True)
ON_EXECUTORS = pytest.mark.parametrize("spark", EXECUTORS, indirect=True)
# Maximum time that a user waits for an error.
PROMPT_S = 5.0
# Maximum time until lost executors are replaced.
SETTLED_S = 40.0


@pytest.fixture
def spark(request: pytest.FixtureRequest):
    return request.getfixturevalue(request.param)


@ON_ALL
def test_a_rank_runs_in_every_slot_and_keeps_its_state(spark):
    with rp.launch(engine="spark") as job:
        first, second = job.run(programs.count, 10), job.run(programs.count, 10)

    assert [row["sum"] for row in first] == [46] * 4
    assert [row["runs"] for row in first + second] == [1] * 4 + [2] * 4
    assert [row["pid"] for row in first] == [row["pid"] for row in second]
    executors = {row["executor"] for row in first}
    assert len(executors) == (1 if spark.sparkContext.master == "local[4]" else 2)
    # Spark's count of tasks lags a little.
    assert comes_true(lambda: programs.running(spark) == 0, PROMPT_S)


@ON_ALL
def test_the_callers_job_group_and_properties_stay_as_they_are(spark):
    context = spark.sparkContext
    context.setJobGroup("the user's", "own jobs")
    try:
        with rp.launch(engine="spark", workers=2) as job:
            context.cancelJobGroup("the user's")
            assert context.parallelize(range(4), 2).sum() == 6
            assert len(job.run(programs.count, 0)) == 2
            assert context.getLocalProperty("spark.jobGroup.id") == "the user's"
            assert context.getLocalProperty("spark.job.description") == "own jobs"
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            context.setLocalProperty(name, None)


@ON_ALL
def test_a_rank_that_ends_its_process_is_reported_with_the_message_of_spark(spark):
    job = rp.launch(engine="spark")

    with pytest.raises(rp.RankFailed, match="Python worker exited unexpectedly") as caught, _promptly():
        job.run(programs.exit_hard, 2)

    assert caught.value.rank == 2
    assert _works_again()


@ON_EXECUTORS
def test_the_end_of_an_executor_ends_the_job_and_nothing_else(spark):
    job = rp.launch(engine="spark")
    executors = [row["executor"] for row in job.run(programs.count, 0)]
    lost = [rank for rank, pid in enumerate(executors) if pid == executors[1]]
    timer = threading.Timer(0.5, os.kill, [executors[1], signal.SIGKILL])
    timer.start()

    with pytest.raises(rp.RankFailed) as caught, _promptly(after_s=0.5):
        job.run(programs.wait)

    assert caught.value.rank in lost
    job.close()
    assert _works_again()


def test_more_ranks_than_slots_are_refused_at_once(spark_local):
    with pytest.raises(TooFewSlots) as caught, _promptly():
        rp.launch(engine="spark", workers=9)

    error = caught.value
    assert (error.needed, error.total) == (9, 4) and "local[N]" in str(error)


def test_more_ranks_than_slots_are_refused_after_a_while_if_executors_may_be_added(spark_cluster):
    with pytest.raises(TooFewSlots) as caught, _promptly():
        rp.launch(engine="spark", workers=9, slots_timeout_s=0.5)

    assert (caught.value.needed, caught.value.free, caught.value.total) == (9, 4, 4)


def test_slots_that_are_busy_are_waited_for(spark_local, tmp_path):
    with _busy(spark_local, 2, tmp_path) as release:
        with pytest.raises(TooFewSlots) as caught, _promptly():
            rp.launch(engine="spark", workers=3, slots_timeout_s=0.3)
        assert (caught.value.needed, caught.value.free, caught.value.total) == (3, 2, 4)
        assert "slots_timeout_s" in str(caught.value)

        threading.Timer(0.3, release).start()
        with rp.launch(engine="spark", workers=3, slots_timeout_s=60) as job:
            assert len(job.run(programs.count, 0)) == 3


def test_a_stage_whose_slots_were_taken_meanwhile_is_withdrawn(spark_local, tmp_path, monkeypatch):
    monkeypatch.setattr(import_module("ripieno.launch.engines.spark.engine"), "await_slots", lambda *_: None)
    with _busy(spark_local, 2, tmp_path):
        tracker = spark_local.sparkContext.statusTracker()
        busy = tracker.getActiveJobsIds()
        with pytest.raises(TooFewSlots), _promptly():
            rp.launch(engine="spark", workers=3, slots_timeout_s=0.5)

        assert comes_true(lambda: tracker.getActiveJobsIds() == busy, PROMPT_S)


def test_jobs_run_concurrently_with_each_other_and_with_jobs_of_spark(spark_local):
    with (
        rp.launch(engine="spark", workers=1) as one,
        rp.launch(engine="spark", workers=2, spark=spark_local) as two,
    ):
        assert spark_local.range(100).count() == 100
        assert [row["sum"] for row in one.run(programs.count, 5)] == [5]
        assert [row["sum"] for row in two.run(programs.count, 5)] == [11, 11]


def test_an_interrupt_ends_the_ranks_at_any_time(spark_local):
    received = []

    def interrupt_when_all_are_there(event):
        received.append(event["pid"])
        if len(received) == 4:
            os.kill(os.getpid(), signal.SIGINT)

    job = rp.launch(engine="spark", on_event=interrupt_when_all_are_there)
    with pytest.raises(KeyboardInterrupt):
        job.run(programs.compute)

    assert comes_true(lambda: programs.running(spark_local) == 0, PROMPT_S)
    assert comes_true(lambda: not any(Path(f"/proc/{pid}").exists() for pid in received), PROMPT_S)
    assert _works_again()


def test_without_a_session_the_error_names_the_remedy(monkeypatch):
    monkeypatch.setattr("pyspark.sql.SparkSession.active", _no_session)

    with pytest.raises(EngineError, match=r"there is none: start one by SparkSession\.builder"):
        rp.launch(engine="spark", workers=2)


def test_spark_connect_is_refused(monkeypatch):
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")

    with pytest.raises(EngineError, match="Spark Connect has no barrier stages"):
        rp.launch(engine="spark", workers=2)


def test_invalid_session_is_rejected():
    with pytest.raises(InputError, match="spark='local': no SparkSession"):
        rp.launch(engine="spark", workers=2, spark="local")


def test_dynamic_allocation_is_named(spark_cluster, monkeypatch):
    name = "spark.dynamicAllocation.enabled"
    conf = pyspark.SparkConf(loadDefaults=False).setAll(spark_cluster.sparkContext.getConf().getAll())
    conf.set(name, "true")
    monkeypatch.setattr(spark_cluster.sparkContext, "getConf", lambda: conf)

    with pytest.raises(EngineError, match=re.escape(name)):
        rp.launch(engine="spark", workers=2)


def _no_session():
    raise pyspark.errors.PySparkRuntimeError(errorClass="NO_ACTIVE_OR_DEFAULT_SESSION", messageParameters={})


def _works_again() -> bool:
    """Return whether all ranks find slots again after the loss of tasks or an executor."""
    deadline = time.monotonic() + SETTLED_S
    while True:
        try:
            with rp.launch(engine="spark", workers=4) as job:
                return [row["sum"] for row in job.run(programs.count, 0)] == [6] * 4
        except EngineError:
            if time.monotonic() > deadline:
                raise


@contextmanager
def _promptly(after_s: float = 0.0):
    started = time.monotonic()
    try:
        yield
    finally:
        assert time.monotonic() - started <= under_load(after_s + PROMPT_S)


@contextmanager
def _busy(spark, tasks: int, folder: Path):
    """Run a Spark job that holds this number of slots until released."""
    pipes = [folder / f"task-{number}" for number in range(tasks)]
    for pipe in pipes:
        os.mkfifo(pipe)

    def release() -> None:
        while pipes:
            pipes.pop().write_bytes(b"go")

    holding = pyspark.InheritableThread(
        spark.sparkContext.parallelize(map(str, pipes), tasks).map(programs.wait_for_pipe).collect
    )
    holding.start()
    try:
        assert comes_true(lambda: programs.running(spark) == tasks, 30)
        yield release
    finally:
        release()
        holding.join()
