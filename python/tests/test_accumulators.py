"""Accumulators: tasks and programs add, the driver reads."""

from __future__ import annotations

import operator
from collections import Counter

import numpy as np
import pytest
import ripieno as rp
from varied import exhaustively


def test_tasks_add_to_accumulators_and_the_driver_reads_them(world):
    def count(part, _):
        rows.add(len(part))
        rows.add(0)
        largest.add(part.max())
        ends.add(np.array([part[0], part[-1]], float))
        return part % 2, part

    def reduce(keys, values):
        reduced.add(len(keys))
        return keys, values

    with rp.MapReduce(count, reduce=reduce, job=world(2), threads=2) as job:
        rows, largest, ends = job.accumulator(0), job.accumulator(-1, op="max"), job.accumulator(np.zeros(2))
        reduced = job.accumulator(10)
        job.cache(np.arange(100), tasks=5)
        job.step()
        first = rows.value, largest.value, ends.value.tolist(), reduced.value
        late = job.accumulator(0.5)
        job.step()

    assert first == (100, 99, [200.0, 295.0], 12)
    assert (rows.value, reduced.value, late.value) == (200, 14, 0.5)


def test_sums_of_accumulators_have_the_same_bits_for_any_number_of_threads(world):
    amounts = np.random.default_rng(3).normal(size=200)

    def add(part, _):
        for amount in part:
            total.add(amount)

    sums = set()
    for threads in (1, 2, 4):
        with rp.MapReduce(add, job=world(2), threads=threads) as job:
            total = job.accumulator(0.0)
            job.cache(amounts, tasks=40)
            job.step()
            sums.add(float(total.value))

    assert len(sums) == 1


class Longest:
    """The longest of the texts that it has seen, and their number."""

    def __init__(self, text=""):
        self.text, self.count = text, 1

    def include(self, other):
        self.text, self.count = max(self.text, other.text, key=len), self.count + other.count
        return self


def use_objects(texts, names, words, order, longest):
    batch = []
    for text in texts:
        names.add({text})
        words.add(Counter(text))
        batch[:] = [[text]]
        order.add(batch)
        # A later change of a nested object does not change the accumulator.
        batch[0][0] = "changed"
        longest.add(Longest(text))


def objects_of(job):
    return (
        job.accumulator(set(), add=operator.ior),
        job.accumulator(Counter(z=1), add=operator.add),
        job.accumulator([], add=operator.iadd),
        job.accumulator(Longest(), add=Longest.include),
    )


TEXTS = ["a", "bcd", "ef", "a", "ghij", "k"]


def check_objects(accumulators, times):
    names, words, order, longest = (each.value for each in accumulators)
    assert names == set(TEXTS)
    assert words == Counter(z=1) + Counter("".join(TEXTS * times))
    assert order == [[text] for text in TEXTS * times]
    assert (longest.text, longest.count) == ("ghij", 1 + len(TEXTS) * times)


def test_tasks_add_objects_of_any_type(world):
    def add(part, _):
        use_objects(part, *accumulators)

    with rp.MapReduce(add, job=world(2), threads=2) as job:
        accumulators = objects_of(job)
        job.cache([TEXTS[:1], TEXTS[1:4], TEXTS[4:]])
        job.step()
        check_objects(accumulators, 1)
        before = accumulators[2].value
        job.step()
    check_objects(accumulators, 2)
    # A step never changes a value that the caller has read.
    assert before == [[text] for text in TEXTS]


@pytest.mark.parametrize("workers", [1, 2])
def test_programs_add_objects_of_any_type(world, workers):
    accumulators = objects_of(world(workers))
    share = len(TEXTS) // workers
    for _ in range(2):
        world(workers).run(
            lambda comm, *each: use_objects(TEXTS[comm.rank * share : (comm.rank + 1) * share], *each), *accumulators
        )
    check_objects(accumulators, 2)


