"""The fast path for calls on plain arrays in place: results, waits, and calls that do not use it."""

from __future__ import annotations

import math
import threading
import time
from typing import NamedTuple

import numpy as np
import pytest
import ripieno as rp

DTYPES = ("i1", "i2", "i4", "i8", "q", "u1", "u2", "u4", "u8", "Q", "f2", "f4", "f8")
#: More calls than a thread makes before the core's ownership is biased to its rank.
CALL_COUNT = 50


class MarkedValue(np.ndarray):
    """A subclass of arrays."""


def arrays(rank):
    """Yield plain and other arrays with small values."""
    whole = np.arange(6).reshape(2, 3) + rank
    yield from (whole.astype(dtype) for dtype in DTYPES)
    yield np.zeros((0, 3))
    yield np.full((), rank + 1.0)
    yield whole.astype(">f4")
    yield whole.astype("f8").view(MarkedValue)
    yield np.arange(6, dtype=np.uint8).repeat(2)[1:9].view("f4") * 0 + rank  # misaligned


def reduced(comm):
    for value in filter(lambda value: value.dtype.isnative, arrays(comm.rank)):
        for op, combine in (("sum", np.add), ("max", np.maximum), (None, np.add)):
            parts = [value_of_rank(value, comm.rank, rank) for rank in range(comm.world_size)]
            expected = combine.reduce(np.stack([np.asarray(part) for part in parts]))
            mine, out = value.copy(), np.empty_like(value)
            assert comm.allreduce(mine, op, out=out) is out
            np.testing.assert_array_equal(np.asarray(out), expected, err_msg=f"{value.dtype} {op}")
            np.testing.assert_array_equal(mine, value)
            for _ in range(3):
                mine = value.copy()
                assert comm.allreduce(mine, op, out=mine) is mine
                np.testing.assert_array_equal(np.asarray(mine), expected, err_msg=f"{value.dtype} {op}")
            copy = comm.allreduce(mine := value.copy(), op)
            assert type(copy) is np.ndarray or type(copy) is MarkedValue
            np.testing.assert_array_equal(np.asarray(copy), expected)
            np.testing.assert_array_equal(mine, value)
    overlapping = np.arange(5.0)
    comm.allreduce(overlapping[:4], out=overlapping[1:])
    np.testing.assert_array_equal(overlapping, np.r_[0, np.arange(4.0) * comm.world_size])


def value_of_rank(value, rank, other):
    """Return the value of rank `other` that corresponds to this rank's `value`."""
    return (value.astype("f8") + (other - rank)).astype(value.dtype)


def numbers(comm):
    ranks = range(comm.world_size)
    for _ in range(3):
        for number in (
            0.1,
            np.float64(0.1),
            np.float32(0.5),
            3,
            True,
            np.int16(3),
            -(2**40),
            2**63 - 1,
            2**70,
            -(2**71),
        ):
            total = comm.allreduce(number)
            kind = int if isinstance(number, bool | int) else type(number)
            assert type(total) is kind
            assert total == sum([number] * comm.world_size)
            assert comm.allreduce_async(number).wait() == total
        for op, combine in (("max", max), ("min", min), ("prod", math.prod)):
            for number in (comm.rank - 0.5, np.float64(comm.rank - 0.5), comm.rank - 1):
                combined = comm.allreduce(number, op)
                assert type(combined) is type(number)
                assert combined == combine([number + rank - comm.rank for rank in ranks])
        assert math.isnan(comm.allreduce(math.nan if comm.rank == 0 else 1.0, "max"))
        # A blocking call on one rank matches an asynchronous call on another.
        for number in (3, 0.5):
            total = comm.allreduce(number) if comm.rank else comm.allreduce_async(number).wait()
            assert total == number * comm.world_size


class PlainPair(NamedTuple):
    first: float
    second: float


