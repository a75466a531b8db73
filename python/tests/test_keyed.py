"""Regroup equals a group-by of all ranks' rows. The programs run on every rank and check there."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import ripieno as rp
from numpy.testing import assert_array_equal
from operations import OPS
from ripieno import keyed
from varied import exhaustively

WORLDS = [1, 3, *exhaustively(2)]
DTYPES = ["float32", "float64", "int32", "int64", "uint64"]
WORDS = np.array(["", "é", "日本", "a" * 40, "fig", *(f"word {number}" for number in range(60))])


def rows_of(rank: int, p: int, kind: str, dtype: str = "int64", width: int | None = None) -> rp.KeyValues:
    """Return small integers, exact in every type and order; one key has half of the rows, rank 1 has none."""
    random = np.random.default_rng([rank, p, width or 0])
    count = 0 if rank == 1 else 400
    chosen = np.where(random.random(count) < 0.5, 3, random.integers(0, len(WORDS), count))
    keys = WORDS[chosen] if kind == "string" else chosen.astype("int64") * 10**15 - 7
    return rp.KeyValues(keys, random.integers(1, 3, count if width is None else (count, width)).astype(dtype))


def grouped(p: int, *args) -> dict:
    """Return all ranks' rows by key, in the order of the ranks."""
    groups: dict = {}
    for rank in range(p):
        rows = rows_of(rank, p, *args)
        for key, row in zip(listed(rows.keys), rows.values, strict=True):
            groups.setdefault(key, []).append(row)
    return {key: np.array(rows) for key, rows in groups.items()}


def listed(keys) -> list:
    return keys.tolist() if isinstance(keys, np.ndarray) else keys.to_pylist()


def assert_rows_equal(rows: rp.KeyValues, expected: dict, like: rp.KeyValues) -> None:
    assert sorted(listed(rows.keys)) == sorted(expected)
    assert rows.schema == like.schema
    assert_array_equal(rows.values, np.array([expected[key] for key in listed(rows.keys)]).reshape(rows.values.shape))


def widened(dtype: str, op: str) -> str:
    """Return the result type."""
    if op not in ("sum", "prod") or dtype[0] not in "iu":
        return dtype
    return "uint64" if dtype[0] == "u" else "int64"


def all_of(comm, rows: rp.KeyValues) -> rp.KeyValues:
    """Return the results of all ranks, which have disjoint keys."""
    together = comm.allgather(rows)
    assert len(set(listed(together.keys))) == len(together)
    return together


def operations_equal_numpy(comm, kind, dtypes, widths):
    p = comm.world_size
    for dtype in dtypes:
        for width in widths:
            mine = rows_of(comm.rank, p, kind, dtype, width)
            like = rows_of(0, p, kind, dtype, width)
            groups = grouped(p, kind, dtype, width)
            for op, ufunc in OPS.items():
                if op == "prod" and dtype.startswith("float"):
                    continue  # products of many twos overflow; see `products`
                if op in ("and", "or", "xor") and dtype.startswith("float"):
                    with pytest.raises(rp.InputError, match=op):
                        comm.regroup(mine, combine=op)
                    continue
                wide = widened(dtype, op)
                expected = {key: ufunc.reduce(rows.astype(wide), axis=0, dtype=wide) for key, rows in groups.items()}
                result = rp.KeyValues(like.key_column, like.values.astype(wide))
                assert_rows_equal(all_of(comm, comm.regroup(mine, combine=op)), expected, result)
            if width is None:
                assert_frames_equal(comm, mine, p, kind, dtype)


def assert_frames_equal(comm, mine, p, kind, dtype):
    """Check that maxima by key equal pandas'."""
    frame = pd.concat([rows_of(rank, p, kind, dtype).to_arrow().to_pandas() for rank in range(p)])
    expected = frame.groupby("key")["value"].max()
    actual = comm.allreduce(mine, "max").to_arrow().to_pandas().set_index("key")["value"]
    pd.testing.assert_series_equal(actual.sort_index(), expected.sort_index())


