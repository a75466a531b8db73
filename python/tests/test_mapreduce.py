"""Iterative map-reduce: results, data kept on workers, and transferred data."""

from __future__ import annotations

import doctest
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from datetime import datetime
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest
import ripieno as rp
from mapreduce_programs import CLUSTERS, assign, by_key, emit_ones, kmeans, points, recenter
from ripieno.files.sources import version
from ripieno.input import splits
from ripieno.mapreduce import driver, moving, worker
from ripieno.mapreduce.blocks import as_keyed
from ripieno.mapreduce.serialized_value import SerializedValue
from ripieno.mapreduce.tasks import assign_tasks
from varied import exhaustively

WORDS = ["fig", "pear", "fig", "quince", "été", "pear", "fig", "", "sloe", "été"]


@pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
def test_words_are_counted_by_more_tasks_than_workers(world, workers):
    partitions = [WORDS[:3], WORDS[3:4], WORDS[4:8], WORDS[8:], ["sloe"]]

    with rp.MapReduce(emit_ones, job=world(workers)) as job:
        tasks = job.cache(partitions)
        counts = job.step()

    assert [task.number for task in tasks] == list(range(5)) and {task.rank for task in tasks} == set(range(workers))
    assert dict(zip(counts.keys.to_pylist(), counts.values.tolist(), strict=True)) == Counter([*WORDS, "sloe"])


@pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
def test_kmeans_matches_the_estimator(world, workers):
    model = rp.KMeans(CLUSTERS, init=points()[:CLUSTERS], max_iter=5, tol=0).fit(points())

    with rp.MapReduce(assign, reduce=recenter, collect=by_key, job=world(workers)) as job:
        np.testing.assert_allclose(kmeans(job), model.cluster_centers_, rtol=1e-12)


def test_results_have_the_same_bits_for_any_number_of_threads_and_in_every_run(world):
    def run(threads):
        with rp.MapReduce(assign, reduce=recenter, collect=by_key, threads=threads, job=world(2)) as job:
            return kmeans(job, tasks=20).tobytes()

    assert len({run(threads) for threads in (1, 1, 2, 3)}) == 1


def test_tables_are_combined_and_reduced_by_id(world):
    def spread(part, scale):
        return {number: np.full((2, number), float(scale)) for number in part}

    with rp.MapReduce(spread, reduce=lambda number, array: array * 10, job=world(2)) as job:
        job.cache([[1, 2], [2, 3], [], [2]])
        job.broadcast(3)
        table = job.step()

    assert list(table) == [1, 2, 3]
    np.testing.assert_array_equal(table[2], np.full((2, 2), 90.0))


@pytest.mark.parametrize(("combine", "expected"), [("concat", [2, 1, 5]), ("max", [5]), (np.multiply, [10])])
def test_the_table_of_a_step_has_the_combiner_of_the_job(world, combine, expected):
    with rp.MapReduce(lambda part, _: {0: part}, combine=combine, job=world(2), threads=np.int64(1)) as job:
        job.cache([np.array([2]), np.array([1])])
        table = job.step()

    table.add(0, np.array([5]))
    np.testing.assert_array_equal(table[0], expected)


@pytest.mark.parametrize("workers", [1, 3])
def test_reduce_gets_every_key_once_with_all_its_rows(world, workers):
    def emit(part, _):
        return part % 5, part

    def total(keys, values, offsets):
        return keys, np.add.reduceat(values, offsets[:-1])

    numbers = np.arange(100)
    with rp.MapReduce(emit, combine="concat", reduce=total, job=world(workers)) as job:
        job.cache(numbers, tasks=9)
        sums = job.step()

    order = np.argsort(sums.keys)
    np.testing.assert_array_equal(sums.keys[order], np.arange(5))
    np.testing.assert_array_equal(sums.values[order], [numbers[numbers % 5 == key].sum() for key in range(5)])


def test_a_function_combines_and_other_objects_are_listed(world):
    def longest(left, right):
        return np.where(np.abs(left) >= np.abs(right), left, right)

    with rp.MapReduce(
        lambda part, _: (part % 3, part),
        combine=longest,
        reduce=lambda keys, values: set(zip(keys.tolist(), values.tolist(), strict=True)),
        job=world(2),
    ) as job:
        job.cache([np.array([1, -4, 2]), np.array([-5, 3, 7, -9])])
        parts = job.step()

    assert isinstance(parts, list)
    assert set().union(*parts) == {(0, -9), (1, 7), (2, -4)}


