"""Errors in iterative map-reduce: functions that raise or return wrong values, and workers that die."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
import ripieno as rp
from mapreduce_programs import emit_ones


def failing(part, _):
    if part == 4:
        raise LookupError("no such thing", part)
    return [part], [1]


@pytest.mark.parametrize("threads", [1, 2])
def test_an_exception_of_map_reaches_the_caller_with_task_and_partition(threads):
    launched = rp.launch(workers=2)
    with rp.MapReduce(failing, job=launched, threads=threads) as job:
        job.cache([np.int64(number) for number in range(6)])
        with pytest.raises(LookupError) as caught:
            job.step()

    assert caught.value.args == ("no such thing", 4)
    assert any(note == "in map task 4 (int64) on rank 1" for note in caught.value.__notes__)
    with launched:
        assert launched.run(lambda comm: (comm.allreduce(1), len(comm.cache))) == [(2, 0)] * 2


def only_once(part, _):
    """Return a table for the first task; other tasks must not run."""
    assert part == 0
    return {1: np.ones(1)}


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (
            {"map": lambda part, _: [1, 2]},
            r"map task 0 \(int\) on rank 0 returned a list: expected KeyValues, \(keys, values\)",
        ),
        ({"map": lambda part, _: ([1], [1, 2])}, "map task 0 .* returned values: 2 rows for 1 keys"),
        (
            {"map": lambda part, _: ([1], [1]) if part else {1: np.ones(2)}},
            "map task 1 .* expected all KeyValues, or all",
        ),
        ({"map": lambda part, _: {1: np.ones(1 + part)}}, r"map task 1 .* partition 1: shape \(2,\)"),
        ({"map": only_once, "memory_limit": 9}, "memory_limit=9: has no effect on Table"),
        ({"map": only_once, "local_reduction": False}, "local_reduction=False: has no effect on Table"),
        ({"map": only_once, "partitioner": "balanced"}, "partitioner='balanced' of a table"),
        (
            {"map": lambda part, _: ([0], [1]), "reduce": lambda keys, values: (keys, values[:0])},
            "reduce returned .*0 rows for 1 keys",
        ),
        (
            {"map": lambda part, _: ([0], [1]), "reduce": lambda keys, values: ("sum", values.sum())},
            r"reduce returned keys: a str: .* \(a pair means keys and values",
        ),
        (
            {"map": lambda part, _: ([0], [1]), "reduce": lambda keys, values: {"sum": values.sum()}},
            "reduce returned partition 'sum': .* a dict means a table: put other results into a list",
        ),
        (
            {"map": lambda part, _: {3: np.ones(1)}, "reduce": lambda number, array: None},
            r"reduce returned partition 3 of a NoneType: [^(]*$",
        ),
    ],
)
def test_invalid_results_of_functions_are_reported_with_their_task(program, message):
    with rp.MapReduce(**program, workers=1) as job, pytest.raises(rp.InputError, match=message):
        job.cache([0, 1])
        job.step()


def test_errors_name_reduce_or_collect():
    def fail(*_):
        raise ZeroDivisionError("injected")

    for part, note in (
        ({"reduce": fail}, "in reduce, of a block of 1 keys"),
        ({"collect": fail}, "in collect, iteration 1"),
    ):
        with rp.MapReduce(lambda part, _: ([7], [1]), workers=1, **part) as job:
            job.cache([0])
            with pytest.raises(ZeroDivisionError) as caught:
                job.step()
            assert any(each.startswith(note) for each in caught.value.__notes__), caught.value.__notes__


def test_a_loader_that_raises_names_the_task():
    with rp.MapReduce(emit_ones, workers=1) as job, pytest.raises(FileNotFoundError) as caught:
        job.cache(["/nowhere/a", "/nowhere/b"], loader=open)

    assert "while map task 0 (str) on rank 0 was loaded" in caught.value.__notes__


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"map": 3}, "map: a int: expected a function"),
        ({"map": len, "every": 0}, "every=0"),
        ({"map": len, "threads": 0}, "threads=0"),
        ({"map": len, "threads": 1.0}, "threads=1.0"),
        ({"map": len, "workers": 2, "comm": object()}, "expected one of them"),
        ({"map": len, "combine": "median"}, "combine='median'"),
        ({"map": len, "memory_limit": 0}, "memory_limit=0"),
        ({"map": len, "partitioner": 7}, "partitioner"),
        ({"map": len, "name": "../x", "checkpoint": "."}, "name='../x'"),
    ],
)
def test_wrong_parameters_are_named(options, message):
    with pytest.raises(rp.InputError, match=message):
        rp.MapReduce(**options)


def test_wrong_input_is_named(world):
    with rp.MapReduce(emit_ones, job=world(2)) as job:
        for partitions, options, message in (
            ([], {}, "no partitions"),
            ("abc", {}, "a str: expected an array, or a list"),
            (np.arange(3), {"tasks": 4}, "4 tasks for an array of shape"),
            ([1], {"tasks": 2}, "tasks=2: an array can be cut"),
        ):
            with pytest.raises(rp.InputError, match=message):
                job.cache(partitions, **options)
        with pytest.raises(rp.InputError, match="there are no map tasks"):
            job.step()
        with pytest.raises(rp.SerializationError, match=r"the partition of map task 1 .* cannot be sent"):
            job.cache([1, (each for each in ())])
        with pytest.raises(rp.SerializationError, match="accumulator"):
            job.broadcast(job.accumulator(0))


def test_a_job_continues_when_a_replica_of_a_rank_dies():
    def emit(part, value):
        if value == 1 and os.getpid() == victim:
            os.kill(os.getpid(), signal.SIGKILL)
        return part % 3, part

    with rp.launch(workers=4, replicas=2, threads=1) as launched:
        victim = launched.pids[0]
        with rp.MapReduce(emit, job=launched) as job:
            job.cache(np.arange(60), tasks=6)
            steps = []
            for value in range(3):
                job.broadcast(value)
                steps.append(job.step())

            assert job.workers == 2 and list(launched.lost) == [0]
    for step in steps:
        order = np.argsort(step.keys)
        np.testing.assert_array_equal(step.values[order], [570, 590, 610])


def test_a_failure_between_steps_is_reported_by_the_next_step(world):
    def fail(comm):
        raise KeyError("in between")

    with rp.MapReduce(lambda numbers, _: None, job=world(2)) as job:
        job.cache([[1], [2]])
        job.step()
        with pytest.raises(KeyError):
            world(2).run(fail)
        with pytest.raises(rp.CommunicatorClosed, match="lost the state of this map-reduce job"):
            job.step()