@pytest.mark.parametrize("p", WORLDS)
@pytest.mark.parametrize("kind", ["int64", "string"])
def test_operations_equal_numpy_and_pandas(world, p, kind):
    world(p).run(operations_equal_numpy, kind, DTYPES if p == 3 else ["float64", "int32"], [None, 1, 3])


def products(comm):
    mine = rp.KeyValues(np.arange(6) % 3, np.array([2, 3, 1, 1, 2, 5.0]))
    for combine in ("prod", "mul", np.multiply):
        got = comm.allreduce(mine, combine).sorted()
        assert got.values.tolist() == [2.0**comm.world_size, 6.0**comm.world_size, 5.0**comm.world_size]


def groups_hold_all_rows(comm, kind):
    p = comm.world_size
    for width in (None, 3):
        mine = rows_of(comm.rank, p, kind, "float32", width)
        expected = grouped(p, kind, "float32", width)
        for partitioner in (None, "hash", hash, "balanced"):
            groups = comm.regroup(mine, combine="concat", partitioner=partitioner)
            keys = listed(groups.keys)
            for key, begin, end in zip(keys, groups.offsets, groups.offsets[1:], strict=False):
                assert_array_equal(groups.values[begin:end], expected[key])
            assert groups.offsets[0] == 0 and groups.offsets[-1] == len(groups.values) == groups.counts.sum()
            assert sorted(key for each in comm.allgather(keys) for key in each) == sorted(expected)
            arrow = groups.to_arrow().to_pydict()
            assert arrow["key"] == keys and arrow["values"] == [expected[key].tolist() for key in keys]
    only_keys = comm.regroup(rp.KeyValues(mine.keys), combine="concat")
    counts = {key: len(rows) for key, rows in expected.items()}
    assert only_keys.values is None
    assert only_keys.to_arrow().to_pydict()["count"] == [counts[key] for key in listed(only_keys.keys)]
    distinct = comm.allgather(comm.regroup(rp.KeyValues(mine.keys)))
    assert distinct.values is None and sorted(listed(distinct.keys)) == sorted(expected)


@pytest.mark.parametrize("p", WORLDS)
@pytest.mark.parametrize("kind", ["int64", "string"])
def test_groups_hold_all_rows_in_order(world, p, kind):
    world(p).run(products)
    world(p).run(groups_hold_all_rows, kind)


def functions_fold(comm, kind):
    p = comm.world_size
    for function, dtype, width, reduce, tolerance in (
        (np.logaddexp, "float64", None, np.logaddexp.reduce, 1e-12),
        (np.gcd, "int64", 3, np.gcd.reduce, 0),
        (lambda left, right: np.hypot(left, right), "float64", 1, np.hypot.reduce, 1e-12),
        (lambda left, right: right, "int32", None, lambda rows: rows[-1], 0),
        (np.add, "float32", None, np.add.reduce, 0),
    ):
        mine, like = rows_of(comm.rank, p, kind, dtype, width), rows_of(0, p, kind, dtype, width)
        expected = {key: reduce(rows) for key, rows in grouped(p, kind, dtype, width).items()}
        for options in ({}, {"local_reduction": False}, {"memory_limit": 1000}):
            got = all_of(comm, comm.regroup(mine, combine=function, **options))
            assert got.schema == like.schema and sorted(listed(got.keys)) == sorted(expected)
            wanted = np.array([expected[key] for key in listed(got.keys)]).reshape(got.values.shape)
            np.testing.assert_allclose(got.values, wanted, rtol=tolerance)


@pytest.mark.parametrize("p", WORLDS)
@pytest.mark.parametrize("kind", ["int64", "string"])
def test_functions_fold_the_rows_of_a_key_in_order(world, p, kind):
    world(p).run(functions_fold, kind)