def test_a_partitioner_places_keys_and_excess_rows_are_spilled(world):
    def parity(keys, values):
        return [int(keys[0] % 2), len(keys), bool((keys % 2 == keys[0] % 2).all() and (values == 2).all())]

    numbers = np.tile(np.arange(30_000), 2)
    options = {"partitioner": lambda keys: 1 - keys % 2, "memory_limit": 100_000}
    with rp.MapReduce(emit_ones, reduce=parity, job=world(2), **options) as job:
        job.cache(numbers, tasks=6)
        blocks = job.step()

    parities = [block[0] for block in blocks]
    # Rank 0 owns odd keys, and its blocks come first.
    assert parities == sorted(parities, reverse=True) and all(block[2] for block in blocks)
    assert [sum(block[1] for block in blocks if block[0] == each) for each in (0, 1)] == [15_000, 15_000]


def test_tasks_without_output_give_none(world):
    with rp.MapReduce(lambda part, _: None, collect=lambda result: [result], job=world(2)) as job:
        job.cache([1, 2, 3])
        assert job.step() == [None]


def test_ranks_of_a_program_can_drive_a_job_and_all_get_the_result(world, tmp_path):
    def program(comm):
        options = {"checkpoint": tmp_path, "name": "inside", "comm": comm}
        with rp.MapReduce(assign, reduce=recenter, collect=by_key, **options) as job:
            return kmeans(job).tobytes(), job.resumed_from, job.workers

    with rp.MapReduce(assign, reduce=recenter, collect=by_key, job=world(3)) as job:
        expected = kmeans(job).tobytes()

    assert world(3).run(program) == [(expected, None, 3)] * 3
    assert world(3).run(program) == [(expected, 5, 3)] * 3


def test_the_example_of_the_docstring_runs():
    results = doctest.testmod(driver)

    assert results.attempted and not results.failed


#: Kept and transferred data


@pytest.mark.parametrize(
    ("sizes", "ranks"), [([5, 1, 1, 1, 9, 1], 3), ([1] * 5, 3), ([1, 1, 1, 1], 3), ([7], 2), ([0, 0, 0], 2)]
)
def test_tasks_are_assigned_with_the_smallest_maximum_load(sizes, ranks):
    tasks = assign_tasks([bytes(size) for size in sizes], [""] * len(sizes), ["a"] * ranks)

    loads = [sum(task.size_bytes for task in tasks if task.rank == rank) for rank in range(ranks)]
    cuts = combinations(range(1, len(sizes)), min(ranks, len(sizes)) - 1)
    best = min(max(sum(sizes[a:b]) for a, b in pairwise([0, *cut, len(sizes)])) for cut in cuts)
    assert [task.rank for task in tasks] == sorted(task.rank for task in tasks)
    assert max(loads) == best and len({task.rank for task in tasks}) == min(ranks, len(sizes))


def test_splits_with_known_locations_are_assigned_to_them(tmp_path):
    (tmp_path / "a.txt").write_text("line\n" * 400)
    hosts = ["b", "a", "b", "a"]
    located = [replace(split, hosts=(host,)) for split, host in zip(splits(tmp_path, count=4), hosts, strict=True)]

    assert [task.rank for task in assign_tasks(located, hosts, ["a", "b"])] == [1, 0, 1, 0]


@pytest.mark.parametrize("threads", [1, 2])
def test_partitions_are_loaded_once_by_the_rank_that_keeps_them(world, tmp_path, threads):
    log = tmp_path / "loads"

    def load(number):
        with open(log, "a") as file:
            file.write(f"{number} {os.getpid()}\n")
        return np.array([number])

    def emit(part, _):
        return part, np.array([os.getpid()])

    with rp.MapReduce(emit, combine="max", threads=threads, job=world(2)) as job:
        job.cache(range(5), loader=load)
        steps = [job.step() for _ in range(3)]
        loads = [step.load.seconds > 0 for step in job.statistics]

    loaded = [tuple(map(int, line.split())) for line in log.read_text().splitlines()]
    assert sorted(number for number, _ in loaded) == list(range(5))
    for step in steps:
        assert dict(zip(step.keys.tolist(), step.values.tolist(), strict=True)) == dict(loaded)
    assert loads == [True, False, False]


