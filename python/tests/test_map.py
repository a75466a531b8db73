"""`Job.map`: ranks take items one by one, and results arrive in order of completion."""

from __future__ import annotations

import os
import signal
import threading
import time
from itertools import count, islice

import numpy as np
import pytest
import ripieno as rp
from varied import exhaustively


@pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
def test_results_match_map(world, workers):
    job = world(workers)
    assert list(job.map(lambda number: number**2, range(100))) == [number**2 for number in range(100)]
    assert sorted(job.map(str, range(20), as_completed=True)) == [(number, str(number)) for number in range(20)]
    arrays = list(job.map(lambda size: np.full(size, size), [0, 3, 100_000]))
    assert [each.shape for each in arrays] == [(0,), (3,), (100_000,)]
    assert list(job.map(len, [])) == []


def test_results_arrive_before_all_tasks_end(world):
    def slow(number):
        time.sleep(1.0 if number == 0 else 0.0)
        return number

    first = next(world(2).map(slow, range(10), as_completed=True))
    assert first[0] != 0, "the slow item arrives first"


def test_ranks_take_items_as_they_become_free(world, tmp_path):
    def work(number):
        (tmp_path / f"{number}").touch()
        deadline = time.monotonic() + 60
        while number == 0 and len(list(tmp_path.iterdir())) < 20 and time.monotonic() < deadline:
            time.sleep(0.001)
        return os.getpid()

    processes = list(world(2).map(work, range(20), in_flight=20))
    assert processes.count(processes[0]) == 1, "a busy rank takes no further items"
    assert len(set(processes)) == 2


def test_only_items_in_flight_are_read_ahead(world):
    read = count()

    def items():
        for number in range(10**9):
            next(read)
            yield number

    assert list(islice(world(2).map(abs, items(), in_flight=4), 6)) == [0, 1, 2, 3, 4, 5]
    assert next(read) <= 8


class NeedsTwo(Exception):
    """An exception that can be pickled, but not unpickled."""

    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


class UnreadableResult:
    """An object that can be pickled, but not unpickled."""

    def __reduce__(self):
        return int, ("x",)


def fail_differently(number):
    if number == 1:
        raise NeedsTwo(number, 2)
    return UnreadableResult() if number == 2 else threading.Lock() if number == 3 else number


@pytest.mark.parametrize(
    ("number", "expected", "message"),
    [
        (1, rp.RankFailed, r"(?s)NeedsTwo: 1 and 2.*in fail_differently"),
        (2, rp.SerializationError, "the result of item 0 of map, on rank [01], cannot be unpickled.*ValueError"),
        (3, rp.SerializationError, "cannot pickle"),
    ],
)
def test_unpicklable_results_and_exceptions_of_items_are_reported(world, number, expected, message):
    with pytest.raises(expected, match=message):
        list(world(2).map(fail_differently, [number]))
    assert list(world(2).map(fail_differently, [0])) == [0]


def test_an_item_that_fails_is_named(world):
    def fail(number):
        if number == 7:
            raise ValueError(f"item {number} is bad")
        return number

    with pytest.raises(ValueError, match="item 7 is bad") as caught:
        list(world(3).map(fail, range(50), in_flight=5))
    assert any("in item 7 of map, on rank" in note for note in caught.value.__notes__)
    with pytest.raises(rp.RipienoError, match=r"cannot|pickle"):
        list(world(2).map(lambda _: (each for each in ()), range(3)))

    class Two(Exception):
        def __init__(self, stuff, more):
            super().__init__(f"{stuff} {more}")

    def fail_in_two(number):
        raise Two("item", number)

    with pytest.raises(rp.RankFailed, match="Two: item 0"):
        list(world(2).map(fail_in_two, [0]))
    assert list(world(3).map(abs, range(3))) == [0, 1, 2], "the job is usable"


def die_once(item):
    number, path = item
    if number == 5 and not os.path.exists(path):
        open(path, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.parametrize("on_failure", ["shrink", "respawn"])
def test_other_ranks_process_the_items_of_a_dead_rank(tmp_path, on_failure):
    items = [(number, str(tmp_path / "died")) for number in range(12)]
    with rp.launch(workers=3, on_failure=on_failure) as job, pytest.warns(RuntimeWarning):
        assert list(job.map(die_once, items)) == list(range(12))


def test_a_rank_that_dies_ends_a_map_without_replacements(tmp_path):
    items = [(number, str(tmp_path / "died")) for number in range(12)]
    with rp.launch(workers=2) as job:
        with pytest.raises(rp.RankFailed, match=r"SIGKILL|signal 9|killed"):
            list(job.map(die_once, items))
        assert list(job.map(die_once, items)) == list(range(12))


def test_wrong_arguments_of_map_are_named(world):
    for call, message in [
        (lambda job: job.map(3, []), "expected a function"),
        (lambda job: job.map(abs, [1], in_flight=0), "in_flight=0"),
    ]:
        with pytest.raises(rp.InputError, match=message):
            call(world(2))
