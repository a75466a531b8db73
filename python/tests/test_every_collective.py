"""Every collective accepts every array, blocking and nonblocking, and equals NumPy in worlds of any size.

The programs run on every rank and check there; a failed assertion is raised in the test as the culprit's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np
import pytest
import ripieno as rp
from numpy.testing import assert_array_equal
from operations import OPS
from varied import exhaustively

worlds = pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])

INTEGERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
REDUCED = ["?", *INTEGERS, "f2", "f4", "f8", ">i4", ">f8"]
RECORD = [("id", "i4"), ("x", "f8", 2)]
# Types without reductions, except for complex numbers, which have sums and products.
MOVED_ONLY = ["c8", "S3", "U3", "M8[s]", RECORD]

LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "plain": lambda array: array,
    "strided": lambda array: array[::2, 1:],
    "reversed": lambda array: array[::-1],
    "Fortran": np.asfortranarray,
    "no axis": lambda array: array[1, 1:2].reshape(()),
    "repeated row": lambda array: np.broadcast_to(array[1], (4, *array.shape[1:])),
    "no rows": lambda array: array[:0],
    "no columns": lambda array: array[:, :0],
}


def grid(rank: int, dtype: Any) -> np.ndarray:
    """Return six rows of three elements, exact in every type, and different on each rank."""
    numbers = np.arange(18).reshape(6, 3) % 4 + rank
    if dtype is RECORD:
        records = np.zeros(numbers.shape, RECORD)
        records["id"], records["x"] = numbers, numbers[..., None] / 2
        return records
    return (numbers % 2 == 0 if dtype == "?" else numbers).astype(dtype)


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def arrays(ranks: int, dtypes: list[Any]) -> dict[str, list[np.ndarray]]:
    """Return arrays of every type and layout, one per rank; numbers of rows differ, the second rank has none."""
    return {
        f"{dtype} {name}": [read_only(layout(grid(rank, dtype))) for rank in range(ranks)]
        for dtype in dtypes
        for name, layout in LAYOUTS.items()
    }


def unequal(ranks: int, dtypes: list[Any]) -> dict[str, list[np.ndarray]]:
    return {f"{dtype}": [grid(rank, dtype)[: (4, 0, 3)[rank]] for rank in range(ranks)] for dtype in dtypes}


class Asynchronous:
    """A communicator whose calls start asynchronously and are waited for."""

    def __init__(self, comm: rp.Communicator) -> None:
        self.comm, self.rank, self.world_size = comm, comm.rank, comm.world_size

    def __getattr__(self, name: str) -> Callable[..., Any]:
        start = getattr(self.comm, f"{name}_async")
        return lambda *args, **options: start(*args, **options).wait()


def exchanged(comm: Any, send: str, value: np.ndarray, **options: Any) -> Any:
    """Send a value to the next rank, and return the value of the previous rank; None in a world of one rank."""
    if comm.world_size == 1:
        return None
    if comm.rank % 2 == 0:
        getattr(comm, send)(value, (comm.rank + 1) % comm.world_size)
    received = comm.recv((comm.rank - 1) % comm.world_size, **options)
    if comm.rank % 2:
        getattr(comm, send)(value, (comm.rank + 1) % comm.world_size)
    return received


def moves(comm: Any, every: list[np.ndarray]) -> list[tuple[Any, Any]]:
    """Return actual and expected results of every collective for one array per rank."""
    p, rank, root = comm.world_size, comm.rank, comm.world_size - 1
    mine, before = every[rank], every[rank - 1]
    return [
        (comm.broadcast(mine if rank == root else None, root), every[root]),
        (comm.allgather(mine), every),
        (comm.gather(mine, root), every if rank == root else None),
        (comm.scatter(every if rank == root else None, root), mine),
        (comm.alltoall([mine] * p), every),
        (comm.rotate(mine), before),
        (comm.neighbour_exchange(dict.fromkeys(range(p), mine)), dict(enumerate(every))),
        (exchanged(comm, "send", mine), before if p > 1 else None),
        (comm.barrier(), None),
    ]


def moves_of_rows(comm: Any, every: list[np.ndarray]) -> list[tuple[Any, Any]]:
    """Return the same for calls with known numbers of rows."""
    p, rank, root = comm.world_size, comm.rank, comm.world_size - 1
    mine, before = every[rank], every[rank - 1]
    rows, mine_often = (np.concatenate(each, dtype=mine.dtype) for each in (every, [mine] * p))
    counts = [len(each) for each in every]
    at_root = rank == root

    def out(reference: np.ndarray) -> np.ndarray:
        return np.empty(reference.shape, reference.dtype)

    return [
        (comm.broadcast(mine if at_root else None, root, out=out(every[root])), every[root]),
        (comm.allgather(mine, counts=counts), rows),
        (comm.allgather(mine, counts=counts, out=out(rows)), rows),
        (comm.gather(mine, root, counts=counts), rows if at_root else None),
        (comm.gather(mine, root, counts=counts, out=out(rows) if at_root else None), rows if at_root else None),
        (comm.scatter(rows if at_root else None, root, counts=counts), mine),
        (comm.scatter(rows if at_root else None, root, counts=counts, out=out(mine)), mine),
        (comm.alltoall(rows, counts=counts), [mine] * p),
        (
            comm.alltoall(rows, counts=counts, out=out(mine_often), out_counts=[len(mine)] * p),
            mine_often,
        ),
        (comm.rotate(mine, out=out(before)), before),
        (
            comm.neighbour_exchange(
                dict.fromkeys(range(p), mine), out={peer: out(each) for peer, each in enumerate(every)}
            ),
            dict(enumerate(every)),
        ),
        (exchanged(comm, "send_into", mine, out=out(before)), before if p > 1 else None),
    ]


def reductions(comm: Any, every: list[np.ndarray], op: str) -> list[tuple[Any, Any]]:
    """Return the same for reductions, which use this machine's byte order."""
    p, rank, root = comm.world_size, comm.rank, comm.world_size - 1
    mine = every[rank]
    native = mine.dtype.newbyteorder("=")

    def of(arrays: list[np.ndarray]) -> np.ndarray:
        return np.asarray(reduce(OPS[op], arrays), native)

    def out() -> np.ndarray:
        return np.empty(mine.shape, native)

    total = of(every)
    results = [
        (comm.allreduce(mine, op), total),
        (comm.allreduce(mine, op, out=out()), total),
        (comm.reduce(mine, op, root), total if rank == root else None),
        (comm.reduce(mine, op, root, out=out() if rank == root else None), total if rank == root else None),
        (comm.scan(mine, op), of(every[: rank + 1])),
        (comm.scan(mine, op, out=out()), of(every[: rank + 1])),
        (comm.exscan(mine, op), of(every[:rank]) if rank else identity(op, total)),
        (comm.exscan(mine, op, out=out()), of(every[:rank]) if rank else identity(op, total)),
    ]
    if mine.ndim:
        counts = [len(mine)] + [0] * (p - 1)
        part = np.array_split(total, p)[rank]
        results += [
            (comm.reduce_scatter(mine, op), part),
            (comm.reduce_scatter(mine, op, counts=counts), total if rank == 0 else total[:0]),
            (comm.reduce_scatter(mine, op, out=np.empty(part.shape, native)), part),
        ]
    return results