def test_a_wrong_function_is_named_and_changes_no_accumulator(world):
    job = world(2)
    rows, names = job.accumulator(0), job.accumulator(set(), add=set.update)
    with pytest.raises(rp.InputError, match=r"add=set.update: returned a NoneType for operands of type set"):
        job.run(lambda comm: (rows.add(1), names.add({comm.rank})))
    assert (rows.value, names.value) == (0, set())
    for options, message in (
        ({"op": "max", "add": operator.or_}, "op='max' and add=or_: expected one of them"),
        ({"add": 3}, "add: a int: expected a function"),
        ({"op": set.union}, "op=set.union: expected one of sum, .* pass any other function as add="),
        ({}, "a set: expected a number or an array of numbers, or a function as add="),
    ):
        with pytest.raises(rp.InputError, match=message):
            job.accumulator(set(), **options)
    with pytest.raises(rp.InputError, match="a generator cannot be copied"):
        job.run(lambda comm: names.add(each for each in ()))


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda counter: counter.value, "only be added to in map and reduce"),
        (lambda counter: counter.add([1, 2]), "a list: expected a number"),
        (lambda counter: counter.add(np.ones(2)), r"the shape is \(2,\): expected \(\)"),
    ],
)
def test_a_task_can_only_add_numbers_of_the_right_shape(use, message):
    with rp.MapReduce(lambda part, _: use(counter), workers=1) as job, pytest.raises(rp.InputError, match=message):
        counter = job.accumulator(0)
        job.cache([1, 2])
        job.step()


def test_additions_of_a_failed_step_do_not_count():
    def add(part, value):
        counter.add(1)
        if part == value:
            raise KeyError(part)

    with rp.MapReduce(add, workers=1) as job:
        counter = job.accumulator(0)
        job.cache([0, 1, 2])
        job.step()
        job.broadcast(2)
        with pytest.raises(KeyError):
            job.step()

    assert counter.value == 3


def count(comm, rows, largest, ends):
    for _ in range(comm.rank + 1):
        rows.add(10)
    largest.add(comm.rank)
    amount = np.array([comm.rank, 0.5])
    ends.add(amount)
    # A later change of the array does not change the accumulator.
    amount[:] = 7


@pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
def test_programs_add_and_the_caller_reads(world, workers):
    job = world(workers)
    rows, largest, ends = job.accumulator(5), job.accumulator(-1, op="max"), job.accumulator(np.zeros(2))
    unused = job.accumulator(1)
    for _ in range(2):
        job.run(count, rows, largest, ends)
    job.run(lambda comm: rows.add(0.5) if comm.rank == 0 else None)
    once = 10 * workers * (workers + 1) // 2
    assert (rows.value, largest.value, unused.value) == (5 + 2 * once + 0.5, workers - 1, 1)
    assert ends.value.tolist() == [workers * (workers - 1), float(workers)]


def add_and_fail(comm, counter):
    counter.add(1)
    if comm.rank == 0:
        raise KeyError("injected")
    comm.barrier()


@pytest.mark.parametrize("workers", [1, 2])
def test_additions_of_a_failed_program_do_not_count(workers):
    with rp.launch(workers=workers, threads=1) as job:
        counter = job.accumulator(0)
        with pytest.raises(KeyError):
            job.run(add_and_fail, counter)
        assert counter.value == 0
        job.run(lambda comm: counter.add(comm.rank + 1))
        assert counter.value == workers * (workers + 1) // 2


def test_replicas_count_once():
    with rp.launch(workers=4, replicas=2, threads=1) as job:
        counter = job.accumulator(0)
        job.run(lambda comm, counter: counter.add(comm.rank + 1), counter)
        assert counter.value == 3


def test_sums_of_floats_have_the_same_bits_in_every_run(world):
    amounts = np.random.default_rng(3).normal(size=(3, 50))
    sums = set()
    for _ in range(3):
        total = world(3).accumulator(0.0)
        world(3).run(lambda comm, total: [total.add(amount) for amount in amounts[comm.rank]][:0], total)
        sums.add(float(total.value))
    assert len(sums) == 1


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("amount", "message"), [([1, 2], "a list: expected a number"), (np.ones(2), r"the shape is \(2,\): expected \(\)")]
)
def test_a_program_can_only_add_numbers_of_the_right_shape(world, workers, amount, message):
    counter = world(workers).accumulator(0)
    with pytest.raises(rp.InputError, match=message):
        world(workers).run(lambda comm, counter, amount: counter.add(amount), counter, amount)


def test_only_programs_of_its_own_job_add_to_an_accumulator(world):
    counter = world(1).accumulator(0)
    with pytest.raises(rp.InputError, match="only be added to in programs"):
        counter.add(1)
    with pytest.raises(rp.InputError, match="only be added to in programs"):
        world(2).run(lambda comm, counter: counter.value, world(2).accumulator(0))
    with pytest.raises(rp.InputError, match="of another job"):
        world(2).run(lambda comm, counter: counter.add(1), counter)
    with pytest.raises(rp.InputError, match="op='mean': expected one of sum"):
        world(1).accumulator(0, op="mean")
    assert counter.value == 0
