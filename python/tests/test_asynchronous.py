"""Groups, asynchronous calls, scans, rotations and neighbor exchanges: all results equal NumPy's."""

from __future__ import annotations

import threading
import weakref

import numpy as np
import pytest
import ripieno as rp
from numpy.testing import assert_array_equal
from ripieno.wire.calls import CallQueue, Handle
from varied import exhaustively
from watching import comes_true


def run(program, workers):
    with rp.launch(workers=workers) as job:
        return job.run(program)


def vector(rank: int, length: int = 50) -> np.ndarray:
    return np.arange(length) * (rank + 1) + rank


def scans(comm):
    for op, combine in [("sum", np.add), ("prod", np.multiply), ("min", np.minimum), ("max", np.maximum)]:
        vectors = [vector(rank, 5) + 1 for rank in range(comm.world_size)]
        upto = np.array([combine.reduce(vectors[: rank + 1], axis=0) for rank in range(comm.world_size)])
        assert_array_equal(comm.scan(vectors[comm.rank], op=op), upto[comm.rank], strict=True)
        identity = {"sum": 0, "prod": 1, "min": np.iinfo(np.int64).max, "max": np.iinfo(np.int64).min}[op]
        expected = upto[comm.rank - 1] if comm.rank else np.full(5, identity)
        assert_array_equal(comm.exscan(vectors[comm.rank], op=op), expected, strict=True)
    out = vector(comm.rank, 3)
    assert comm.scan(out, out=out) is out
    assert_array_equal(out, sum(vector(rank, 3) for rank in range(comm.rank + 1)))
    number, array = comm.exscan((comm.rank, np.ones(2, bool)), op="min") if comm.rank == 0 else (0, None)
    if comm.rank == 0:
        assert number == np.iinfo(np.int64).max and array.all()
    else:
        comm.exscan((comm.rank, np.ones(2, bool)), op="min")
    assert comm.exscan(1.0, op="max") == (-np.inf if comm.rank == 0 else 1.0)


def rotations(comm):
    for distance in (0, 1, 2, -1, 7):
        before = (comm.rank - distance) % comm.world_size
        assert_array_equal(comm.rotate(vector(comm.rank, 10 * comm.rank), distance), vector(before, 10 * before))
        assert comm.rotate({"from": comm.rank, 1: "x" * 1000}, distance) == {"from": before, 1: "x" * 1000}
        out = np.empty(20, np.int64)
        assert comm.rotate(vector(comm.rank, 20), distance, out=out) is out
        assert_array_equal(out, vector(before, 20))
    block = vector(comm.rank, 20)
    comm.rotate(block, out=block)
    assert_array_equal(block, vector((comm.rank - 1) % comm.world_size, 20))


def neighbors(comm):
    if comm.world_size == 1:
        assert comm.neighbour_exchange({}) == {}
        return
    left, right = (comm.rank - 1) % comm.world_size, (comm.rank + 1) % comm.world_size
    values = {right: vector(comm.rank, 3), left: vector(comm.rank, 3) * 2}
    found = comm.neighbour_exchange(values)
    assert sorted(found) == sorted({left, right})
    if comm.world_size > 2:
        assert_array_equal(found[left], vector(left, 3))
        assert_array_equal(found[right], vector(right, 3) * 2)
        out = {left: np.empty(3, np.int64)}
        comm.neighbour_exchange({right: vector(comm.rank, 3)}, out=out)
        assert_array_equal(out[left], vector(left, 3))
        for dtype in ("float64", ">i8"):
            sent = vector(comm.rank, 3).astype(dtype)
            with pytest.raises(rp.CollectiveMismatch, match=rf"rank {left} sends {dtype}, out\[{left}\] has int64"):
                comm.neighbour_exchange({right: sent}, out=out)
    one_way = comm.neighbour_exchange({1: "to one"} if comm.rank == 0 else {})
    assert one_way == ({0: "to one"} if comm.rank == 1 else {})


