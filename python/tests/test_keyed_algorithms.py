"""Algorithms of keyed collectives: equal results in every world, counted bytes and calls, and the choice by size."""

from __future__ import annotations

import numpy as np
import pytest
import ripieno as rp
from numpy.testing import assert_array_equal
from ripieno.keyed.allreduce import ALGORITHMS, DataSizes, estimates

WORLDS = range(1, 9)
GATHERS = ("ring", "bruck", "direct")


def rows_of(rank: int, dtype: str = "int64", *, words: bool = False) -> rp.KeyValues:
    """Return some rows with repeated keys; rank 2 has none."""
    random = np.random.default_rng(rank)
    keys = random.integers(0, 30, 0 if rank == 2 else 50)
    return rp.KeyValues(
        [f"word {key}" for key in keys] if words else keys, random.integers(1, 9, len(keys)).astype(dtype)
    )


def appended(left, right):
    """Append the digits of the right operand: the result shows the order of ranks, and is exact below 2**53."""
    return left * 10.0 ** (np.floor(np.log10(right)) + 1) + right


def table_of(rank: int, combine: str, *, same: bool) -> rp.Table:
    ids = range(5) if same else range(rank, 2 * rank)
    return rp.Table({number: np.arange(3.0) + rank for number in ids}, combine)


def columns(rows: rp.KeyValues) -> tuple[list, list, str]:
    return np.asarray(rows.keys).tolist(), rows.values.tolist(), rows.values.dtype.name


def all_algorithms(comm):
    digit = rp.KeyValues([7, comm.rank % 3], [comm.rank + 1.0, comm.rank + 1.0])
    for rows, op in (
        (rows_of(comm.rank), "sum"),
        (rows_of(comm.rank, "float32", words=True), "max"),
        (rows_of(comm.rank, "float32"), "sum"),
        (rows_of(comm.rank, "bool"), "sum"),
        (digit, appended),
        (rp.KeyValues(rows_of(comm.rank).keys), None),
    ):
        found = {name: comm.allreduce(rows, op, algorithm=name) for name in (None, *ALGORITHMS)}
        expected = found["regroup-allgather"]
        for each in found.values():
            assert each.schema == expected.schema
            assert_array_equal(each.keys, expected.keys)
            assert_array_equal(each.values, expected.values)
    for combine, same in (("sum", True), ("sum", False), ("concat", True), ("concat", False)):
        table = table_of(comm.rank, combine, same=same)
        tables = [comm.allreduce(table, algorithm=name) for name in (None, *ALGORITHMS)]
        for each in tables:
            assert list(each) == list(tables[-1])
            for number, partition in each.items():
                assert_array_equal(partition, tables[-1][number])
    gathered = [columns(comm.allgather(rows_of(comm.rank), algorithm=name)) for name in (None, *GATHERS)]
    assert gathered == [gathered[0]] * len(gathered)
    many = comm.allreduce(rp.KeyValues([1], [0.1 * (comm.rank + 1)]), algorithm="bidirectional-exchange")
    assert len(set(comm.allgather(many.values.tobytes()))) == 1


@pytest.mark.parametrize("p", WORLDS)
def test_all_algorithms_have_equal_results(threads, p):
    threads(p, all_algorithms)


def sent(comm, name: str, make) -> tuple[int, int]:
    """Return the bytes that this rank sends in an allreduce, and its native calls."""
    rows = make(comm.rank)
    comm.allreduce(rows, algorithm=name)
    comm.barrier()
    before = comm.stats()
    comm.allreduce(rows, algorithm=name)
    after = comm.stats()
    return after["bytes_sent"] - before["bytes_sent"], after["call_count"] - before["call_count"]


@pytest.mark.parametrize("p", [2, 4, 5])
def test_algorithms_send_the_bytes_of_their_theory(threads, p):
    """All ranks have the same n bytes: a bidirectional exchange sends n in each round, an allgather n to each rank."""
    keys, core = np.arange(20_000), p.bit_length() - 1
    n = 16 * len(keys)
    surplus = p - (1 << core)
    theory = {
        "allgather": p * (p - 1) * n,
        "regroup-allgather": 2 * (p - 1) * n,
        "bidirectional-exchange": (core * (p - surplus) + 2 * surplus) * n,
    }
    for name, in_all in theory.items():
        found = threads(p, sent, name, lambda _: rp.KeyValues(keys, keys))
        assert sum(count for count, _ in found) == pytest.approx(in_all, rel=0.05), name
    rounds = core + (2 if surplus else 0)
    assert {calls for _, calls in found} == {1 + 2 * rounds}


def test_the_choice_depends_on_the_bytes_and_the_size_of_partitions():
    def choice(p, partition_count, each_bytes):
        amounts = DataSizes(each_bytes // partition_count, each_bytes, p * each_bytes, 1e-9)
        found = estimates(p, amounts, 20e-6, 1e-8)
        return min(found, key=found.get)

    assert choice(4, 100, 1600) == "allgather"
    assert choice(16, 1000, 1 << 24) == "regroup-allgather"
    assert choice(16, 1, 1 << 24) == "bidirectional-exchange"


def refused(comm):
    rows, table = rp.KeyValues([1], [1.0]), rp.Table({comm.rank: np.ones(2)})
    for call, error, message in (
        (lambda: comm.allreduce(rows, algorithm="ring"), rp.InputError, "expected one of allgather, regroup-allgather"),
        (lambda: comm.allreduce(table, algorithm="ring"), rp.InputError, "tables that differ between ranks"),
        (lambda: comm.allreduce(rows, order="given"), rp.InputError, "order='given': has no effect on KeyValues"),
        (
            lambda: comm.allreduce(rows, algorithm=ALGORITHMS[comm.rank % 2]),
            rp.CollectiveMismatch,
            "ranks 0, 2: .*'allgather'",
        ),
        (
            lambda: comm.allreduce(table, algorithm=ALGORITHMS[comm.rank % 2]),
            rp.CollectiveMismatch,
            "rank 1: .*'regroup",
        ),
        (lambda: comm.allgather(rows, algorithm=GATHERS[comm.rank % 2]), rp.CollectiveMismatch, "ring"),
    ):
        with pytest.raises(error, match=message):
            call()
    same = rp.Table({1: np.ones(3)})
    return comm.allreduce(same, algorithm="ring")[1].tolist()


def test_wrong_algorithms_are_refused_on_every_rank(world):
    assert world(3).run(refused) == [[3.0] * 3] * 3
