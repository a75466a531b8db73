"""Values of different forms on different ranks: the error names each rank's form, and nothing is combined."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest
import ripieno as rp

Pair = namedtuple("Pair", "sums counts")
Swapped = namedtuple("Swapped", "counts sums")

WIDE, TALL = np.zeros((2, 3)), np.zeros((3, 2))

#: By name: a call with this rank's value, the values of ranks 0 and 1, and the error's text on each.
CASES = {
    "keys": (
        lambda c, v: c.allreduce(v),
        ({"a": 1, "b": 10}, {"x": 1, "y": 10}),
        ("'a': number, 'b': number", "'x': number"),
    ),
    "kinds": (lambda c, v: c.allreduce(v), ((1.0, 2.0), [1.0, 2.0]), ("(number, number)", "[number, number]")),
    "fields": (lambda c, v: c.allreduce(v), (Pair(1, 2), Swapped(1, 2)), ("Pair(sums=", "Swapped(counts=")),
    "depths": (
        lambda c, v: c.allreduce(v),
        (((1, 2), 3), (1, (2, 3))),
        ("((number, number), number)", "(number, (number, number))"),
    ),
    "emptiness": (lambda c, v: c.allreduce(v), ((), (1,)), ("()", "(number,)")),
    "parts": (
        lambda c, v: c.allreduce(v),
        ((np.zeros(2), np.zeros(4)), (np.zeros(3), np.zeros(3))),
        ("(float64 of shape (2,), float64 of shape (4,))", "(float64 of shape (3,), float64 of shape (3,))"),
    ),
    "parts of types": (
        lambda c, v: c.allreduce(v),
        ((np.zeros(2), np.zeros(2, "i8")), (np.zeros(2, "i8"), np.zeros(2))),
        ("(float64 of shape (2,), int64", "(int64 of shape (2,), float64"),
    ),
    "number": (lambda c, v: c.allreduce(v), (1.0, np.ones(1)), ("sum, number", "allreduce(float64 × 1, sum, ")),
    "whole number": (lambda c, v: c.allreduce(v), (1, np.int64(1)), ("sum, number", "sum, shape ()")),
    "product": (lambda c, v: c.allreduce(v, "prod"), ((1, 2), [1, 2]), ("(number, number)", "[number, number]")),
    "boolean": (
        lambda c, v: c.allreduce(v, "or"),
        (np.ones(2, bool), np.ones(2, "u1")),
        ("bool of shape (2,)", "or, "),
    ),
    "allreduce": (lambda c, v: c.allreduce(v), (WIDE, TALL), ("shape (2, 3)", "shape (3, 2)")),
    "in place": (lambda c, v: c.allreduce(v, out=v), (WIDE.copy(), TALL.copy()), ("shape (2, 3)", "shape (3, 2)")),
    "three axes": (lambda c, v: c.allreduce(v), (np.zeros((1, 2, 3)), WIDE), ("shape (1, 2, 3)", "shape (2, 3)")),
    "asynchronous": (lambda c, v: c.allreduce_async(v).wait(), (WIDE, TALL), ("shape (2, 3)", "shape (3, 2)")),
    "asynchronous in place": (
        lambda c, v: c.allreduce_async(v, out=v).wait(),
        (WIDE.copy(), TALL.copy()),
        ("shape (2, 3)", "shape (3, 2)"),
    ),
    "reduce": (lambda c, v: c.reduce(v), (WIDE, TALL), ("shape (2, 3)", "shape (3, 2)")),
    "scan": (lambda c, v: c.scan(v), (WIDE, TALL), ("shape (2, 3)", "shape (3, 2)")),
    "exscan": (lambda c, v: c.exscan(v), (WIDE, TALL), ("shape (2, 3)", "shape (3, 2)")),
    "large": (lambda c, v: c.allreduce(v), (np.zeros((200, 300)), np.zeros((300, 200))), ("(200, 300)", "(300, 200)")),
    "broadcast": (lambda c, v: c.broadcast(out=v), (WIDE.copy(), TALL.copy()), ("shape (2, 3)", "shape (3, 2)")),
    "asynchronous broadcast": (
        lambda c, v: c.broadcast_async(out=v).wait(),
        (WIDE.copy(), TALL.copy()),
        ("shape (2, 3)", "shape (3, 2)"),
    ),
    "broadcast of another type": (
        lambda c, v: c.broadcast(out=v),
        (np.zeros(2, "c16"), np.zeros(2, "V16")),
        ("complex128 of shape (2,)", "|V16 of shape (2,)"),
    ),
    "byte order": (lambda c, v: c.broadcast(out=v), (np.zeros(2, ">i4"), np.zeros(8, "u1")), (">i4 of shape", "× 8, ")),
    "an object and an array": (
        lambda c, v: c.broadcast(v) if c.rank == 0 else c.broadcast(out=v),
        ("text", np.zeros(256, "u1")),
        ("parts of an object", "uint8 × 256"),
    ),
    "allgather": (
        lambda c, v: c.allgather(v[: len(v) // 2], out=v),
        (np.zeros((2, 6)), np.zeros((4, 3))),
        ("shape (2, 6)", "shape (4, 3)"),
    ),
    "allgather of counts": (
        lambda c, v: c.allgather(np.zeros(v[c.rank]), counts=v),
        ([2, 2], [1, 3]),
        ("counts [2, 2]", "counts [1, 3]"),
    ),
    "reduce-scatter": (lambda c, v: c.reduce_scatter(v), (np.zeros((2, 6)), np.zeros((4, 3))), ("(2, 6)", "(4, 3)")),
    "gather": (
        lambda c, v: c.gather(v, counts=[len(v)] * 2),
        (np.zeros((1, 6)), np.zeros((2, 3))),
        ("shape (2, 6)", "shape (4, 3)"),
    ),
    "scatter": (
        lambda c, v: c.scatter(np.zeros((2, 6)) if c.rank == 0 else None, out=v, counts=[len(v)] * 2),
        (np.zeros((1, 6)), np.zeros((2, 3))),
        ("shape (2, 6)", "shape (4, 3)"),
    ),
    "alltoall": (
        lambda c, v: c.alltoall(v, out=v.copy()),
        (np.zeros((2, 6)), np.zeros((4, 3))),
        ("rows of shape (6,)", "rows of shape (3,)"),
    ),
    "rotate": (
        lambda c, v: c.rotate(v, out=v.copy()),
        (np.zeros((2, 6)), np.zeros((4, 3))),
        ("rows of shape (6,)", "rows of shape (3,)"),
    ),
    "rotate of another type": (
        lambda c, v: c.rotate(v, out=v.copy()),
        (np.zeros(2), np.zeros(2, "i8")),
        ("float64", "int64"),
    ),
    "message": (
        lambda c, v: c.send_into(v, 1) if c.rank == 0 else c.recv(0, out=v),
        (WIDE.copy(), TALL.copy()),
        ("shape (2, 3)", "shape (3, 2)"),
    ),
    "message to rank 0": (
        lambda c, v: c.send_into(v, 0) if c.rank == 1 else c.recv(1, out=v),
        (WIDE.copy(), TALL.copy()),
        ("shape (2, 3)", "shape (3, 2)"),
    ),
    "message of an object": (
        lambda c, v: c.send(v, 1) if c.rank == 0 else c.recv(0, out=v),
        ("text", np.zeros(256, "u1")),
        ("parts of an object", "uint8 × 256"),
    ),
    "sparse": (
        lambda c, v: c.sparse([0, 1], [0, 1]).reduce(v),
        (np.zeros((2, 2, 3)), np.zeros((2, 3, 2))),
        ("rows of shape (2, 3)", "rows of shape (3, 2)"),
    ),
}


def call_with_own_value(comm, name):
    call, values, _ = CASES[name]
    with pytest.raises(rp.CollectiveMismatch) as caught:
        call(comm, values[comm.rank])
        # A rank that has sent its part and continues waits here.
        comm.barrier()
    return str(caught.value)


@pytest.mark.parametrize("name", CASES)
def test_a_mismatch_lists_the_argument_of_each_rank(name, threads):
    for described in threads(2, call_with_own_value, name):
        for rank, text in enumerate(CASES[name][2]):
            assert any(f"rank {rank} called" in part and text in part for part in described.split(";")), described
