"""Every collective equals NumPy on the gathered data, for every type, in worlds of 1, 2, 3 and 5 ranks.

The programs run on every rank and check there; a failed assertion is raised in the test as the culprit's.
"""

from __future__ import annotations

import array
import operator
import os
import subprocess
import sys
import threading
from collections import namedtuple
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
import ripieno as rp
from numpy.testing import assert_array_equal
from operations import OPS
from ripieno import _native
from ripieno.wire.arrays import empty
from varied import exhaustively
from watching import comes_true

WORLDS = [1, 2, 3, 5]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]
SHAPES = [(), (0,), (1,), (7,), (3, 5), (1000,)]

everywhere = pytest.mark.parametrize("workers", WORLDS)
Pair = namedtuple("Pair", "sums counts")


def sample(rank: int, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return small integers, exact in every type and order of addition."""
    return np.random.default_rng([rank, *shape]).integers(1, 5, shape).astype(dtype)


def combined(world_size: int, op: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    return reduce(OPS[op], [sample(rank, dtype, shape) for rank in range(world_size)])


def reductions(comm):
    for dtype in INTEGERS + FLOATS:
        for op in OPS if dtype in INTEGERS else ["sum", "prod", "min", "max"]:
            for shape in SHAPES:
                mine, expected = sample(comm.rank, dtype, shape), combined(comm.world_size, op, dtype, shape)
                before = mine.copy()
                result = comm.allreduce(mine, op=op)
                assert_array_equal(result, expected, strict=True)
                assert_array_equal(mine, before)
                assert result is not mine and result.flags.writeable
                root = shape[0] % comm.world_size if shape else 0
                at_root = comm.reduce(mine, op=op, root=root)
                assert (at_root is None) == (comm.rank != root)
                if comm.rank == root:
                    assert_array_equal(at_root, expected, strict=True)


def own_copies(comm, long):
    value = np.asfortranarray(np.arange(2.0 * long).reshape(2, long)) if comm.rank == 0 else None
    found = comm.broadcast(value)
    assert found.flags.c_contiguous and found is not value and not np.may_share_memory(found, value)
    found += 1
    return value is None or value[0, 1] == 1.0, float(found[0, 1])


@pytest.mark.parametrize("long", [10, 50_000])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_an_array_that_is_broadcast_is_a_new_one_on_every_rank(world, size, long):
    assert world(size).run(own_copies, long) == [(True, 2.0)] * size


@everywhere
def test_reductions_equal_numpy(world, workers):
    world(workers).run(reductions)


def reductions_in_place(comm):
    out = sample(comm.rank, "float32", (9, 3))
    assert comm.allreduce(out, out=out) is out
    assert_array_equal(out, combined(comm.world_size, "sum", "float32", (9, 3)))

    received = np.empty((9, 3), np.float32)
    comm.allreduce(sample(comm.rank, "float32", (9, 3)), "max", out=received)
    assert_array_equal(received, combined(comm.world_size, "max", "float32", (9, 3)))

    comm.reduce(sample(comm.rank, "float32", (9, 3)), out=received if comm.rank == 0 else None)
    if comm.rank == 0:
        assert_array_equal(received, out)


@everywhere
def test_reductions_arrive_in_place(world, workers):
    world(workers).run(reductions_in_place)


def structures(comm):
    p = comm.world_size
    keys = ["counts", "sums"] if comm.rank % 2 else ["sums", "counts"]
    made = {"sums": np.ones((2, 3), np.float32), "counts": [np.arange(4), 2.5, 3, np.float32(1.5)]}
    total = comm.allreduce({key: made[key] for key in keys})
    assert list(total) == keys
    assert_array_equal(total["sums"], np.full((2, 3), p, np.float32), strict=True)
    counts, real, whole, scalar = total["counts"]
    assert_array_equal(counts, np.arange(4) * p)
    assert (real, type(real), whole, type(whole)) == (2.5 * p, float, 3 * p, int)
    assert (scalar, type(scalar)) == (1.5 * p, np.float32)

    pair = comm.allreduce(Pair(np.ones(2), 1))
    assert isinstance(pair, Pair) and pair.counts == p
    assert comm.allreduce(()) == ()
    assert comm.allreduce(True) == p
    assert comm.allreduce(comm.rank == 0, "or") is True
    assert comm.allreduce(comm.rank == 0, "and") is (p == 1)
    assert comm.reduce((1, 2.0), root=p - 1) == ((p, 2.0 * p) if comm.rank == p - 1 else None)


@everywhere
def test_structures_and_numbers_keep_their_types(world, workers):
    world(workers).run(structures)


def unusual_arrays(comm):
    p = comm.world_size
    strided = np.arange(20, dtype=np.float32).reshape(4, 5)[::2, 1:4]
    assert_array_equal(comm.allreduce(strided), strided * p)
    assert_array_equal(comm.allreduce(np.asfortranarray(strided)), strided * p)
    fixed = np.arange(3.0)
    fixed.flags.writeable = False
    assert_array_equal(comm.allreduce(fixed), fixed * p)
    assert_array_equal(comm.allreduce(np.arange(3, dtype=">i4")), np.arange(3) * p)
    assert_array_equal(comm.allreduce(array.array("d", [1, 2])), np.array([1.0, 2.0]) * p)
    assert_array_equal(comm.allreduce(memoryview(np.ones(2))), np.full(2, float(p)))
    assert_array_equal(comm.allreduce(np.array([True, comm.rank == 0]), "and"), [True, p == 1])
    for value in (strided, np.asfortranarray(strided), fixed, np.arange(3, dtype=">i4"), np.array(7.0)):
        assert_array_equal(comm.broadcast(value), value)
        assert_array_equal(comm.allgather(value)[-1], value)


@everywhere
def test_strided_read_only_and_byte_swapped_arrays_are_accepted(world, workers):
    world(workers).run(unusual_arrays)


VALUES = [
    None,
    5,
    "text",
    b"bytes" * 1000,
    {"deep": [np.arange(1000), {"er": np.ones((3, 4), np.float32)}]},
    np.arange(300_000, dtype=np.float32).reshape(-1, 3),
    np.array([], np.int16),
    np.array(["2026-01-01"], "datetime64[D]"),
    np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
    np.array([1 + 2j]),
    np.array([None, "object"]),
    list(range(5000)),
]


def equal(left, right) -> bool:
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and np.array_equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(equal, left, right))
    return type(left) is type(right) and left == right


def transfers_of_any_value(comm):
    p, rank = comm.world_size, comm.rank
    for index, value in enumerate(VALUES):
        root = index % p
        assert equal(comm.broadcast(value if rank == root else None, root), value), value
        others = [VALUES[(index + each) % len(VALUES)] for each in range(p)]
        assert equal(comm.allgather(others[rank]), others), value
        gathered = comm.gather(others[rank], root)
        assert equal(gathered, others) if rank == root else gathered is None
        assert equal(comm.scatter(others if rank == root else None, root), others[rank])
        matrix = [[(sender, receiver, value) for receiver in range(p)] for sender in range(p)]
        assert equal([each[:2] for each in comm.alltoall(matrix[rank])], [(sender, rank) for sender in range(p)])
        if p > 1:
            if rank % 2 == 0 and rank + 1 < p:
                comm.send(value, to=rank + 1)
            elif rank % 2:
                assert equal(comm.recv(rank - 1), value)


@everywhere
def test_every_collective_transfers_any_value(world, workers):
    world(workers).run(transfers_of_any_value)


def ownership(comm):
    value = np.arange(5000.0)
    for result in (
        comm.broadcast(value),
        comm.allgather(value)[comm.rank],
        comm.alltoall([value] * comm.world_size)[0],
    ):
        result += 1
        assert_array_equal(value, np.arange(5000.0))
    small = comm.allgather(np.zeros(1))
    small[0] += 1
    assert small[-1][0] == (comm.world_size == 1)


@everywhere
def test_results_are_new_and_writable(world, workers):
    world(workers).run(ownership)


def rows_in_place(comm):
    p, rank = comm.world_size, comm.rank
    counts = [3 * each for each in range(p)]
    every = np.arange(2.0 * sum(counts)).reshape(-1, 2)
    start = sum(counts[:rank])
    mine = every[start : start + counts[rank]]

    out = np.zeros_like(every)
    assert comm.allgather(mine, out=out, counts=counts) is out
    assert_array_equal(out, every)
    assert_array_equal(comm.allgather(mine, counts=counts), every)
    in_place = np.zeros((2 * p, 2), np.int16)
    in_place[2 * rank : 2 * rank + 2] = rank
    comm.allgather(out=in_place)
    assert_array_equal(in_place[:, 0], np.repeat(np.arange(p), 2))

    root = p - 1
    gathered = comm.gather(mine, root, counts=counts)
    assert gathered is None if rank != root else np.array_equal(gathered, every)
    chunk = np.zeros_like(mine)
    comm.scatter(every if rank == root else None, root, out=chunk, counts=counts)
    assert_array_equal(chunk, mine)
    assert_array_equal(comm.scatter(every if rank == root else None, root), np.array_split(every, p)[rank])

    total = every * p
    assert_array_equal(comm.reduce_scatter(every), np.array_split(total, p)[rank])
    assert_array_equal(comm.reduce_scatter(every, counts=counts, out=chunk), total[start : start + counts[rank]])

    sent = np.repeat(np.arange(p), rank + 1).astype(np.float32)
    received = np.empty(p * (p + 1) // 2, np.float32)
    comm.alltoall(sent, counts=[rank + 1] * p, out=received, out_counts=range(1, p + 1))
    assert_array_equal(received, np.full_like(received, rank))

    dates = np.array(["2026-01-01"] if rank == 0 else ["1970-01-01"], "datetime64[D]")
    assert comm.broadcast(out=dates)[0] == np.datetime64("2026-01-01")
    if p > 1:
        if rank == 0:
            comm.send_into(every[:, 0], to=1)
        elif rank == 1:
            column = np.empty(len(every))
            assert_array_equal(comm.recv(0, out=column), every[:, 0])


@everywhere
def test_rows_arrive_in_place(world, workers):
    world(workers).run(rows_in_place)


def every_algorithm(comm, collective):
    p, rank, value = comm.world_size, comm.rank, np.arange(64.0)
    calls = {
        "broadcast": lambda name: comm.broadcast(out=value.copy(), algorithm=name),
        "allreduce": lambda name: comm.allreduce(value, algorithm=name) / p,
        "reduce": lambda name: value if (result := comm.reduce(value, algorithm=name)) is None else result / p,
        "allgather": lambda name: comm.allgather(value, counts=[64] * p, algorithm=name)[-64:],
        "reduce_scatter": lambda name: np.concatenate(comm.allgather(comm.reduce_scatter(value, algorithm=name))) / p,
        "gather": lambda name: value if (all_ := comm.gather(value, algorithm=name)) is None else all_[-1],
        "scatter": lambda name: comm.scatter([value] * p if rank == 0 else None, algorithm=name),
        "alltoall": lambda name: comm.alltoall([value] * p, algorithm=name)[-1],
        "barrier": lambda name: value if comm.barrier(algorithm=name) is None else None,
    }
    for name in _native.algorithms(collective):
        try:
            result = calls[collective](name)
        except rp.InputError as error:
            # Some do not support every world or array, and must then raise the error on every rank.
            assert name in str(error), error
            continue
        assert_array_equal(result, value, err_msg=name)


COLLECTIVES = ["broadcast", "allreduce", "reduce", "allgather", "reduce_scatter"]
COLLECTIVES += ["gather", "scatter", "alltoall", "barrier"]


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("workers", [2, 3, 5])
def test_every_named_algorithm_gives_the_same_result(world, workers, collective):
    world(workers).run(every_algorithm, collective)


def same_bits(comm):
    value = np.random.default_rng(comm.rank).standard_normal(10_000).astype(np.float32)
    return [comm.allreduce(value).tobytes() for _ in range(3)]


def test_sums_are_the_same_bits_on_every_rank_and_in_every_run(world):
    results = world(5).run(same_bits)

    assert len({bits for ranks in results for bits in ranks}) == 1


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda comm: comm.allreduce(1, op="avg"), "op='avg': expected one of sum, prod, min, max, and, or, xor"),
        (lambda comm: comm.broadcast(1, root=1), "root=1: expected a rank, 0 … 0"),
        (lambda comm: comm.send(1, to=-1), "to=-1: expected a rank"),
        (lambda comm: comm.allreduce("text"), "allreduce of a str"),
        (lambda comm: comm.allreduce(np.array([None])), "dtype object"),
        (lambda comm: comm.allreduce(np.ones(2), op="xor"), "op='xor' of dtype float64"),
        (lambda comm: comm.allreduce(np.array([True])), "op='sum' of booleans"),
        (lambda comm: comm.allreduce(np.ones(4), out=np.ones(8)[::2]), "C-contiguous"),
        (lambda comm: comm.allreduce(np.ones(4), out=np.ones(3)), "shape"),
        (lambda comm: comm.allreduce(np.ones(4), out=np.ones(4, int)), "dtype"),
        (lambda comm: comm.allreduce(np.ones(4), out=np.ones(4, ">f8")), "out: dtype >f8 is of foreign byte order"),
        (lambda comm: comm.broadcast(out=[1]), "expected a NumPy array, got list"),
        (lambda comm: comm.allgather(np.ones(2), counts=[3]), "expected"),
        (lambda comm: comm.scatter([1, 2]), "expected a sequence of 1 values"),
        (lambda comm: comm.gather(np.ones(2), out=np.ones(2)), "counts="),
        (lambda comm: comm.broadcast(np.ones(1), algorithm="unknown"), "unknown"),
    ],
)
def test_wrong_arguments_are_named(call, sentence):
    with rp.launch(workers=1) as job, pytest.raises(rp.InputError) as caught:
        job.run(call)

    assert sentence in str(caught.value)


def wrong_out(comm):
    before = comm.stats()["call_count"]
    values, counts = np.ones((6, 2)), [6 // comm.world_size] * comm.world_size
    for out in (np.ones((5, 2)), np.ones((6 // comm.world_size, 3)), np.ones((6 // comm.world_size, 2), np.int8)):
        with pytest.raises(rp.InputError, match="out: shape"):
            comm.reduce_scatter(values, out=out)
        if comm.rank == 0:
            with pytest.raises(rp.InputError, match="out: shape"):
                comm.scatter(values, out=out, counts=counts)
    if comm.rank == 1:
        with pytest.raises(rp.InputError, match="out: shape"):
            comm.scatter(None, out=np.ones((5, 2)), counts=counts)
    assert comm.stats()["call_count"] == before


def test_an_out_array_that_does_not_fit_is_reported_before_anything_is_sent(world):
    world(2).run(wrong_out)


def disagree(comm, how, folder):
    calls = {
        "size": lambda: comm.allreduce(np.ones(3 + (comm.rank == 1))),
        "dtype": lambda: comm.allreduce(np.ones(3, np.float32 if comm.rank == 1 else np.int32)),
        "operation": lambda: comm.allreduce(np.ones(3), op="max" if comm.rank == 1 else "sum"),
        "root": lambda: comm.broadcast(out=np.ones(3), root=comm.rank % 2),
        "collective": lambda: comm.barrier() if comm.rank == 1 else comm.allreduce(np.ones(3)),
        "finished": lambda: None if comm.rank == 1 else comm.allreduce(np.ones(3)),
    }
    try:
        calls[how]()
        comm.barrier()
    except rp.CollectiveMismatch as error:
        Path(folder, str(comm.rank)).write_text(str(error))
        # The launcher ends all workers after the first failure, so wait until every worker has the error.
        comes_true(lambda: len(os.listdir(folder)) == comm.world_size, within_s=10)
        raise


@pytest.mark.parametrize("how", ["size", "finished", *exhaustively("dtype", "operation", "root", "collective")])
def test_a_mismatch_on_every_rank_lists_the_calls_of_all_ranks(how, tmp_path):
    with rp.launch(workers=3) as job, pytest.raises(rp.CollectiveMismatch) as caught:
        job.run(disagree, how, tmp_path)

    assert "rank" in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]


def both_send(comm, folder):
    try:
        comm.send(np.zeros(4_000_000), 1 - comm.rank)
    except rp.CollectiveMismatch as mismatch:
        (folder / str(comm.rank)).write_text(str(mismatch))
        raise


def test_two_ranks_that_send_large_values_to_each_other_are_reported_instead_of_waiting(tmp_path):
    with rp.launch(workers=2) as job, pytest.raises(rp.CollectiveMismatch, match="wait for each other"):
        job.run(both_send, tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]


def counted(comm):
    before = comm.stats()
    comm.allreduce(np.ones(100_000))
    after = comm.stats()
    return {name: after[name] - before[name] for name in after if not isinstance(after[name], list)}


def test_statistics_count_calls_bytes_and_seconds(world):
    for counts in world(2).run(counted):
        assert counts["call_count"] == 1
        assert counts["bytes_sent"] >= 400_000 and counts["bytes_received"] >= 400_000
        assert counts["seconds_communicating"] > 0


BLOCK = 40_000  # float64: long enough for zero-copy sends


def zero_copy_calls(comm, is_shared, names):
    """Return, by call, the bytes that this rank sends without a copy, and all bytes that it sends."""
    rank, counts, kept = comm.rank, [BLOCK] * 2, []

    def filled(count):
        # Links time the second read of the same memory, and may copy then.
        kept.append(rp.empty(count) if is_shared else np.empty(count))
        kept[-1][:] = rank
        return kept[-1]

    calls = {
        "allgather": lambda: comm.allgather(filled(BLOCK), out=filled(2 * BLOCK), counts=counts),
        "alltoall": lambda: comm.alltoall(filled(2 * BLOCK), out=filled(2 * BLOCK), counts=counts, out_counts=counts),
        "broadcast": lambda: comm.broadcast(out=filled(BLOCK)),
        "gather": lambda: comm.gather(filled(BLOCK), 1, out=filled(2 * BLOCK) if rank == 1 else None, counts=counts),
        "scatter": lambda: comm.scatter(filled(2 * BLOCK), out=filled(BLOCK), counts=counts),
        "send": lambda: comm.send_into(filled(5 * BLOCK), 1) if rank == 0 else comm.recv(0, out=filled(5 * BLOCK)),
    }
    found = {}
    for name in names:
        before = comm.stats()
        calls[name]()
        after = comm.stats()
        found[name] = tuple(after[key] - before[key] for key in ("zero_copy_bytes", "bytes_sent"))
    return found


# After a few sends in one direction, a link may find that copies are faster.
@pytest.mark.parametrize("names", [["allgather", "alltoall", "broadcast", "send"], ["allgather", "gather", "scatter"]])
@pytest.mark.parametrize("is_shared", [True, False])
def test_receivers_read_long_arrays_from_the_memory_of_the_sender(is_shared, names):
    with rp.launch(workers=2) as job:
        found = job.run(zero_copy_calls, is_shared, names)[0]

    block_bytes = BLOCK * 8
    sizes_bytes = {name: 5 * block_bytes if name == "send" else block_bytes for name in names}
    assert found == {name: (size_bytes, size_bytes) for name, size_bytes in sizes_bytes.items()}


def test_a_closed_communicator_raises(tmp_path):
    kept = []
    with rp.launch(workers=1) as job:
        job.run(kept.append)

    with pytest.raises(rp.CommunicatorClosed, match="closed"):
        kept[0].barrier()
    assert operator.attrgetter("closed")(kept[0])


def test_large_results_reuse_the_memory_of_earlier_ones():
    first = empty((1237, 541), np.float64)
    first_address = first.ctypes.data
    part = first[3:]
    del first
    meanwhile = empty((1237, 541), np.float64)
    assert meanwhile.ctypes.data != first_address, "a view still needs the memory"
    del part
    again = empty((541, 1237), np.float64)
    assert again.ctypes.data == first_address
    assert again.flags.writeable and again.flags.c_contiguous and again.dtype == np.float64


def alltoall_in_place(comm):
    world, rows = comm.world_size, 100_000
    values = np.repeat(np.arange(world) + 10 * comm.rank, rows)
    assert comm.alltoall(values, out=values) is values
    assert_array_equal(values, np.repeat(10 * np.arange(world) + comm.rank, rows))


def test_alltoall_works_in_place():
    with rp.launch(workers=3) as job:
        job.run(alltoall_in_place)


TWO_THREADS = """
import threading
import numpy as np
from ripieno import _native

addresses, ranks, barrier = [None, None], [None, None], threading.Barrier(2)
receiving, requesting = threading.Event(), threading.Event()

def connect(rank):
    def exchange(address):
        addresses[rank] = address
        barrier.wait()
        return addresses
    ranks[rank] = _native.Communicator.connect(rank, 2, exchange, token=b"test")

def receive():
    receiving.set()
    ranks[1].collective(("receive", 0), np.empty(3))

def request_statistics():
    receiving.wait()
    requesting.set()
    ranks[1].statistics()

def run(*threads):
    for thread in threads:
        thread.start()
    return threads

for thread in run(*(threading.Thread(target=connect, args=(rank,)) for rank in (0, 1))):
    thread.join()
threads = run(threading.Thread(target=receive), threading.Thread(target=request_statistics))
requesting.wait()
ranks[0].collective(("send", 1), np.ones(3))
for thread in threads:
    thread.join()
"""


def test_statistics_are_available_while_another_thread_waits_in_a_call():
    # A separate process: threads that wait for each other while holding the GIL would block the tests.
    subprocess.run([sys.executable, "-c", TWO_THREADS], check=True, timeout=20)


def test_arrays_of_rp_empty_are_ordinary_arrays():
    assert rp.empty((3, 4)).dtype == np.float64
    assert rp.empty((), np.int8).shape == ()
    assert rp.empty((0, 1 << 40), np.int8).size == 0
    large = rp.empty((1 << 10, 1 << 8), np.int32)
    assert large.shape == (1 << 10, 1 << 8) and large.flags.writeable and large.flags.c_contiguous
    with pytest.raises(MemoryError, match="in shared memory"):
        rp.empty(1 << 59, np.int64)


def call_with_a_lock_at_rank_1(comm):
    """Return result or error of each call with a value that rank 1 cannot pickle, and of the next call."""
    value = threading.Lock() if comm.rank == 1 else comm.rank
    long = [np.ones(100_000), value]
    calls = {
        "broadcast": lambda: comm.broadcast(value, 1),
        "broadcast by a chain": lambda: comm.broadcast(long, 1, algorithm="chain"),
        "broadcast_async": lambda: comm.broadcast_async(value, 1).wait(),
        "broadcast_variable": lambda: comm.broadcast_variable(value, 1),
        "allgather": lambda: comm.allgather(value),
        "allgather of long lists": lambda: comm.allgather(long),
        "gather": lambda: comm.gather(value, 0),
        "scatter": lambda: comm.scatter([value] * 3, 1),
        "alltoall": lambda: comm.alltoall([value] * 3),
        "rotate": lambda: comm.rotate(value),
        "checkpoint": lambda: comm.checkpoint("state", value),
    }
    found = {}
    for name, call in calls.items():
        try:
            outcome = call()
        except rp.SerializationError as error:
            outcome = str(error)
        found[name] = outcome, comm.allreduce(1)
    return found


def test_a_value_that_one_rank_cannot_pickle_is_an_error_on_all_receivers(world):
    found = world(3).run(call_with_a_lock_at_rank_1)
    for name in found[0]:
        for rank, (outcome, ranks_in_step) in enumerate(each[name] for each in found):
            assert ranks_in_step == 3
            if name == "rotate" and rank == 0:
                assert outcome == 2
            elif name == "gather" and rank == 2:
                assert outcome is None
            else:
                assert "cannot be sent: TypeError: cannot pickle '_thread.lock' object" in outcome, (
                    name,
                    rank,
                    outcome,
                )
                assert rank == 1 or outcome.startswith("rank 1: "), (name, rank, outcome)