def test_splits_of_files_are_read_by_the_workers(world, tmp_path):
    (tmp_path / "a.txt").write_text("fig pear\nfig\n" * 50)

    with rp.MapReduce(lambda text, _: emit_ones(text.decode().split(), None), job=world(2)) as job:
        tasks = job.cache(splits(tmp_path / "a.txt", count=4))
        counts = job.step()

    assert dict(zip(counts.keys.to_pylist(), counts.values.tolist(), strict=True)) == {"fig": 100, "pear": 50}
    assert "a.txt" in tasks[0].partition and len(tasks) == 4


def test_workers_read_the_rows_of_a_memory_map_from_its_file(world, tmp_path):
    np.save(tmp_path / "rows.npy", np.arange(200_000.0))

    def inspect(part, value):
        with open("/proc/self/maps") as maps:
            is_mapped = "rows.npy" in maps.read()
        return [0], [int(is_mapped) + 2 * part.flags.writeable + 4 * value["a"].flags.writeable]

    with rp.MapReduce(inspect, combine="max", job=world(2)) as job:
        job.cache(np.load(tmp_path / "rows.npy", mmap_mode="r"), tasks=4)
        job.broadcast({"a": np.zeros(100_000)})
        assert job.step().values.tolist() == [0]
        assert job.statistics[0].broadcast.bytes >= 800_000


def test_cached_partitions_stay_when_their_file_is_written_again_or_truncated(world, tmp_path):
    path = tmp_path / "rows.npy"
    np.save(path, np.arange(100_000.0))
    load = {
        "memmap": lambda: np.load(path, mmap_mode="r"),
        "splits": lambda: splits(path, count=4),
        "loader": lambda: [0, 1, 2, 3],
    }

    def loaded(part):
        if isinstance(part, int):
            rows = np.load(path, mmap_mode="r")[part * 25_000 : (part + 1) * 25_000]
            return {"rows": [rows.reshape(-1, 10)]}
        return part.read() if hasattr(part, "read") else part

    def total(part, _):
        rows = part["rows"][0] if isinstance(part, dict) else part
        return [0], [float(rows.sum())]

    for how, partitions in load.items():
        np.save(path, np.arange(100_000.0))
        with rp.MapReduce(total, job=world(2)) as job:
            job.cache(partitions(), loader=loaded)
            for change in (lambda: np.save(path, np.zeros(100_000)), lambda: os.truncate(path, 200)):
                change()
                assert job.step().values.tolist() == [4_999_950_000.0], how


def test_local_reduction_sends_the_output_of_one_of_eight_tasks(world):
    keys = np.arange(2000)

    def sent_bytes(local_reduction):
        emit = lambda part, _: (keys, np.ones((len(keys), 100)))  # noqa: E731
        with rp.MapReduce(emit, local_reduction=local_reduction, job=world(2)) as job:
            job.cache(list(range(16)))
            result = job.step()
            assert (result.values == 16).all() and len(result) == len(keys)
            return job.statistics[-1].shuffle.bytes

    # Half of the rows of each rank belong to the other rank.
    assert sent_bytes(True) == pytest.approx(len(keys) * 101 * 8, rel=0.05)
    assert sent_bytes(True) / sent_bytes(False) == pytest.approx(1 / 8, rel=0.02)


OBJECTS = [
    (("b", 1), "x"), ((1.0, 2), "y"), (2.5, "z"), (b"\0", "u"), (None, "v"), ((1, 2.0), "w"), (frozenset("abc"), "q"),
    (datetime(2020, 1, 1), "d"), (("b", 1), "e"), (frozenset("cba"), "f"), (Fraction(5, 2), "g"), (True, "h"), (1, "i"),
]  # fmt: skip


EQUAL_KEYS = """
class Fruit(StrEnum):
    FIG = "fig"

second, hour = timedelta(seconds=1), timezone(timedelta(hours=1))
groups = [
    [np.datetime64("2020-01-01"), np.datetime64("2020-01"), np.datetime64("2020-01-01", "ns"), date(2020, 1, 1)],
    [np.datetime64("2020-01-01T00:00:01"), datetime(2020, 1, 1) + second, datetime(2020, 1, 1, 0, 0, 1, fold=1)],
    [datetime(2020, 2, 1, 1, tzinfo=hour), datetime(2020, 2, 1, tzinfo=timezone.utc)],
    [np.timedelta64(3, "ns"), np.timedelta64(3000, "ps")],
    [np.timedelta64(24, "h"), np.timedelta64(1, "D"), timedelta(days=1)],
    [np.timedelta64(2, "Y"), np.timedelta64(24, "M")],
    [("a", np.datetime64("1969-12-31T23")), ("a", np.datetime64("1969-12-31T23:00"))],
    [Fruit.FIG, "fig", np.str_("fig")],
]
"""