def partitioned(comm):
    p = comm.world_size
    mine = rows_of(comm.rank, p, "int64")
    expected = {key: rows.sum() for key, rows in grouped(p, "int64").items()}
    for combine in ("sum", lambda left, right: left + right):
        got = comm.regroup(mine, combine=combine, partitioner=lambda keys: keys % p)
        assert set(got.keys % p) <= {comm.rank}
        assert_rows_equal(all_of(comm, got), expected, mine)
        blocks: list = []
        assert comm.regroup(mine, combine=combine, on_block=blocks.append) is None
        joined = rp.KeyValues.joined([rp.KeyValues(mine.keys[:0], mine.values[:0]), *blocks])
        assert_rows_equal(all_of(comm, joined), expected, mine)
        assert_rows_equal(all_of(comm, comm.regroup_async(mine, combine=combine).wait()), expected, mine)

    words = rows_of(comm.rank, p, "string")
    last = comm.regroup(words, partitioner=lambda keys: np.full(len(keys), p - 1))
    assert len(last) == (len(grouped(p, "string")) if comm.rank == p - 1 else 0)
    assert all_of(comm, last).keys.equals(all_of(comm, last).keys)


@pytest.mark.parametrize("p", WORLDS)
def test_partitioners_return_the_owners_of_keys(world, p):
    world(p).run(partitioned)


def options_keep_the_result(comm):
    p = comm.world_size
    random = np.random.default_rng(comm.rank)
    for keys in (random.integers(0, 5000, 20000), WORDS[random.integers(0, len(WORDS), 20000)]):
        mine = rp.KeyValues(keys, random.random(20000))
        expected, statistics = keyed.regroup(comm, mine)
        repeated, _ = keyed.regroup(comm, mine)
        small_waves, small_statistics = keyed.regroup(
            comm, mine, exchange={"wave_bytes": 4096, "eager_bytes": 64, "pulls": 1}
        )
        emitter = keyed.Emitter(p, threads=2)
        other = keyed.Emitter(p)
        for begin in range(0, 20000, 4000):
            (emitter if begin < 8000 else other).add(mine.take(np.arange(begin, begin + 4000)))
        emitter.absorb(other)
        emitted, emitted_statistics = keyed.regroup(comm, emitter)
        assert emitter.row_count == other.row_count == 0
        for rows in (repeated, small_waves, emitted):
            assert listed(rows.keys) == listed(expected.keys)
        for rows in (repeated, small_waves):
            assert rows.values.tobytes() == expected.values.tobytes()
        np.testing.assert_allclose(emitted.values, expected.values, rtol=1e-12)
        assert statistics["rows_added"] == emitted_statistics["rows_added"] == 20000
        assert statistics["waves"] <= small_statistics["waves"]
        raw, raw_statistics = keyed.regroup(comm, mine, local_reduction=False)
        assert sorted(listed(raw.keys)) == sorted(listed(expected.keys))
        np.testing.assert_allclose(raw.sorted().values, expected.sorted().values, rtol=1e-12)
        assert statistics["rows_in"] < raw_statistics["rows_in"] == 20000
        if p > 1:
            assert statistics["bytes_sent"] < raw_statistics["bytes_sent"]


@pytest.mark.parametrize("p", [1, 3])
def test_options_do_not_change_the_result(world, p):
    world(p).run(options_keep_the_result)


def empty_ranks(comm):
    p = comm.world_size
    mine = rp.KeyValues(["a", "b"], np.ones((2, 2), "f4")) if comm.rank == p - 1 else rp.KeyValues([])
    for got in (comm.allgather(mine), comm.allreduce(mine), comm.allgather(comm.regroup(mine))):
        assert str(got.schema) == "string keys, float32 values of width 2"
        assert got.sorted().to_arrow().to_pydict() == {"key": ["a", "b"], "value": [[1, 1], [1, 1]]}
    empty = rp.KeyValues([]) if comm.rank else rp.KeyValues([b""][:0], np.empty(0, "f4"))
    assert str(comm.regroup(empty).schema) == str(comm.allgather(empty).schema)
    assert len(comm.regroup(empty, combine="concat")) == 0
    received = comm.broadcast(mine if comm.rank == p - 1 else None, root=p - 1)
    assert received.keys.to_pylist() == ["a", "b"] and received.values.shape == (2, 2)


@pytest.mark.parametrize("p", WORLDS)
def test_ranks_without_rows_take_the_types_of_the_others(world, p):
    world(p).run(empty_ranks)