def lists_and_tuples(comm):
    ranks = range(comm.world_size)
    line, table, whole = np.arange(3.0), np.ones((2, 2), "f4"), np.arange(2)
    for value in (
        (line, 3),
        [0.5, np.float64(2), line, table],
        (table,),
        (whole, 7, np.float32(1), -(2**62)),
        (np.zeros((0, 3)), np.array(2.0)),
        # These values do not use the fast path.
        (),
        (line, (1, 2)),
        {"a": 1, "b": line},
        (True, 3),
        PlainPair(1.0, 2.0),
        (line, 2**70),
    ):
        for _ in range(2):
            total = comm.allreduce(value)
            assert_equal(total, scaled(value, comm.world_size))
            assert_equal(comm.allreduce_async(value).wait(), total)
            for root in ranks:
                at_root = comm.reduce(value, root=root)
                if comm.rank == root:
                    assert_equal(at_root, total)
                else:
                    assert at_root is None
    assert_equal(comm.allreduce((line, 2.5), "max"), (line, 2.5))
    assert_equal(comm.allreduce((line, 2), "max"), (line, 2))
    either = comm.allreduce if comm.rank else lambda value: comm.allreduce_async(value).wait()
    assert_equal(either((line, 3, 0.5)), scaled((line, 3, 0.5), comm.world_size))
    assert comm.allreduce(line) is not line
    assert line.tolist() == [0, 1, 2]


def scaled(value, factor):
    if isinstance(value, dict):
        return {key: scaled(each, factor) for key, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(scaled(each, factor) for each in value))
    if isinstance(value, tuple | list):
        return type(value)(scaled(each, factor) for each in value)
    return np.array(value * factor) if isinstance(value, np.ndarray) else value * factor


def assert_equal(found, expected):
    assert type(found) is type(expected)
    if isinstance(found, dict):
        assert list(found) == list(expected)
        found, expected = list(found.values()), list(expected.values())
    if isinstance(found, tuple | list):
        assert len(found) == len(expected)
        for pair in zip(found, expected, strict=True):
            assert_equal(*pair)
    else:
        np.testing.assert_array_equal(found, expected)
        assert getattr(found, "dtype", None) == getattr(expected, "dtype", None)


def sent(comm):
    for value in arrays(comm.rank):
        for root in range(comm.world_size):
            for _ in range(3):
                mine = value.copy()
                assert comm.broadcast(out=mine, root=root) is mine
                np.testing.assert_array_equal(mine, value_of_rank(value, comm.rank, root))
    for length in range(8):
        every = np.full(length, comm.rank)
        for _ in range(3):
            assert comm.allgather(out=every) is every
        shares = np.array_split(every, comm.world_size)
        np.testing.assert_array_equal(every, np.concatenate([np.full(len(s), r) for r, s in enumerate(shares)]))


def divided(comm):
    """Check calls whose rows are divided by counts. Tuples of counts and other dtypes do not use the fast path."""
    world, rank = comm.world_size, comm.rank
    for dtype in DTYPES:
        for counts in ([1] * world, list(range(world)), [3] + [0] * (world - 1)):
            every = [np.arange(sum(counts)).astype(dtype) + np.array(each, dtype) for each in range(world)]
            ends = np.cumsum(counts)[:-1]
            parts = [np.split(rows, ends) for rows in every]
            own = [each[rank] for each in parts]
            root = sum(counts) % world
            gathered = np.concatenate([parts[each][each] for each in range(world)])
            mine = parts[rank][rank].copy()
            mine.flags.writeable = False
            for kind in (list, tuple, list if rank % 2 else tuple):
                given = kind(counts)
                out = np.empty_like(every[0])
                assert comm.allgather(parts[rank][rank].copy(), out=out, counts=given) is out
                np.testing.assert_array_equal(out, gathered)
                out[:] = 0
                found = comm.gather(mine, root, out=out if rank == root else None, counts=given)
                assert (found is out) == (rank == root) and (found is None) == (rank != root)
                np.testing.assert_array_equal(out, gathered if rank == root else 0 * out)
                part = np.empty_like(own[rank])
                assert comm.scatter(every[root] if rank == root else None, root, out=part, counts=given) is part
                np.testing.assert_array_equal(part, parts[root][rank])
                before = every[rank].copy()
                assert comm.reduce_scatter(before, "max", out=part, counts=given) is part
                np.testing.assert_array_equal(part, parts[-1][rank])
                np.testing.assert_array_equal(before, every[rank])
                received, expected = np.empty(counts[rank] * world, dtype), np.concatenate(own)
                out_counts = kind([counts[rank]] * world)
                assert comm.alltoall(before, out=received, counts=given, out_counts=out_counts) is received
                np.testing.assert_array_equal(received, expected)
                total, sums = np.empty_like(before), sum(row.astype("f8") for row in every).astype(dtype)
                found = comm.reduce(before, "sum", root, out=total if rank == root else None)
                assert (found is total) == (rank == root)
                if rank == root:
                    np.testing.assert_array_equal(total, sums)
    shared = np.arange(2.0 * world) + rank
    expected = np.concatenate([np.arange(2.0 * rank, 2.0 * rank + 2) + each for each in range(world)])
    assert comm.alltoall(shared, out=shared) is shared, "rows that are received do not overwrite rows to send"
    np.testing.assert_array_equal(shared, expected)