def test_equal_keys_have_one_owner_in_every_process():
    program = f"""
import json
from datetime import date, datetime, timedelta, timezone
from enum import StrEnum
import numpy as np
from ripieno.mapreduce.object_pairs import owner_of
{EQUAL_KEYS}
assert all(key == group[0] for group in groups for key in group)
print(json.dumps([[owner_of(key, 1 << 30) for key in group] for group in groups]))
"""
    found = []
    for seed in "12":  # hashes of strings and of dates depend on it
        environment = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, check=True)
        found.append(json.loads(done.stdout))
    assert found[0] == found[1]
    assert [len(set(owners)) for owners in found[0]] == [1] * len(found[0])
    assert len({owners[0] for owners in found[0]}) == len(found[0])


def test_keys_and_values_of_any_kind_are_combined_on_one_rank(world):
    parts = [OBJECTS[:5], OBJECTS[5:8], [], OBJECTS[8:]]
    expected = {}
    for key, value in OBJECTS:
        expected.setdefault(key, []).append(value)

    def emit(part, _):
        return [key for key, _ in part], [value for _, value in part]

    for combine, of_values in (("concat", list), ("sum", "".join), (lambda left, right: max(left, right), max)):
        with rp.MapReduce(emit, combine=combine, job=world(3)) as job:
            job.cache(parts)
            found = job.step()
        assert isinstance(found, rp.ObjectPairs)
        assert found.to_dict() == {key: of_values(values) for key, values in expected.items()}
        assert len(found) == len(expected)

    def count(keys, values):
        return [str(key) for key in keys], [len(each) for each in values]

    with rp.MapReduce(emit, combine="concat", reduce=count, job=world(3)) as job:
        job.cache(parts)
        counts = job.step()
    assert isinstance(counts, rp.KeyValues) and counts.values.sum() == len(OBJECTS)


@pytest.mark.parametrize(
    ("output", "kind"),
    [
        (([1, 2], [0.5, 1]), rp.KeyValues),
        ((["a", "b"], [[1, 2], [3, 4]]), rp.KeyValues),
        ((np.array([1, 2]), np.ones((2, 3))), rp.KeyValues),
        ((["a", "b"], [[1, 2], [3]]), rp.ObjectPairs),
        ((["a", "b"], ["c", "d"]), rp.ObjectPairs),
        (([0.5, 1.5], [1, 2]), rp.ObjectPairs),
        ((np.array([0.5, 1.5]), np.array([1, 2])), rp.ObjectPairs),
        (([("a", 1)], [1]), rp.ObjectPairs),
        (([1], [{"a": 1}]), rp.ObjectPairs),
        (([], []), rp.KeyValues),
    ],
)
def test_columns_stay_columns(output, kind):
    assert type(as_keyed(output)) is kind


def test_objects_that_cannot_be_keys_or_combined_are_named():
    for output, message in (
        (([("a", [1])], [1]), "key .*: expected an object with a hash"),
        (([(1,), (1,)], [1, "a"]), "unsupported operand"),
        (([(1,)], [1, 2]), "values: 2 objects for 1 keys"),
    ):
        with rp.MapReduce(lambda part, _, output=output: output, workers=1) as job:
            job.cache([0])
            with pytest.raises((rp.InputError, TypeError), match=message):
                job.step()
    with rp.MapReduce(lambda part, _: ([1.5], [1]), memory_limit=9, workers=1) as job:
        job.cache([0])
        with pytest.raises(rp.InputError, match="memory_limit=9: has no effect on ObjectPairs"):
            job.step()


def wait_for_other_rank(part, _):
    """Wait in task 0 until task 1 has opened the other end of a pipe."""
    number, pipe = part
    if pipe is not None and number < 2:
        with open(pipe, "r" if number == 0 else "w"):
            pass
    return np.arange(2), np.full(2, 0.1 * (number + 1), np.float32)


@pytest.fixture
def pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    return str(tmp_path / "pipe")