def wrong_arguments(comm):
    rows = rp.KeyValues([1, 2, 2], [1.0, 2.0, 3.0])
    for options, message in (
        ({"combine": "average"}, "combine='average': expected one of sum, .*, concat, or a function"),
        ({"combine": 3}, "combine=3"),
        ({"combine": "or"}, "op='or' of dtype float64"),
        (
            {"combine": lambda left, right: left[:0]},
            r"<lambda>: returned shape \(0,\) and dtype float64 for two blocks of sh",
        ),
        ({"combine": np.fmod.outer}, "outer: returned shape"),
        ({"combine": lambda left, right: left.astype("f4")}, "<lambda>: returned .* dtype float32 .* dtype float64"),
        ({"partitioner": "range"}, "partitioner='range'"),
        ({"partitioner": lambda keys: keys + 1}, "<lambda>: returned rank 2 for key 1: expected 0 … 1 in a world of 2"),
        ({"partitioner": lambda keys: -keys}, "returned rank -1 for key 1"),
        ({"partitioner": lambda keys: keys[:1]}, r"returned shape \(1,\) and dtype int64 for 3 keys"),
        ({"partitioner": lambda keys: keys * 0.5}, "returned .* dtype float64 for 3 keys"),
        ({"memory_limit": 0}, "memory_limit=0"),
        ({"memory_limit": "1GB"}, "memory_limit='1GB'"),
        ({"spill_directory": "/tmp"}, "spill_directory='/tmp': expected memory_limit"),
        ({"memory_limit": 1, "spill_directory": "/no/such"}, "spill_directory='/no/such': expected a directory"),
    ):
        with pytest.raises(rp.InputError, match=message):
            comm.regroup(rows, **options)
    for call, message in (
        (lambda: comm.regroup([1, 2]), "regroup of a list"),
        (lambda: comm.allreduce(rows, "concat"), "op='concat'"),
        (lambda: comm.allreduce(rows, out=np.ones(3)), "out=.*: has no effect on KeyValues"),
        (lambda: comm.allgather(rows, counts=[3, 3]), "counts=.*: has no effect on KeyValues"),
        (lambda: keyed.regroup(comm, keyed.Emitter(2), combine="min"), "combine: an emitter has its own"),
        (lambda: keyed.Emitter(1).combined(), "nothing was added"),
    ):
        with pytest.raises(rp.InputError, match=message):
            call()
    return comm.allreduce(1)


def test_wrong_arguments_are_refused_and_nothing_is_sent(world):
    assert world(2).run(wrong_arguments) == [2, 2]


def mismatches(comm):
    first, floats = comm.rank == 0, np.ones(2)
    messages = []
    for call in (
        lambda: comm.regroup(rp.KeyValues([1, 2] if first else ["a", "b"], floats)),
        lambda: comm.regroup(rp.KeyValues([b"a"] if first else ["a"])),
        lambda: comm.regroup(rp.KeyValues([1, 2], floats.astype("f4" if first else "f8"))),
        lambda: comm.regroup(rp.KeyValues([1, 2], floats if first else floats.reshape(2, 1))),
        lambda: comm.regroup(rp.KeyValues([1, 2], None if first else floats)),
        lambda: comm.regroup(rp.KeyValues([1, 2], floats), combine="min" if first else "max"),
        lambda: comm.regroup(rp.KeyValues([1, 2], floats), combine="concat" if first else np.hypot),
        lambda: comm.regroup(rp.KeyValues([1, 2], floats), partitioner="balanced" if first else None),
        lambda: comm.regroup(rp.KeyValues([1, 2], floats), local_reduction=first),
        lambda: comm.allgather(rp.KeyValues([1] if first else [b"1"])),
        lambda: comm.regroup(rp.KeyValues([1]) if first else rp.Table({1: floats})),
    ):
        with pytest.raises(rp.CollectiveMismatch) as caught:
            call()
        messages.append(str(caught.value).splitlines()[0])
    return messages


def test_ranks_that_differ_are_reported_on_every_rank():
    with rp.launch(workers=3) as job:
        first, *others = job.run(mismatches)

    assert [each[:-1] for each in others] == [first[:-1]] * 2
    assert "rank 0: regroup of key-values by hash, combine=sum of int64 keys, float64 values; ranks 1, 2: " in first[0]
    assert "string keys" in first[0] and "float32" in first[2] and "width 1" in first[3] and "combine=max" in first[5]