def identity(op: str, like: np.ndarray) -> np.ndarray:
    lowest = {"b": False, "f": -np.inf}.get(like.dtype.kind)
    return np.full_like(like, {"max": np.iinfo(like.dtype).min if lowest is None else lowest, "or": 0, "sum": 0}[op])


def leaves(value: Any) -> list[np.ndarray]:
    if isinstance(value, np.ndarray):
        return [value]
    return [] if value is None else list(value.values() if isinstance(value, dict) else value)


def check(comm: Any, name: str, every: list[np.ndarray], results: list[tuple[Any, Any]]) -> None:
    """Check the results, and that they are new memory: no rank writes to another's result or arguments."""
    for index, (result, reference) in enumerate(results):
        assert type(result) is type(reference), (name, index, result)
        assert not isinstance(result, dict) or list(result) == list(reference)
        for each, expected in zip(leaves(result), leaves(reference), strict=True):
            assert_array_equal(each, expected, strict=True, err_msg=f"{name}, result {index}")
            assert each.flags.writeable, (name, index)
            assert not np.shares_memory(each, every[comm.rank]), (name, index)
    if comm.rank == 0:
        for result, _ in results:
            for each in leaves(result):
                each[...] = np.zeros((), each.dtype)
    comm.barrier()
    for result, reference in results if comm.rank else []:
        for each, expected in zip(leaves(result), leaves(reference), strict=True):
            assert_array_equal(each, expected, err_msg=name)


def communicator(comm: rp.Communicator, is_asynchronous: bool) -> Any:
    return Asynchronous(comm) if is_asynchronous else comm


