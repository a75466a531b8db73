"""Ray objects among a program's arguments: ranks get them from Ray's store."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import ray
from ripieno.errors import EngineError, InputError, RankFailed
from test_ray import launch


def in_the_store(address):
    """Return whether this memory belongs to Ray's object store."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(number, 16) for number in line.split()[0].split("-"))
        if begin <= address < end:
            return "plasma" in line
    return False


def described(comm, array):
    return int(array[0]), array.flags.writeable, in_the_store(array.ctypes.data)


def test_each_rank_views_its_own_object_in_the_store(ray_nodes):
    refs = [ray.put(np.full(1 << 18, rank)) for rank in range(4)]

    with launch(4) as job:
        assert job.run(described, refs) == [(rank, False, True) for rank in range(4)]
        assert job.run(described, array=tuple(refs[::-1])) == [(3 - rank, False, True) for rank in range(4)]


def test_one_object_is_the_same_on_every_rank(ray_nodes):
    with launch(2) as job:
        assert job.run(described, ray.put(np.full(1 << 18, 7))) == [(7, False, True)] * 2


def test_an_object_stays_in_memory_while_a_rank_references_it(ray_nodes):
    def keep(comm, array):
        comm.cache["array"] = array

    def kept(comm, other):
        return int(comm.cache["array"].sum()), int(other.sum())

    with launch(2) as job:
        job.run(keep, [ray.put(np.ones(1 << 18, np.int64)) for _ in range(2)])
        # Fill the store twice over.
        for _ in range(4):
            assert job.run(kept, ray.put(np.ones(6 << 20, np.int64))) == [(1 << 18, 6 << 20)] * 2


def test_objects_may_come_from_tasks_that_still_run(ray_nodes):
    @ray.remote
    def make(rank):
        return np.full(10, rank)

    with launch(2) as job:
        assert job.run(lambda comm, array: int(array.sum()), [make.remote(rank) for rank in range(2)]) == [0, 10]


def test_the_error_of_the_task_that_makes_an_object_is_raised_and_the_job_continues(ray_nodes):
    @ray.remote
    def make():
        raise ValueError("no such data")

    with launch(2) as job:
        with pytest.raises(ValueError, match="no such data"):
            job.run(described, make.remote())
        assert job.run(lambda comm: comm.rank) == [0, 1]


def test_objects_for_which_no_cpu_is_left_are_refused(ray_nodes):
    @ray.remote
    def make():
        return 1

    with launch(4) as job:
        ref = make.remote()
        with pytest.raises(
            EngineError, match="1 of 1 objects of Ray do not exist yet, and the ranks of jobs occupy all CPUs"
        ):
            job.run(described, ref)
        with pytest.raises(EngineError, match=r"before launching, call its materialize\(\)"):
            job.run(described, ray.data.range(8, override_num_blocks=4))
    assert ray.get(ref) == 1


def test_ranks_that_die_while_objects_are_waited_for_end_the_wait(ray_nodes):
    @ray.remote(resources={"missing resource": 1})
    def make():
        return 1

    with launch(2) as job:
        doomed = job._resources.run.actors[1]
        dying = threading.Timer(0.2, lambda: ray.kill(doomed))
        dying.start()
        with pytest.raises(RankFailed, match=r"rank 1 on .* ray reports: its actor died"):
            job.run(described, make.remote())
        dying.join()
        assert job.run(lambda comm: comm.allreduce(1)) == [2, 2]


def test_as_many_objects_as_ranks_are_expected(ray_nodes):
    with launch(2) as job, pytest.raises(InputError, match="3 objects of Ray for 2 workers: expected one for each"):
        job.run(described, [ray.put(0)] * 3)


def rows(comm, batches):
    return batches.schema.names, batches.to_numpy("id").tolist()


def test_ranks_share_the_blocks_of_a_dataset_in_order(ray_nodes):
    dataset = ray.data.range(10, override_num_blocks=5).materialize()
    numbers = [row["id"] for row in dataset.take_all()]

    with launch(2) as job:
        (names, first), (_, second) = job.run(rows, dataset)

    assert names == ["id"]
    assert first + second == numbers and sorted(numbers) == list(range(10))
    assert (len(first), len(second)) == (4, 6)


def test_a_dataset_is_computed_where_a_cpu_is_left(ray_nodes):
    with launch(2) as job:
        shares = job.run(rows, ray.data.range(4, override_num_blocks=2).map(lambda row: {"id": 2 * row["id"]}))

    assert sorted(shares[0][1] + shares[1][1]) == [0, 2, 4, 6]


def test_a_dataset_needs_a_block_for_each_rank(ray_nodes):
    dataset = ray.data.range(10, override_num_blocks=1).materialize()

    with launch(2) as job, pytest.raises(InputError, match=r"1 blocks for 2 workers: repartition\(2\) makes enough"):
        job.run(rows, dataset)