def collectives(comm, kind):
    """Return the collectives of one call in which rank 1, if it exists, has no rows."""
    ids = [] if comm.rank == 1 else range(10)
    rows = rp.KeyValues(list(ids), np.ones(len(ids)))
    table = rp.Table({number + comm.rank: np.ones(3) for number in ids})
    calls = {
        "regroup": lambda: comm.regroup(rows),
        "regroup of words": lambda: comm.regroup(rp.KeyValues([str(number) for number in ids]), combine="concat"),
        "regroup by a function": lambda: comm.regroup(rows, combine=np.hypot, partitioner=lambda keys: keys * 0),
        "on_block": lambda: comm.regroup(rows, on_block=len),
        "allreduce": lambda: comm.allreduce(rows, "sum"),
        "allgather": lambda: comm.allgather(rows),
        "regroup of a table": lambda: comm.regroup(table),
        "allreduce of a table": lambda: comm.allreduce(table),
        "allgather of a table": lambda: comm.allgather(table),
    }
    comm.barrier()
    calls[kind]()
    names = [record["collective"] for record in comm.flight(32)]
    return names[len(names) - names[::-1].index("barrier") :]


@pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("regroup", ["regroup"] * 2),
        ("regroup of words", ["regroup", "allgather", "regroup", "regroup"]),
        ("regroup by a function", ["regroup"] * 2),
        ("on_block", ["regroup"] * 2),
        ("allreduce", ["allgather"] * 4),
        ("allgather", ["allgather"] * 3),
        ("regroup of a table", ["alltoall"] * 2),
        ("allreduce of a table", ["allgather"] * 3),
        ("allgather of a table", ["allgather"] * 2),
    ],
)
def test_each_call_runs_exactly_the_expected_collectives(world, workers, kind, expected):
    if workers == 1 and kind == "allreduce of a table":
        expected = ["allgather", "allreduce"]  # of values that are equal on all ranks
    assert world(workers).run(collectives, kind) == [expected] * workers


def fails_on_rank(comm, how):
    rows = rp.KeyValues(np.arange(100) // 2, np.ones(100))

    def bad(*_):
        if comm.rank == 1:
            raise KeyError("mine")
        return _[0] if how != "partitioner" else np.zeros(len(_[0]), int)

    comm.regroup(rows, **({"combine": bad} if how == "combine" else {how: bad}))
    comm.barrier()


@pytest.mark.parametrize("how", ["combine", *exhaustively("partitioner", "on_block")])
def test_an_exception_of_a_function_reaches_the_caller(how):
    with rp.launch(workers=2) as job, pytest.raises(KeyError, match="mine") as caught:
        job.run(fails_on_rank, how)

    assert isinstance(caught.value.__cause__, rp.RankFailed) and caught.value.__cause__.rank == 1


def test_a_function_combines_pairs_in_a_logarithmic_number_of_calls():
    calls: list[int] = []

    def append_digits(left, right):
        calls.append(len(left))
        return left * 10 + right

    got = rp.KeyValues([7] * 5 + [8] + [9] * 2, [1, 2, 3, 4, 5, 6, 7, 8]).combined(append_digits).sorted()

    assert got.keys.tolist() == [7, 8, 9]
    assert got.values.tolist() == [((1 * 10 + 2) * 10 + (3 * 10 + 4)) * 10 + 5, 6, 78]
    assert calls == [3, 1, 1]


def test_one_process_combines_without_a_communicator():
    rows = rows_of(0, 1, "string", "float64", 3)
    expected = {key: each.sum(axis=0) for key, each in grouped(1, "string", "float64", 3).items()}

    assert_rows_equal(rows.combined(), expected, rows)
    for threads in (1, 2, 4):
        assert rows.combined(threads=threads).values.tobytes() == rows.combined().values.tobytes()
    assert len(rows.combined("concat")) == len(expected)
    assert len(rp.KeyValues([]).combined()) == 0 and len(rp.KeyValues([]).combined("concat")) == 0
    table = rp.Table({1: rows})
    table.add(1, rows)
    assert_rows_equal(table[1], {key: 2 * row for key, row in expected.items()}, rows)