def test_arrays_of_all_kinds_are_reduced_and_sent_in_place(everywhere):
    everywhere(lambda comm: [comm.barrier() for _ in range(CALL_COUNT)])
    everywhere(reduced)
    everywhere(numbers)
    everywhere(lists_and_tuples)
    everywhere(sent)
    everywhere(divided)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda comm, out: comm.allreduce(out, out=out), "out: expected a C-contiguous, writable array"),
        (lambda comm, out: comm.broadcast(out=out), "out: expected a C-contiguous, writable array"),
        (lambda comm, out: comm.allgather(out=out), "out: expected a C-contiguous, writable array"),
        (lambda comm, out: comm.allreduce(out.copy(), "mean", out=out.copy()), "op='mean'"),
        (lambda comm, out: comm.broadcast(out=out.copy(), root=9), "root=9: expected a rank"),
        (lambda comm, out: comm.broadcast(out=out.copy(), root=-1), "root=-1: expected a rank"),
        (lambda comm, out: comm.broadcast(out=[1.0]), "out: expected a NumPy array, got list"),
    ],
)
def test_errors_are_reported_before_anything_is_sent(everywhere, call, message):
    def wrong_call(comm):
        out = np.ones(6 * comm.world_size)
        out.flags.writeable = False
        with pytest.raises(rp.InputError, match=message):
            call(comm, out)
        return comm.allreduce(1)

    assert len(set(everywhere(wrong_call))) == 1


def wait_for_the_other_thread(comm, path):
    value = np.ones(2)
    for _ in range(CALL_COUNT):
        comm.allreduce(value, out=value)
    if comm.rank:
        while not path.exists():
            time.sleep(0.001)
    else:
        # The timer can run only if the waiting call releases the GIL.
        threading.Timer(0.2, path.touch).start()
    comm.barrier()
    return value[0]


def test_other_threads_of_a_rank_continue_while_a_call_waits(world, tmp_path):
    assert world(2).run(wait_for_the_other_thread, tmp_path / "timer_ran") == [2.0**CALL_COUNT] * 2


def test_started_calls_are_not_plain_calls(everywhere):
    def program(comm):
        first, second = np.ones(3), np.ones(3)
        for _ in range(CALL_COUNT):
            first[:] = second[:] = 1
            handle = comm.allreduce_async(first, out=first)
            comm.allreduce(second, out=second)
            assert handle.wait() is first
        return first.tolist() == second.tolist() == [comm.world_size] * 3

    assert all(everywhere(program))


def test_a_closed_communicator_makes_no_plain_calls():
    def close(comm):
        part = comm.split(0)
        out = np.ones(2)
        for _ in range(CALL_COUNT):
            part.allreduce(out, out=out)
        part.close()
        for call in (lambda: part.allreduce(out, out=out), lambda: part.broadcast(out=out), part.barrier):
            with pytest.raises(rp.CommunicatorClosed):
                call()

    with rp.launch(workers=2) as job:
        job.run(close)