def every_move(comm: rp.Communicator, is_asynchronous: bool) -> None:
    comm = communicator(comm, is_asynchronous)
    dtypes = ["f4", ">i4", "U3", RECORD] if is_asynchronous else ["?", "i1", "u8", "f2", "f8", ">f8", *MOVED_ONLY]
    for name, every in (arrays(comm.world_size, dtypes) | unequal(comm.world_size, dtypes)).items():
        before = [each.copy() for each in every]
        check(comm, name, every, moves(comm, every))
        if every[0].ndim:
            check(comm, f"rows of {name}", every, moves_of_rows(comm, every))
        for each, expected in zip(every, before, strict=True):
            assert_array_equal(each, expected, err_msg=f"the argument, {name}")


@worlds
@pytest.mark.parametrize("is_asynchronous", [False, True], ids=["blocking", "asynchronous"])
def test_every_array_arrives_unchanged_in_new_memory(world, workers, is_asynchronous):
    world(workers).run(every_move, is_asynchronous)


def every_reduction(comm: rp.Communicator, is_asynchronous: bool) -> None:
    comm = communicator(comm, is_asynchronous)
    for dtype in ["?", "i8", "f4", ">i4"] if is_asynchronous else REDUCED:
        for name, every in arrays(comm.world_size, [dtype]).items():
            before = [each.copy() for each in every]
            for op in ("max", "or" if dtype == "?" else "sum"):
                check(comm, f"{op} of {name}", every, reductions(comm, every, op))
            for each, expected in zip(every, before, strict=True):
                assert_array_equal(each, expected, err_msg=f"the argument, {name}")


@worlds
@pytest.mark.parametrize("is_asynchronous", [False, True], ids=["blocking", "asynchronous"])
def test_every_array_of_numbers_is_reduced_into_new_memory(world, workers, is_asynchronous):
    world(workers).run(every_reduction, is_asynchronous)


def objects(comm: rp.Communicator) -> None:
    every = [np.array([None, rank, "text" * rank], object) for rank in range(comm.world_size)]
    for result, reference in moves(comm, every):
        for each, expected in zip(leaves(result), leaves(reference), strict=True):
            assert_array_equal(each, expected, strict=True)


@worlds
def test_arrays_of_objects_move(world, workers):
    world(workers).run(objects)


def impossible_calls(comm: rp.Communicator) -> None:
    calls = [comm.allreduce, comm.reduce, comm.scan, comm.exscan, comm.reduce_scatter]
    for given in [*(grid(comm.rank, dtype) for dtype in (*MOVED_ONLY[1:], "?")), np.full((3, 2), None)]:
        for call in calls:
            with pytest.raises(rp.InputError, match=r"dtype|booleans"):
                call(given)
    for op in ("and", "or", "xor"):
        for call in calls:
            with pytest.raises(rp.InputError, match=op):
                call(np.ones(3), op)
        given = np.ones(3)
        for call in (comm.allreduce, comm.allreduce_async, comm.reduce, comm.scan, comm.exscan):
            with pytest.raises(rp.InputError, match=op):
                call(given, op, root=comm.rank, out=given) if call == comm.reduce else call(given, op, out=given)
    for call, name in [
        (partial(comm.send, 1), "to"),
        (partial(comm.send_into, np.ones(1)), "to"),
        (comm.recv, "source"),
    ]:
        with pytest.raises(rp.InputError, match=f"^{name}={comm.rank}: expected a rank other than this one"):
            call(comm.rank)
    with pytest.raises(rp.InputError, match="out_counts= needs out="):
        comm.alltoall([1] * comm.world_size, out_counts=[1] * comm.world_size)


@worlds
def test_impossible_calls_are_rejected_in_every_world(world, workers):
    world(workers).run(impossible_calls)


WRONG_OUTS: dict[str, Callable[[int], Any]] = {
    "columns": lambda rows: np.empty((rows, 2), "f4"),
    "axes": lambda rows: np.empty(rows, "f4"),
    "no axis": lambda rows: np.empty((), "f4"),
    "dtype": lambda rows: np.empty((rows, 3), "i8"),
    "objects": lambda rows: np.empty((rows, 3), object),
    "order": lambda rows: np.empty((3, rows), "f4").T,
    "read-only": lambda rows: read_only(np.empty((rows, 3), "f4")),
    "no array": lambda rows: [[1.0, 2.0, 3.0]] * rows,
}


