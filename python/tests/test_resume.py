"""Restarted jobs: the point from which they resume, and bitwise equal results."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
import ripieno as rp
from mapreduce_programs import CLUSTERS, assign, by_key, emit_ones, kmeans, points, recenter


def job_of(folder, job, **options):
    options = {"reduce": recenter, "collect": by_key, "name": "kmeans", "checkpoint": folder} | options
    return rp.MapReduce(assign, job=job, **options)


def test_a_killed_job_resumes_and_ends_with_the_same_bits(world, tmp_path):
    alive = tmp_path / "alive"

    def map(part, value):
        iteration, centroids = value
        if iteration == 4 and not alive.exists():
            os.kill(os.getpid(), signal.SIGKILL)
        rows.add(len(part))
        return assign(part, centroids)

    def run(job):
        job.cache(points(), tasks=5)
        centroids = job.resume(points()[:CLUSTERS])
        job.state.setdefault("iterations", [])
        for iteration in job.iterations(7):
            job.broadcast((iteration, centroids))
            centroids = job.step()
            job.state["iterations"].append(iteration)
        return centroids

    program = {"map": map, "reduce": recenter, "collect": by_key}
    checkpointed = program | {"workers": 2, "threads": 1, "name": "k", "checkpoint": tmp_path, "every": 2}
    with rp.MapReduce(**checkpointed) as job, pytest.raises(rp.RankFailed, match="SIGKILL"):
        rows = job.accumulator(0)
        run(job)
    alive.touch()
    with rp.MapReduce(**checkpointed) as job:
        rows = job.accumulator(0)
        resumed = run(job)
        assert job.resumed_from == 4 and len(job.statistics) == 3
        assert job.state == {"iterations": list(range(7))}
        resumed_rows = rows.value
    with rp.MapReduce(**program, job=world(2)) as job:
        rows = job.accumulator(0)
        uninterrupted = run(job)
        assert job.resumed_from is None and rows.value == resumed_rows == 7 * len(points())

    assert resumed.tobytes() == uninterrupted.tobytes()


def test_a_finished_job_resumes_at_its_end_and_logs_it(world, tmp_path, capsys):
    with job_of(tmp_path, world(2)) as job:
        first = kmeans(job)
    assert capsys.readouterr().err == ""
    with job_of(tmp_path, world(2)) as job:
        again = kmeans(job)

    assert job.resumed_from == 5 and not job.statistics
    assert again.tobytes() == first.tobytes()
    assert capsys.readouterr().err == f"ripieno: kmeans resumes after 5 iterations, from {tmp_path / 'kmeans'}\n"


def test_a_step_outside_a_loop_is_an_iteration_and_save_writes_at_once(world, tmp_path):
    def job():
        return rp.MapReduce(emit_ones, job=world(2), checkpoint=tmp_path, name="steps", every=2)

    with job() as one:
        one.cache([np.array([1, 1]), np.array([2])])
        for _ in range(3):
            one.step()
    with job() as two:
        assert two.resumed_from == two.iteration == 2
        two.cache([np.array([1])])
        two.step()
        two.step()
        two.state["moved"] = 0.25
        two.save()
    with job() as three:
        assert three.resumed_from == 4 and three.state == {"moved": 0.25}
        assert three.result.to_arrow().to_pydict() == {"key": [1], "value": [1]}


def test_a_job_rejects_the_checkpoint_of_other_functions(world, tmp_path):
    with job_of(tmp_path, world(2)) as job:
        kmeans(job, iterations=1)

    with pytest.raises(rp.CheckpointError, match="map, reduce, combine or collect were other functions"):
        job_of(tmp_path, world(2), reduce=None)
    # A rejected job releases the folder.
    job_of(tmp_path, world(2)).close()
