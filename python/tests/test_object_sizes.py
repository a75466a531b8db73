"""Objects of sizes around the limit of the first message arrive unchanged, also if one rank has a longer object."""

from __future__ import annotations

import numpy as np
import pytest
from ripieno._native import FRAME_ROOM_BYTES
from ripieno.wire import objects

#: Beyond the size of a frame, in steps small enough to hit every limit.
SIZES = [*range(0, FRAME_ROOM_BYTES + 80, 3), 1000, 1025, 5000]


def value_of(kind, size, rank):
    if kind == "bytes":
        return bytes([rank % 256]) * size
    if kind == "array":
        return np.full(size, rank, np.uint8)
    if kind == "table":
        return np.full((size // 12, 3), rank, "f2" if size % 2 else "i4")
    return {"rank": rank, "text": "x" * size, "array": np.full(size // 8, rank)}


def is_equal(found, expected):
    if isinstance(expected, np.ndarray):
        is_own = found.flags.writeable and type(found) is np.ndarray
        return is_own and found.dtype == expected.dtype and np.array_equal(found, expected)
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(is_equal(found[key], expected[key]) for key in expected)
    return type(found) is type(expected) and found == expected


def all_calls_return_the_objects(comm, kind):
    ranks = range(comm.world_size)
    for size in SIZES:
        for longer in (0, 40):
            # The last rank's object is longer than the others'.
            sizes = [size + longer * (rank == ranks[-1]) for rank in ranks]
            every = [value_of(kind, sizes[rank], rank) for rank in ranks]
            mine = every[comm.rank]
            assert all(map(is_equal, comm.allgather(mine), every)), (size, longer)
            for root in {0, ranks[-1]}:
                gathered = comm.gather(mine, root=root)
                assert all(map(is_equal, gathered, every)) if comm.rank == root else gathered is None, (size, longer)
                assert is_equal(comm.broadcast(mine if comm.rank == root else None, root=root), every[root])
                assert is_equal(comm.scatter(every if comm.rank == root else None, root=root), mine), (size, longer)
            if comm.world_size > 1:
                left, right = ranks[comm.rank - 1], ranks[(comm.rank + 1) % comm.world_size]
                assert is_equal(comm.sendrecv(mine, right, left), every[left])
                if comm.rank == 0:
                    comm.send(mine, 1)
                elif comm.rank == 1:
                    assert is_equal(comm.recv(0), every[0])


@pytest.mark.parametrize("kind", ["bytes", "array", "table", "dict"])
def test_objects_arrive_unchanged(everywhere, kind):
    everywhere(all_calls_return_the_objects, kind)


def all_calls_return_the_objects_of_many_ranks(comm):
    framed = objects._FEW_RANKS
    objects._FEW_RANKS = 0
    try:
        all_calls_return_the_objects(comm, "dict")
    finally:
        objects._FEW_RANKS = framed


def test_objects_of_many_ranks_arrive_unchanged(everywhere):
    everywhere(all_calls_return_the_objects_of_many_ranks)


def kinds_of_arrays(comm):
    order = np.asfortranarray(np.arange(6.0).reshape(2, 3) + comm.rank)
    fixed = np.arange(3) + comm.rank
    fixed.flags.writeable = False
    empty, scalar, swapped = np.zeros((0, 4)), np.array(comm.rank), np.arange(3, dtype=">i4")
    mine = [order, fixed, empty, scalar, swapped, order[:, ::2], np.array(["a", "b"]), np.array([True, False])]
    for each in mine:
        every = comm.allgather(each)
        for rank, found in enumerate(every):
            assert found.dtype == each.dtype
            assert found.shape == each.shape
            assert found.flags.writeable
            if each is not empty and each.dtype.kind in "if" and each is not swapped:
                np.testing.assert_array_equal(found, each + (rank - comm.rank))
            else:
                np.testing.assert_array_equal(found, each)


def test_short_arrays_of_all_kinds_are_gathered(everywhere):
    everywhere(kinds_of_arrays)


def different_kinds(comm):
    # A short array, a short object, and a long one.
    every = [np.arange(3), {"a": 1}, "x" * 1000][: comm.world_size]
    mine = every[comm.rank]
    for found in (comm.allgather(mine), comm.gather(mine, root=comm.world_size - 1)):
        if found is not None:
            assert [str(each) for each in found] == [str(each) for each in every]
    assert str(comm.scatter(every if comm.rank == 0 else None)) == str(mine)


def test_ranks_may_send_short_and_long_objects_of_all_kinds(everywhere):
    everywhere(different_kinds)


class Interrupted:
    """Raises KeyboardInterrupt the first time that it is pickled."""

    count = 0

    def __reduce__(self):
        Interrupted.count += 1
        if Interrupted.count == 1:
            raise KeyboardInterrupt
        return list, ()


def test_an_interrupt_during_pickling_is_raised(threads):
    def program(comm):
        with pytest.raises(KeyboardInterrupt):
            comm.allgather([Interrupted()])
        return comm.allgather([Interrupted()])

    assert threads(1, program) == [[[[]]]]
