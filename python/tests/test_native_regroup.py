"""The native regroup, which `comm.regroup` calls: arrays, waves and exceptions. Every rank checks its results."""

from __future__ import annotations

import numpy as np
import pytest
import ripieno as rp
from ripieno import _native


def aggregation(comm, keys, values, combine="sum", **options) -> _native.Aggregation:
    kind = "int64" if isinstance(keys, np.ndarray) else "string"
    width = 1 if values.ndim == 1 else values.shape[1]
    rows = _native.Aggregation(kind, values.dtype.name, width, 0, combine, comm.world_size)
    rows.add(keys, values, **options)
    return rows


def regrouped_keys(comm) -> list[int]:
    """Regroup rows of a thousand keys in several ways. Return the keys that this rank has received."""
    random = np.random.default_rng(comm.rank)
    keys, values = random.integers(-500, 500, 20_000), np.ones(20_000)
    seen: list[_native.KeyedArrays] = []
    for options in [
        {},
        {"balanced": True},
        {"wave_bytes": 5000, "eager_bytes": 100, "pulls": 1, "threads": 3},
        {"memory_limit_bytes": 20_000, "on_block": seen.append},
    ]:
        block, described = comm._native.regroup(aggregation(comm, keys, values), **options)
        blocks = seen if block is None else [block]
        total = comm.allreduce(np.concatenate([[0.0], *(block.values for block in blocks)]).sum())
        assert total == 20_000 * comm.world_size
        assert described["keys"] == described["rows"] == sum(len(block.keys) for block in blocks)
        assert described["waves"] > 1 or not ("wave_bytes" in options or "memory_limit_bytes" in options)
        assert {"sizes_s", "exchange_s", "merge_s", "callback_s", "bytes_sent", "spilled_bytes"} < described.keys()
    return sorted(key for block in seen for key in block.keys.tolist())


def test_every_key_reaches_one_rank_for_any_waves(world):
    for p in (1, 2, 3):
        shares = world(p).run(regrouped_keys)
        assert sorted(key for share in shares for key in share) == list(range(-500, 500))


def rows_of_a_key(comm) -> list[tuple]:
    keys = [b"", "größe".encode(), b"a\0b", b""]
    offsets, data = np.cumsum([0, *map(len, keys)]), np.frombuffer(b"".join(keys), np.uint8)
    values = np.arange(8, dtype=np.int16).reshape(4, 2) + 10 * comm.rank
    destinations = np.full(4, comm.world_size - 1, np.uint32)
    rows = aggregation(comm, (offsets, data), values, "concat", ranks=destinations)
    assert rows.row_count == 4
    block, _ = comm._native.regroup(rows)
    offsets, data = block.keys
    assert all(array.base is not None or array.flags.owndata for array in (offsets, data, block.counts))
    ends = np.cumsum(block.counts).tolist()
    return [
        (bytes(data[offsets[at] : offsets[at + 1]]), block.values[begin:end].tolist())
        for at, (begin, end) in enumerate(zip([0, *ends], ends, strict=False))
    ]


def test_kept_rows_are_ordered_by_rank_at_their_destination(world):
    first, second = world(2).run(rows_of_a_key)

    assert first == []
    assert dict(second) == {
        b"": [[0, 1], [6, 7], [10, 11], [16, 17]],
        "größe".encode(): [[2, 3], [12, 13]],
        b"a\0b": [[4, 5], [14, 15]],
    }


def call_with_invalid_arguments(comm) -> None:
    rows = aggregation(comm, np.arange(5), np.ones(5))
    with pytest.raises(rp.InputError, match="float32: expected float64"):
        rows.add(np.arange(5), np.ones(5, np.float32))
    with pytest.raises(rp.InputError, match="median"):
        comm._native.regroup(rows, merge="median")
    comm._native.regroup(rows)
    with pytest.raises(rp.InputError, match="not regrouped"):
        comm._native.regroup(rows)
    with pytest.raises(rp.InputError, match='key_kind="float"'):
        _native.Aggregation("float", "float64", 1, 0, "sum", 1)
    with pytest.raises(rp.InputError, match="or neither"):
        _native.Aggregation("int64", "float64", 1, 0, "sum", 1, 100)
    with pytest.raises(rp.InputError, match="3"):
        comm._native.regroup(_native.Aggregation("int64", "float64", 1, 0, "sum", 3))


def test_invalid_arguments_are_rejected_and_the_world_continues(world):
    world(2).run(call_with_invalid_arguments)


def raise_in_on_block(comm) -> None:
    def raise_on_one(block: _native.KeyedArrays) -> None:
        if comm.rank == 1:
            raise KeyError("no such vertex")

    rows = aggregation(comm, np.arange(5000), np.ones(5000))
    try:
        comm._native.regroup(rows, wave_bytes=1000, on_block=raise_on_one)
        comm.barrier()
    except rp.RankFailed as failed:
        assert failed.rank == 1 and "no such vertex" in failed.cause and "raise_on_one" in failed.traceback
        raise


def test_an_exception_of_on_block_is_raised_as_it_is_and_named_on_the_other_ranks(world):
    with pytest.raises(KeyError, match="no such vertex") as raised:
        world(3).run(raise_in_on_block)

    assert raised.value.__cause__.rank == 1


def regroup_different_types(comm) -> str:
    values = np.ones(5, np.float64 if comm.rank else np.float32)
    with pytest.raises(rp.CollectiveMismatch, match="regroup") as raised:
        comm._native.regroup(aggregation(comm, np.arange(5), values))
    assert comm.allreduce(1) == comm.world_size
    return str(raised.value)


def test_rows_of_different_types_are_a_mismatch_and_the_world_continues(world):
    first, *others = world(3).run(regroup_different_types)

    assert others == [first] * 2
    assert "rank 0: int64 keys, rows of float32 × 1" in first and "ranks 1-2: int64 keys, rows of float64 × 1" in first


def regroup_with_label(comm) -> tuple:
    key_kind, dtype, width, label = ("string", "int16", 2, 77) if comm.rank == 1 else ("int64", "float64", 0, 5)
    rows = _native.Aggregation(key_kind, dtype, width, label, "sum", comm.world_size)
    if comm.rank == 1:
        rows.add((np.array([0, 1, 3]), np.frombuffer(b"abc", np.uint8)), np.ones((2, 2), np.int16))
    block, _ = comm._native.regroup(rows)
    return block.label, block.values.dtype.name, block.values.shape[1:], len(block.keys[0]) - 1


def test_a_rank_without_rows_takes_schema_and_label_of_the_others(world):
    found = world(3).run(regroup_with_label)

    assert {each[:3] for each in found} == {(77, "int16", (2,))}
    assert sum(each[3] for each in found) == 2