def test_an_idle_rank_runs_a_task_of_a_slow_one_with_the_same_bits(world, pipe):
    found = []
    for end, stealing in ((pipe, True), (None, False)):
        with rp.MapReduce(wait_for_other_rank, job=world(3), stealing=stealing) as job:
            tasks = job.cache([(number, end) for number in range(6)])
            assert [task.rank for task in tasks] == [0, 0, 1, 1, 2, 2]
            found.append(job.step().sorted(by="key").values.tobytes())
            assert (job.statistics[-1].moved_count > 0) == stealing
    assert found[0] == found[1]


def test_tasks_are_claimed_once_by_ranks_that_have_the_partition():
    claims = moving.Claims([0, 0, 0, 0, 1], lambda number, rank: number != 3, 2)
    slow, fast = moving.Pace(1, 1.0), moving.Pace(100, 0.001)
    assert claims.take(0, moving.Pace()) == ([0], {})
    assert claims.take(1, moving.Pace()) == ([4], {})
    assert claims.take(1, fast) == ([2], {})  # task 3 cannot move
    assert claims.take(0, slow) == ([1], {})
    assert claims.take(1, fast) == ([], {})
    assert claims.take(0, slow) == ([3], {})
    assert claims.take(0, slow) == ([], {2: 1})

    # Short tasks are handed out together, and stay with their rank.
    claims = moving.Claims([0] * 100 + [1], lambda number, rank: True, 2)
    assert claims.take(0, fast)[0] == list(range(50))
    claims.take(1, fast)
    assert claims.take(1, fast) == ([], {})


def fail_when_moved(part, _):
    if part[0] == 1:
        wait_for_other_rank(part, _)
        raise ValueError("no such part")
    return wait_for_other_rank(part, _)


def test_the_error_of_a_moved_task_names_both_ranks(pipe):
    with rp.MapReduce(fail_when_moved, workers=2) as job:
        job.cache([(number, pipe) for number in range(4)])
        with pytest.raises(ValueError, match="no such part") as raised:
            job.step()
    notes = " ".join(raised.value.__notes__)
    assert "in map task 1" in notes and "run by rank 1 instead" in notes


def test_another_rank_does_not_load_a_file_that_has_changed(tmp_path):
    np.save(tmp_path / "rows.npy", np.arange(6.0))
    (split,) = rp.input.splits(tmp_path / "rows.npy")
    sealed = SerializedValue(split, "a split")
    partition = worker.SerializedPartition(
        driver.Task(0, 1, "rows", None), sealed, sealed.size_bytes, (), (split.path,)
    )

    def program(comm, partition):
        part = worker.WorkerState(
            comm, loader=worker.default_loader, versions={partition.paths[0]: version(split.path)}
        )
        found = [worker._load_replica(part, partition)]
        np.save(split.path, np.zeros(6))
        return [*found, worker._load_replica(part, partition)]

    with rp.launch(1) as job:
        ((before, after),) = job.run(program, partition)
    assert before[0].tolist() == [*range(6)] and after is None


def test_every_stage_is_in_the_report(world):
    with rp.MapReduce(assign, reduce=recenter, collect=by_key, job=world(2)) as job:
        kmeans(job, iterations=3)
        first, *others = job.statistics
        report = job.report().splitlines()

    assert [step.iteration for step in job.statistics] == [1, 2, 3]
    assert first.load.bytes == points().nbytes and all(step.load.bytes == 0 for step in others)
    for step in job.statistics:
        assert step.broadcast.bytes >= CLUSTERS * 3 * 8
        assert step.map.bytes == 7 * CLUSTERS * (8 + 4 * 8)
        assert step.reduce.bytes == CLUSTERS * (8 + 4 * 8)
        assert step.combine.bytes == CLUSTERS * (8 + 3 * 8)
        assert len(step.map.worker_s) == 2 and step.seconds >= step.map.seconds > 0
    assert len(report) == 5 and all(stage in report[0] for stage in ("load", "broadcast", "map", "shuffle", "combine"))


def test_a_job_leaves_nothing_on_workers_that_continue(world):
    with rp.MapReduce(emit_ones, job=world(2)) as job:
        job.cache([np.arange(3)])
        job.step()
        kept = world(2).run(lambda comm: len(comm.cache))

    assert kept == [1, 1] and world(2).run(lambda comm: len(comm.cache)) == [0, 0]
    with pytest.raises(rp.CommunicatorClosed, match="is closed"):
        job.step()