def groups(comm):
    even = comm.split(comm.rank % 2)
    members = list(range(comm.rank % 2, comm.world_size, 2))
    assert (even.world_size, even.rank) == (len(members), members.index(comm.rank))
    assert len(even.hosts) == len(even.nodes) == len(even.racks) == len(members)
    assert even.allgather(comm.rank) == members
    assert even.broadcast(comm.rank, root=even.world_size - 1) == members[-1]
    assert_array_equal(comm.allreduce(vector(comm.rank)), sum(map(vector, range(comm.world_size))))

    backwards = comm.split(0, key=-comm.rank)
    assert backwards.allgather(comm.rank) == list(range(comm.world_size))[::-1]
    assert comm.split(None if comm.rank else 3) is None or comm.rank == 0

    child = even.split(even.rank // 2)
    assert child.allgather(comm.rank) == members[even.rank // 2 * 2 : even.rank // 2 * 2 + 2]
    child.close()
    with pytest.raises(rp.CommunicatorClosed):
        child.barrier()
    even.barrier()
    comm.barrier()


def asynchronous(comm):
    ranks = range(comm.world_size)
    handles = [comm.allreduce_async(vector(comm.rank) + i) for i in range(5)]
    between = comm.allreduce(vector(comm.rank))
    handles.append(comm.broadcast_async({"a": np.arange(4)} if comm.rank == 0 else None))
    handles.append(comm.allgather_async(comm.rank))
    handles.append(comm.scan_async(comm.rank))
    handles.append(comm.barrier_async())
    after = comm.allreduce(comm.rank)
    total = sum(map(vector, ranks))
    assert_array_equal(between, total)
    assert after == sum(ranks)
    for i, handle in reversed(list(enumerate(handles[:5]))):
        assert_array_equal(handle.wait(), total + i * comm.world_size)
        assert handle.done
        assert handle.wait() is handle.wait()
    assert_array_equal(handles[5].wait()["a"], np.arange(4))
    assert handles[6].wait() == list(ranks)
    assert handles[7].wait() == sum(ranks[: comm.rank + 1])
    assert handles[8].wait() is None
    out = np.empty(3 * comm.world_size, np.int64)
    gathered = comm.allgather_async(vector(comm.rank, 3), out=out)
    mine = comm.reduce_scatter_async(np.ones((comm.world_size, 2)))
    assert gathered.wait() is out
    assert_array_equal(out.reshape(-1, 3), [vector(rank, 3) for rank in ranks])
    assert_array_equal(mine.wait(), np.full((1, 2), comm.world_size))
    if comm.world_size > 1:
        peer = comm.rank ^ 1
        if peer < comm.world_size:
            received = np.empty(1 << 20)
            sent = comm.send_into_async(np.full(1 << 20, float(comm.rank)), peer)
            comm.recv_async(peer, out=received).wait()
            sent.wait()
            assert (received == peer).all()
            comm.send_async(["value", comm.rank, np.zeros(1 << 18)], peer)  # completes without `wait`
            assert comm.recv(peer)[1] == peer
    for _ in range(20):
        comm.allreduce_async(np.ones(1000))  # the handle is dropped without `wait`
    comm.barrier()


def progress_without_wait(comm):
    """Reduce a value that is larger than a link's buffer: it needs the progress thread to complete."""
    handle = comm.allreduce_async(np.full(1 << 20, comm.rank + 1.0))
    until_done(handle)
    assert (handle.wait() == sum(range(1, comm.world_size + 1))).all()


def until_done(handle):
    assert comes_true(lambda: handle.done, within_s=60), "the call made no progress"


def done_without_wait(comm):
    p, rank = comm.world_size, comm.rank
    out = [np.full((1, 2), -1.0), np.full(3, -1), np.full(3, -1)]
    until_done(comm.reduce_scatter_async(np.ones((p, 2)), out=out[0]))
    until_done(comm.exscan_async(vector(rank, 3), out=out[1]))
    until_done(comm.scatter_async(np.arange(3 * p) if rank == 0 else None, out=out[2], counts=[3] * p))
    assert_array_equal(out[0], np.full((1, 2), p))
    assert_array_equal(out[1], sum((vector(before, 3) for before in range(rank)), np.zeros(3, int)))
    assert_array_equal(out[2], 3 * rank + np.arange(3))


def closed_in_flight(comm):
    group = comm.split(0)
    handle = group.allreduce_async(np.ones(1 << 18))
    group.close()
    assert (handle.wait() == comm.world_size).all()
    comm.barrier()


@pytest.mark.parametrize(
    "program",
    [scans, rotations, neighbors, groups, asynchronous, done_without_wait, closed_in_flight],
    ids=lambda each: each.__name__,
)
def test_values_equal_numpy(everywhere, program):
    everywhere(program)


@pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
def test_the_first_call_of_a_communicator_progresses_without_wait(workers):
    run(progress_without_wait, workers)


def test_an_error_is_raised_by_wait_and_by_the_next_call():
    def program(comm):
        handle = comm.allreduce_async(np.ones(10 + comm.rank))
        for _ in range(2):
            with pytest.raises(rp.CollectiveMismatch):
                handle.wait()
        with pytest.raises(rp.CollectiveMismatch):
            comm.barrier()
        return comm.rank

    assert run(program, 2) == [0, 1]


class Owner:
    """A communicator of this process."""

    def _check_process(self):
        pass


class ControlledPart:
    """A part of a call that ends when the test sets `ended`."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.waited_for, self.ended = threading.Event(), threading.Event()

    @property
    def done(self):
        return self.ended.is_set()

    def wait(self):
        self.waited_for.set()
        if self.errors:
            raise self.errors.pop()
        assert self.ended.wait(30)


def test_after_an_interrupted_wait_another_one_waits_for_the_end():
    part = ControlledPart(KeyboardInterrupt())
    handle = Handle([part], lambda: "result", Owner())

    with pytest.raises(KeyboardInterrupt):
        handle.wait()
    assert not handle.done
    part.ended.set()
    assert handle.wait() == "result" and handle.done


def test_two_threads_may_wait_for_one_handle():
    part, results = ControlledPart(), []
    handle = Handle([part], lambda: "result", Owner())
    threads = [threading.Thread(target=lambda: results.append(handle.wait())) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert part.waited_for.wait(30)
    assert not handle.done and not results
    part.ended.set()
    for thread in threads:
        thread.join()
    assert results == ["result"] * 2 and handle.done


def test_a_queue_does_not_retain_results():
    queue = CallQueue()
    job = queue.add(lambda: np.ones(3))
    gone = threading.Event()
    weakref.finalize(job.wait(), gone.set)
    del job
    assert gone.wait(30), "the queue retains the result"


def test_wrong_arguments_are_raised_at_once():
    def program(comm):
        with pytest.raises(rp.InputError, match="op='average'"):
            comm.allreduce_async(np.ones(3), op="average")
        with pytest.raises(rp.InputError, match="color=-1"):
            comm.split(-1)
        with pytest.raises(rp.InputError, match="peer=7"):
            comm.neighbour_exchange({7: 1})

    run(program, 2)


def test_ranks_that_wait_for_each_other_in_different_groups_are_reported():
    def program(comm):
        first, second = comm.split(0), comm.split(0)
        order = (first, second) if comm.rank == 0 else (second, first)
        for group in order:
            group.allreduce(np.ones(3))

    with pytest.raises(rp.CollectiveMismatch, match="communicator"):
        run(program, 2)
