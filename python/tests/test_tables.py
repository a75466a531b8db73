"""Tables: partitions with equal ids are combined across ranks. The programs run on every rank and check there."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import ripieno as rp
from numpy.testing import assert_array_equal
from ripieno import keyed

WORLDS = [1, 2, 3]
COMBINES = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum, "xor": np.bitwise_xor}
DTYPES = ["float32", "float64", "int32", "int64", "uint64", "uint8"]


def partition(rank: int, number: int, dtype: str = "int64") -> np.ndarray:
    """Return small integers; the shape depends on the id only."""
    shape = [(4,), (2, 3), (0, 2), ()][number % 4]
    return np.random.default_rng([rank, number % 2**63]).integers(0, 4, shape).astype(dtype)


def ids_of(rank: int, p: int) -> list[int]:
    """Return overlapping ids that differ on every rank; the last of several ranks has none."""
    return [] if rank == p - 1 > 0 else [-3, 2**62, *range(rank, rank + 7)]


def united(p: int, combine, dtype: str) -> dict[int, np.ndarray]:
    result: dict[int, np.ndarray] = {}
    for rank in range(p):
        for number in ids_of(rank, p):
            given = partition(rank, number, dtype)
            result[number] = np.asarray(combine(result[number], given)) if number in result else given
    return result


def assert_tables_equal(table: rp.Table, expected: dict[int, np.ndarray]) -> None:
    assert list(table) == sorted(expected)
    for number, array in expected.items():
        assert_array_equal(table[number], array)
        assert (table[number].dtype, table[number].shape) == (array.dtype, array.shape)


def test_equal_ids_are_combined_and_ids_ascend():
    table = rp.Table({7: np.ones(2), -1: np.arange(3)})
    table.add(7, [1, 2] * np.ones(2))
    table.add(5, b"\x01\xff")
    table.add(np.int32(2), 1.5)

    assert list(table) == [-1, 2, 5, 7] and len(table) == 4 and 7 in table and 8 not in table
    assert table[7].tolist() == [2, 3] and table[5].tolist() == [1, 255] and table[2] == 1.5
    table[7] = np.zeros(1)
    del table[-1]
    assert {number: each.tolist() for number, each in table.items()} == {2: 1.5, 5: [1, 255], 7: [0]}


def test_partitions_may_have_any_byte_order():
    table = rp.Table({1: np.arange(3, dtype=">f8"), 2: np.arange(3, dtype=">i4")})
    table.add(1, np.ones(3))

    assert table[1].tolist() == [1, 2, 3] and table[1].dtype.isnative and table[2].tolist() == [0, 1, 2]


def test_adding_rows_copies_only_the_added_rows(monkeypatch):
    copied = []

    def spy(pieces, function=np.concatenate):
        copied.append(sum(piece.nbytes for piece in pieces))
        return function(pieces)

    rng = np.random.default_rng(3)
    pieces = [rng.integers(0, 9, (int(rng.integers(0, 800)), 4)) for _ in range(1000)]
    whole = np.vstack(pieces)
    rows, summed = rp.Table(combine="concat"), rp.Table(combine="sum")
    for piece in pieces:
        summed.add(1, rp.KeyValues(piece[:, 0], piece[:, 1:]))
    monkeypatch.setattr(np, "concatenate", spy)
    for piece in pieces:
        rows.add(1, piece)
    assert_array_equal(rows[1], whole)
    assert len(copied) > 1 and sum(copied) <= 3 * whole.nbytes

    expected = rp.KeyValues(whole[:, 0], whole[:, 1:]).combined()
    assert_array_equal(summed[1].keys, expected.keys)
    assert_array_equal(summed[1].values, expected.values)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rp.Table({1: np.ones(2)}).add(1, np.ones(3)), r"partition 1: shape \(3,\) .* and shape \(2,\)"),
        (lambda: rp.Table({1: np.ones(2)}).add(1, np.ones(2, int)), "partition 1: .*int64 and .*float64"),
        (lambda: rp.Table({1: np.ones(2)}).add(1, rp.KeyValues([1])), "partition 1: <KeyValues"),
        (lambda: rp.Table({1: rp.KeyValues([1])}).add(1, rp.KeyValues(["a"])), "partition 1: <KeyValues.*string"),
        (lambda: rp.Table({1: rp.KeyValues([1], [0.5])}, "or"), "partition 1: op='or' of dtype float64"),
        (lambda: rp.Table({1: np.ones((2, 2))}, "concat").add(1, np.ones((2, 3))), "partition 1"),
        (lambda: rp.Table({1: np.ones(())}, "concat").add(1, np.ones(())), "partition 1"),
        (lambda: rp.Table({1.5: np.ones(2)}), "partition 1.5: expected a whole number"),
        (lambda: rp.Table({2**63: np.ones(2)}), "partition 9223372036854775808: expected an id of 64 bits"),
        (lambda: rp.Table({1: np.ma.array([1, 2], mask=[0, 1])}), "partition 1: 1 of 2 are masked"),
        (lambda: rp.Table([(1, 2)]), "Table of a list: expected a dict"),
        (lambda: rp.Table({1: "a"}), "partition 1 of a str"),
        (lambda: rp.Table({1: np.array([object()])}), "partition 1: dtype object"),
        (lambda: rp.Table({1: np.ones(1)}, "or"), "partition 1: op='or' of dtype float64"),
        (lambda: rp.Table({}, "average"), "combine='average'"),
        (lambda: rp.Table({1: np.ones(2)}, lambda a, b: a[:1]).add(1, np.ones(2)), "<lambda>: returned shape"),
    ],
)
def test_mismatched_input_is_rejected(make, message):
    with pytest.raises(rp.InputError, match=message):
        make()


def test_a_pickle_is_one_line_per_dtype():
    table = rp.Table({number: partition(0, number, "float32") for number in range(100)} | {200: np.arange(3)}, "max")
    buffers: list[pickle.PickleBuffer] = []
    back = pickle.loads(pickle.dumps(table, protocol=5, buffer_callback=buffers.append), buffers=buffers)

    assert len(buffers) == 2
    assert_tables_equal(back, dict(table))
    assert back.combiner == table.combiner


def calls_equal_numpy(comm, combines, dtypes):
    p = comm.world_size
    for combine in combines:
        for dtype in dtypes:
            if combine == "xor" and dtype.startswith("float"):
                continue
            table = rp.Table({number: partition(comm.rank, number, dtype) for number in ids_of(comm.rank, p)}, combine)
            is_wider = combine in ("sum", "prod", "mul") and dtype[0] in "iu"
            everything = united(p, COMBINES[combine], f"{dtype.rstrip('0123456789')}64" if is_wider else dtype)
            before = {number: each.copy() for number, each in table.items()}

            assert_tables_equal(comm.allgather(table), everything)
            assert_tables_equal(comm.allreduce(table), everything)
            here = comm.regroup(table)
            assert_tables_equal(here, {n: each for n, each in everything.items() if n % p == comm.rank})
            assert_tables_equal(comm.regroup(table, partitioner=hash), dict(here))
            to_last, statistics = keyed.regroup(
                comm, table, partitioner=lambda ids: np.full(len(ids), comm.world_size - 1)
            )
            assert_tables_equal(to_last, everything if comm.rank == p - 1 else {})
            assert statistics["keys"] == len(to_last) and statistics["rows_in"] == len(table)
            assert_tables_equal(comm.regroup_async(table).wait(), dict(here))
            assert_tables_equal(table, before)


@pytest.mark.parametrize("p", WORLDS)
def test_calls_equal_numpy(world, p):
    world(p).run(calls_equal_numpy, list(COMBINES), DTYPES if p == 3 else ["float64", "int64"])


def functions_and_concat(comm):
    p = comm.world_size
    by_hypot = rp.Table({number: np.full(4, comm.rank + 1.0) for number in range(3)}, np.hypot)
    expected = np.sqrt(sum((rank + 1.0) ** 2 for rank in range(p)))
    for table in (comm.allreduce(by_hypot), comm.allgather(by_hypot)):
        np.testing.assert_allclose([table[number] for number in range(3)], np.full((3, 4), expected))

    rows = rp.Table({5: np.full((comm.rank, 2), comm.rank)}, combine="concat")
    expected = np.repeat(np.arange(p), np.arange(p))[:, None] * np.ones((1, 2), int)
    for table in (comm.allreduce(rows), comm.allgather(rows)):
        assert_array_equal(table[5], expected)
    assert [len(each) for each in comm.regroup(rows, combine="concat").values()] == [len(expected)] * (
        comm.rank == 5 % p
    )


@pytest.mark.parametrize("p", WORLDS)
def test_functions_combine_partitions_and_rows_concatenate(world, p):
    world(p).run(functions_and_concat)


def bytes_of(comm, call) -> int:
    before = comm.stats()["bytes_sent"]
    call()
    return comm.stats()["bytes_sent"] - before


def equal_tables_take_one_allreduce(comm):
    table = rp.Table({number: np.full(1000, comm.rank + number) for number in range(10)})
    one_line = np.concatenate(list(table.values()))
    comm.allreduce(one_line)
    marks = bytes_of(comm, lambda: comm.allgather(np.zeros(4, np.int64), counts=[4] * comm.world_size))
    expected = bytes_of(comm, lambda: comm.allreduce(one_line))
    results = []
    calls_before = comm.stats()["call_count"]
    assert bytes_of(comm, lambda: results.append(comm.allreduce(table))) == expected + marks
    assert comm.stats()["call_count"] - calls_before == 2
    assert_array_equal(np.concatenate(list(results[0].values())), comm.allreduce(one_line))

    whole = sum(each.nbytes for each in table.values())
    sent = bytes_of(comm, lambda: comm.regroup(table))
    leaving = sum(each.nbytes for number, each in table.items() if number % comm.world_size != comm.rank)
    assert leaving <= sent < leaving + 4096

    def broadcast():
        back = comm.broadcast(table if comm.rank == 1 else None, root=1)
        assert_tables_equal(back, {number: np.full(1000, 1 + number) for number in range(10)})

    sent = comm.allreduce(bytes_of(comm, broadcast))
    assert (comm.world_size - 1) * whole <= sent < (comm.world_size - 1) * (whole + 4096)


def test_bytes_match_the_arrays(world):
    world(3).run(equal_tables_take_one_allreduce)


def refused(comm):
    table = rp.Table({1: np.ones(2)})
    for call, message in (
        (lambda: comm.allreduce(table, "max"), "op='max': this table combines by sum"),
        (lambda: comm.allreduce(rp.Table({1: np.ones(2)}, "max"), "sum"), "op='sum': this table combines by max"),
        (lambda: comm.allreduce(table, out=np.ones(2)), "out=.*: has no effect on Table"),
        (lambda: comm.allreduce(table, order="given"), "order='given': has no effect on Table"),
        (lambda: comm.regroup(table, memory_limit=1), "memory_limit=1: has no effect on Table"),
        (lambda: comm.regroup(table, partitioner="balanced"), "partitioner='balanced' of a table"),
        (lambda: comm.regroup(table, partitioner="best"), "partitioner='best'"),
        (lambda: comm.regroup(table, partitioner=lambda ids: ids + 7), "returned rank 8 for key 1: expected 0 … 1"),
        (lambda: comm.regroup(table, partitioner=lambda ids: ids * 0.5), "returned .* dtype float64 for 1 keys"),
        (lambda: comm.regroup({1: np.ones(2)}), "regroup of a dict"),
    ):
        with pytest.raises(rp.InputError, match=message):
            call()
    return comm.allreduce(1)


def test_missing_columns_are_rejected_and_nothing_is_sent(world):
    assert world(2).run(refused) == [2, 2]


def mismatches(comm):
    messages = []
    for call in (
        lambda: comm.allreduce(rp.Table({1: np.ones(2)}, "sum" if comm.rank else "max")),
        lambda: comm.regroup(rp.Table({1: np.ones(2)}), partitioner=None if comm.rank else np.abs),
        lambda: comm.allgather(rp.Table({1: np.ones(2)}, "sum" if comm.rank else "min")),
    ):
        with pytest.raises(rp.CollectiveMismatch) as caught:
            call()
        messages.append(str(caught.value))
    return messages


def test_ranks_that_differ_are_reported_on_every_rank(world):
    first, *others = world(3).run(mismatches)

    assert others == [first, first]
    assert "rank 0: regroup of a table by absolute, combine=sum; ranks 1, 2: regroup of a table by hash" in first[1]
    assert "rank 0: allreduce of a table, combine=max; ranks 1, 2: allreduce of a table, combine=sum" in first[0]
    assert "rank 0: allgather of a table, combine=min; ranks 1, 2: allgather of a table, combine=sum" in first[2]
    assert all(each.endswith("expected the same on every rank") for each in first)


def other_calls(comm):
    (comm.allgather if comm.rank else comm.allreduce)(rp.Table({1: np.ones(2)}))


def test_ranks_that_make_other_calls_are_reported():
    with (
        rp.launch(workers=3) as job,
        pytest.raises(rp.CollectiveMismatch, match=r"rank 0 called .*allreduce of a table"),
    ):
        job.run(other_calls)