def wrong_outs(comm: rp.Communicator) -> None:
    """Check errors on every rank as root. They occur before any data is sent."""
    p, rank = comm.world_size, comm.rank
    four, rows, counts = np.ones((4, 3), "f4"), np.ones((4 * p, 3), "f4"), [4] * p
    calls: list[tuple[Callable[..., Any], int]] = [
        (partial(comm.broadcast, four, rank), 4),
        (partial(comm.allreduce, four), 4),
        (partial(comm.reduce, four, root=rank), 4),
        (partial(comm.scan, four), 4),
        (partial(comm.exscan, four), 4),
        (partial(comm.allgather, four, counts=counts), 4 * p),
        (partial(comm.gather, four, rank, counts=counts), 4 * p),
        (partial(comm.scatter, rows, rank, counts=counts), 4),
        (partial(comm.reduce_scatter, rows), 4),
        (partial(comm.alltoall, rows), 4 * p),
        (partial(comm.rotate, four), 4),
    ]
    for name, make in WRONG_OUTS.items():
        for call, row_count in calls:
            try:
                call(out=make(row_count))
            except rp.InputError as error:
                assert "out" in str(error) or "array" in str(error), (name, call, error)
            else:
                raise AssertionError((name, call))
    assert comm.allreduce(1) == p


@worlds
def test_an_out_array_that_does_not_fit_is_refused_in_every_world(world, workers):
    world(workers).run(wrong_outs)


def casts(comm: rp.Communicator) -> None:
    """Check results in an `out` of a wider type than the values, also if only the root has one."""
    p, rank, root = comm.world_size, comm.rank, comm.world_size - 1
    mine, at_root = np.full((2, 3), rank + 1, "f4"), rank == root
    total, rows = np.full((2, 3), p * (p + 1) / 2), np.repeat(np.arange(1.0, p + 1), 2)[:, None].repeat(3, axis=1)
    counts = [2] * p
    for make, reference in [
        (lambda out: comm.allreduce(mine, out=out), total),
        (lambda out: comm.reduce(mine, root=root, out=out if at_root else None), total if at_root else None),
        (lambda out: comm.allgather(mine, out=out), rows),
        (lambda out: comm.gather(mine, root, counts=counts, out=out if at_root else None), rows if at_root else None),
        (lambda out: comm.scatter(rows.astype("f4"), root, counts=counts, out=out), rows[2 * rank : 2 * rank + 2]),
        (lambda out: comm.broadcast(mine, root, out=out), np.full((2, 3), float(p))),
        (lambda out: comm.rotate(mine, out=out), np.full((2, 3), float((rank - 1) % p + 1))),
    ]:
        out = None if reference is None else np.empty(reference.shape)
        result = make(out)
        assert result is out
        if reference is not None:
            assert_array_equal(result, reference, strict=True)
    for value in (1, [1, 2.0]):
        sums = np.empty(np.shape(value))
        comm.reduce(value, root=root, out=sums if at_root else None)
        if at_root:
            assert_array_equal(sums, np.multiply(value, p))
    with pytest.raises(rp.InputError, match="booleans"):
        comm.reduce(np.ones(3, bool), root=root, out=np.empty(3, int) if at_root else None)


@worlds
def test_an_out_array_of_a_wider_type_gets_the_result_in_every_world(world, workers):
    world(workers).run(casts)


def unions(comm: rp.Communicator) -> list[Any]:
    """Return unions of rows that only the last rank has."""
    has_rows = comm.rank == comm.world_size - 1
    pairs = rp.KeyValues(["a", "b", "a"], np.array([1.0, 2.0, 3.0])) if has_rows else rp.KeyValues([])
    groups = comm.allgather(comm.regroup(pairs, combine="concat").to_arrow().to_pylist())
    indices, requested = (np.array([5, 1, 5]) if has_rows else np.empty(0, int)), np.array([1, 5])
    table = rp.Table()
    if has_rows:
        table[7] = np.array([1.0, 2.0])
    joined = comm.allgather(comm.regroup(table))
    return [
        comm.allgather(comm.regroup(pairs)).sorted().to_arrow().to_pydict(),
        sorted(tuple(each.values()) for part in groups for each in part),
        {number: joined[number].tolist() for number in joined},
        comm.sparse_reduce(indices, np.arange(len(indices)) + 1.0, requested).tolist(),
        comm.sparse(indices, requested).reduce(np.ones(len(indices))).tolist(),
    ]


@worlds
def test_ranks_without_rows_get_the_rows_of_the_last_rank(world, workers):
    assert (
        world(workers).run(unions)
        == [
            [
                {"key": ["a", "b"], "value": [4.0, 2.0]},
                [("a", [1.0, 3.0]), ("b", [2.0])],
                {7: [1.0, 2.0]},
                [2.0, 4.0],
                [1.0, 2.0],
            ]
        ]
        * workers
    )
