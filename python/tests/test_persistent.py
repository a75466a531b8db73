"""Persistent collectives: results and order of plain ones, and errors for arrays that do not fit."""

from __future__ import annotations

import os

import numpy as np
import pytest
import ripieno as rp
from varied import exhaustively

everywhere = pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])


def sums(comm, dtype, op):
    value, out = np.zeros((2, 3), dtype), np.empty((2, 3), dtype)
    call = comm.allreduce_init(value, op, out=out)
    found = []
    for step in range(4):
        value[:] = np.arange(6).reshape(2, 3) + comm.rank + step
        assert call() is out
        found.append(out.copy() if op != "max" else call().copy())
        np.testing.assert_array_equal(out, comm.allreduce(value, op))
    return found


@everywhere
@pytest.mark.parametrize(("dtype", "op"), [("f8", "sum"), ("f4", "max"), ("i8", "prod"), ("u1", "xor")])
def test_a_call_combines_the_current_content_of_the_arrays(world, workers, dtype, op):
    for found in world(workers).run(sums, dtype, op):
        combine = {"sum": np.add, "max": np.maximum, "prod": np.multiply, "xor": np.bitwise_xor}[op]
        for step, each in enumerate(found):
            values = [(np.arange(6).reshape(2, 3) + rank + step).astype(dtype) for rank in range(workers)]
            np.testing.assert_array_equal(each, combine.reduce(values))


def in_place_between_others(comm):
    both = np.ones(4)
    call = comm.allreduce_init(both, out=both)
    call()
    queued = comm.allgather_async({"rank": comm.rank})
    # The call runs after the one started before it.
    call()
    comm.barrier()
    return both.tolist(), [each["rank"] for each in queued.wait()]


@everywhere
def test_calls_keep_the_order_in_which_they_were_made(world, workers):
    expected = [float(workers**2)] * 4, list(range(workers))
    assert world(workers).run(in_place_between_others) == [expected] * workers


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda: (np.ones(3), "mean", np.ones(3)), "op='mean': expected one of sum"),
        (lambda: (np.ones(3), "sum", np.ones(4)), r"out: shape \(4,\) and dtype float64: expected \(3,\)"),
        (lambda: (np.ones(3), "sum", np.ones(3, "i4")), "out: shape .3,. and dtype int32"),
        (lambda: (np.ones(3), "sum", np.ones(6)[::2]), "out: expected a C-contiguous, writable array"),
        (lambda: (np.ones(3), "xor", np.ones(3)), "op='xor' of dtype float64"),
        (lambda: ([1.0, 2.0], "sum", np.ones(2)), "value: expected a NumPy array, got list"),
        (lambda: (np.ones(3), "sum", [0.0] * 3), "out: expected a NumPy array, got list"),
    ],
)
def test_arrays_that_do_not_fit_are_reported_at_once(arguments, message):
    value, op, out = arguments()
    with rp.launch(workers=1) as job, pytest.raises(rp.InputError, match=message):
        job.run(lambda comm: comm.allreduce_init(value, op, out=out))


def test_a_call_ends_with_its_communicator_and_in_a_forked_process():
    def begin(comm):
        call = comm.allreduce_init(np.ones(2), out=np.empty(2))
        call()
        child = os.fork()
        if not child:
            try:
                call()
            except rp.CommunicatorClosed as error:
                os._exit(7 if "forked" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        return [call]

    with rp.launch(workers=1) as job:
        call = job.run(begin)[0][0]
    with pytest.raises(rp.CommunicatorClosed):
        call()


def other_shapes(comm):
    out = np.ones(2 + comm.rank)
    comm.allreduce_init(out, out=out)()


def test_ranks_whose_arrays_differ_are_reported():
    with rp.launch(workers=2) as job, pytest.raises(rp.CollectiveMismatch, match="float64 × 3"):
        job.run(other_shapes)
