"""Ranks in containers of YARN, through Spark, reading and writing HDFS. More tests are in test_conformance.py."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import ripieno as rp
from hadoop import RACK, Hadoop
from ripieno.files.results import new_file, save_array
from watching import comes_true

pytestmark = pytest.mark.timeout(300)

# Maximum time for YARN to replace a killed container, including its JVM.
NEW_CONTAINER_S = 60.0
ROWS = np.random.default_rng(0).normal(size=(4000, 6))


def container(comm) -> tuple[str, float]:
    """Return the container of this rank, and the last of the sums of all ranks."""
    return Path.cwd().name, float(comm.allreduce(np.full(1_250_000, comm.rank + 1.0))[-1])


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def kill_executor(comm) -> None:
    """Kill the YARN container process of rank 1, with everything in it."""
    if comm.rank == 1:
        os.kill(_parent(os.getppid()), signal.SIGKILL)
        # This process ends soon, with its container.
        threading.Event().wait(NEW_CONTAINER_S)
    comm.barrier()


def die_if(comm, batches, dies: bool) -> pa.RecordBatch:
    if dies and comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.barrier()
    return pa.record_batch({"rows": [batches.row_count]})


def rows_and_sum(comm, batches) -> tuple[int, float]:
    return batches.row_count, float(comm.allreduce(batches.to_numpy("x").sum(keepdims=True))[0])


def write_own(comm, target: str) -> None:
    with new_file(f"{target}/part-{comm.rank:05}.npy") as part:
        save_array(part, np.full(1000, comm.rank))


def test_ranks_in_two_containers_get_the_rack_from_hadoop(spark_yarn):
    with rp.launch(engine="spark", spark=spark_yarn) as job:
        found = job.run(container)
        assert job.run(lambda comm: comm.racks) == [[RACK] * 4] * 4

    # YARN chooses the nodes.
    containers = [name for name, _ in found]
    assert sorted(containers.count(name) for name in set(containers)) == [2, 2]
    assert all(name.startswith("container_") for name in containers)
    assert [total for _, total in found] == [10.0] * 4


def test_a_container_that_is_killed_ends_the_job_and_yarn_brings_another(spark_yarn):
    with rp.launch(engine="spark", spark=spark_yarn) as job, pytest.raises(rp.RankFailed) as caught:
        job.run(kill_executor)

    # Spark may not report the container in time. Then only the end of the connection is known, and messages vary.
    assert caught.value.cause.startswith("its process")
    assert comes_true(lambda: runs_again(spark_yarn), NEW_CONTAINER_S)


def runs_again(spark) -> bool:
    try:
        with rp.launch(engine="spark", spark=spark, workers=4, slots_timeout_s=30) as job:
            return [total for _, total in job.run(container)] == [10.0] * 4
    # Spark may not yet know that the executor is lost.
    except (rp.EngineError, rp.RankFailed):
        return False


def test_a_stage_that_spark_would_retry_fails_at_once_and_runs_when_asked_again(spark_yarn):
    frame = spark_yarn.range(8)

    with pytest.raises(rp.RankFailed) as caught:
        rp.spark.run(frame, die_if, True, workers=4, schema="rows long")

    assert caught.value.rank == 1
    assert comes_true(lambda: rows_again(frame) == [2, 2, 2, 2], NEW_CONTAINER_S)


def rows_again(frame) -> list[int] | None:
    try:
        return [row.rows for row in rp.spark.run(frame, die_if, False, workers=4, schema="rows long").collect()]
    except (rp.EngineError, rp.RankFailed):
        return None


def test_rows_that_spark_reads_from_hdfs_are_the_ranks_rows(spark_yarn, mini_hadoop: Hadoop):
    path = mini_hadoop.variables["HDFS"] + "/frames/x"
    spark_yarn.range(10_000).selectExpr("cast(id as double) as x").write.parquet(path)

    frame = spark_yarn.read.parquet(path)
    with rp.launch(engine="spark", spark=spark_yarn) as job:
        found = job.run(rows_and_sum, frame)

    assert sum(count for count, _ in found) == 10_000 and min(count for count, _ in found) > 0
    assert {total for _, total in found} == {10_000 * 9_999 / 2}


def test_ranks_read_their_shares_of_files_in_hdfs_and_write_parts(spark_yarn, mini_hadoop: Hadoop):
    files, hdfs = mini_hadoop.files, mini_hadoop.variables["WEBHDFS"]
    files.makedirs("/vectors-of-ranks")
    for number, part in enumerate(np.array_split(ROWS, 3)):
        with files.open(f"/vectors-of-ranks/{number}.npy", "wb") as file:
            np.save(file, part)
    options = {"n_clusters": 5, "random_state": 0, "max_iter": 5, "tol": 0}

    with rp.launch(engine="spark", spark=spark_yarn) as job:
        model = rp.KMeans(**options, engine=job).fit(f"{hdfs}/vectors-of-ranks/*.npy")
        job.run(write_own, f"{hdfs}/parts")

    expected = rp.KMeans(**options, workers=4, threads=1).fit(ROWS)
    assert model.cluster_centers_.tobytes() == expected.cluster_centers_.tobytes()
    assert model.labels_.tobytes() == expected.labels_.tobytes()
    assert sorted(files.ls("/parts", detail=False)) == [f"/parts/part-{rank:05}.npy" for rank in range(4)]
    written = [split.read()[0] for split in rp.input.splits(f"{hdfs}/parts", count=4)]
    assert written == [0, 1, 2, 3]
