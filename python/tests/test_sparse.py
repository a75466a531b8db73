"""Sparse reductions equal NumPy on the gathered data. The programs run on every rank and check there."""

from __future__ import annotations

import os
import pickle
import signal
import time

import numpy as np
import pytest
import ripieno as rp
from numpy.testing import assert_array_equal
from operations import OPS
from watching import is_prompt

DTYPES = ["float32", "float64", "int32", "int64", "uint64"]
KINDS = ["random", "power-law", "empty", "disjoint", "identical", "single"]
DEGREES = {
    1: [None, "direct"],
    2: [None, "direct"],
    3: ["direct"],
    4: [None, "binary", "4", (2, 2)],
    6: ["3x2", [2, 3]],
}


def out_indices(kind: str, rank: int, p: int, n: int) -> np.ndarray:
    random = np.random.default_rng([rank, p, n])
    match kind:
        case "random":
            return random.integers(0, n, n // 2)
        case "power-law":
            return np.minimum(random.zipf(1.5, n), n) - 1
        case "empty":
            return np.empty(0, np.int64)
        case "disjoint":
            return np.arange(rank, n, p)[::-1]
        case "identical":
            return np.arange(0, n, 3)
        case _:
            return np.array([n - 1])


def contribution(rank: int, count: int, dtype: str, width: int | None) -> np.ndarray:
    """Return small integers, exact in every type and order of addition."""
    return np.random.default_rng([rank, count]).integers(0, 4, count if width is None else (count, width)).astype(dtype)


def oracle(kind: str, p: int, n: int, op: str, dtype: str, width: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the combined rows of all indices, and a mask of the contributed ones."""
    dense = np.zeros(n if width is None else (n, width), dtype)
    known = np.zeros(n, bool)
    for rank in range(p):
        indices = out_indices(kind, rank, p, n)
        for index, row in zip(indices, contribution(rank, len(indices), dtype, width), strict=True):
            dense[index] = OPS[op](dense[index], row) if known[index] else row
            known[index] = True
    return dense, known


def ops_of(dtype: str) -> list[str]:
    match np.dtype(dtype).kind:
        case "f":
            return ["sum", "prod", "min", "max"]
        case "b":
            return ["min", "max", "and", "or", "xor"]
        case _:
            return list(OPS)


def equal_to_numpy(comm, kinds, dtypes, ops, widths, degrees):
    n = 60
    for kind in kinds:
        for dtype in dtypes:
            for op in ops or ops_of(dtype):
                for width in widths:
                    mine = out_indices(kind, comm.rank, comm.world_size, n)
                    dense, known = oracle(kind, comm.world_size, n, op, dtype, width)
                    choices = np.flatnonzero(known)
                    wanted = np.random.default_rng(comm.rank).choice(choices, len(choices)) if len(choices) else choices
                    values = contribution(comm.rank, len(mine), dtype, width)
                    configured = comm.sparse(mine, wanted, degrees=degrees)
                    assert_array_equal(configured.reduce(values, op), dense[wanted], strict=True)
                    once = comm.sparse_reduce(mine, values, wanted, op, degrees=degrees)
                    assert_array_equal(once, dense[wanted], strict=True)


@pytest.mark.parametrize("workers", DEGREES)
def test_every_kind_of_sets_equals_numpy(world, workers):
    for degrees in DEGREES[workers]:
        world(workers).run(equal_to_numpy, KINDS, ["int64"], ["min"], [None, 3], degrees)


def tried(comm):
    n = 60
    for kind in ("power-law", "empty"):
        mine = out_indices(kind, comm.rank, comm.world_size, n)
        dense, known = oracle(kind, comm.world_size, n, "sum", "float32", None)
        wanted = np.flatnonzero(known)[comm.rank :]
        configured = comm.sparse(mine, wanted, degrees="tried")
        values = contribution(comm.rank, len(mine), "float32", None)
        assert_array_equal(configured.reduce(values), dense[wanted], strict=True)
    return comm.sparse(mine, mine, degrees="tried").degrees


def test_tried_degrees_are_the_same_on_every_rank_and_equal_numpy(world):
    found = world(6).run(tried)

    assert len(set(found)) == 1 and np.prod([int(degree) for degree in found[0].split("x")]) == 6
    assert world(1).run(tried) == ["1"]


def test_every_dtype_op_and_width_equals_numpy(world):
    world(3).run(equal_to_numpy, ["random"], DTYPES, None, [1, 100], None)
    world(4).run(equal_to_numpy, ["power-law"], ["bool", "int8", "float16"], None, [None], "2x2")


def any_integers_in_any_order(comm):
    expected = np.array([2.0, 8.0, 2.0]) * comm.world_size  # of indices 3, 7, 3
    for out, wanted in [
        ([7, 3, 7], [3, 7, 3]),
        (np.array([7, 3, 7], np.uint8), np.array([3, 7, 3], np.uint64)),
        (np.array([7, 0, 3, 0, 7], np.int32)[::2], np.array([3, 7, 3], np.int16)),
    ]:
        configured = comm.sparse(out, wanted)
        assert configured.size == 8
        assert_array_equal(configured.reduce(np.array([3.0, 2.0, 5.0])), expected)
    # Ones added to 2^24 in float32 are lost.
    repeated = comm.sparse([5] * 7, [5])
    assert_array_equal(repeated.reduce(np.array([2.0**24] + [1.0] * 6, np.float32)), [(2.0**24 + 6) * comm.world_size])
    nothing = comm.sparse([], [])
    assert nothing.reduce(np.empty((0, 4), np.float32)).shape == (0, 4)
    assert (nothing.size, nothing.reduce(np.empty(0)).dtype) == (0, np.float64)


def test_indices_are_any_integers_in_any_order(world):
    world(2).run(any_integers_in_any_order)


def into_given_memory(comm):
    configured = comm.sparse([4, 2, 9], [9, 4, 2], size=10)
    values = np.array([[1, 2], [3, 4], [5, 6]], np.int32)
    expected = np.array([[5, 6], [1, 2], [3, 4]], np.int32) * comm.world_size
    out = np.zeros((3, 2), np.int32)
    assert configured.reduce(values, out=out) is out
    assert_array_equal(out, expected)
    wider = np.zeros((3, 2), np.int64)
    assert configured.reduce(values, out=wider) is wider
    assert_array_equal(wider, expected)
    assert configured.reduce(values, out=values) is values
    assert_array_equal(values, expected)
    assert_array_equal(comm.sparse_reduce([4], np.ones(1), [4], out=np.zeros(1)), [comm.world_size])
    boxes = np.arange(12.0).reshape(3, 2, 2)
    assert_array_equal(configured.reduce(boxes.byteswap().view(">f8")), boxes[[2, 0, 1]] * comm.world_size)
    masks = np.array([[True, False], [False, False], [True, True]])
    assert_array_equal(configured.reduce(masks, "or"), masks[[2, 0, 1]], strict=True)


def test_results_go_where_they_are_wanted(world):
    world(2).run(into_given_memory)


def missing_ones(comm):
    out, wanted = [comm.rank, 50], [50, 60 + comm.rank, 55]
    errors = []
    for call in (
        lambda: comm.sparse(out, wanted),
        lambda: comm.sparse_reduce(out, np.ones((2, 2)), wanted, degrees="direct"),
    ):
        with pytest.raises(rp.MissingIndicesError) as caught:
            call()
        errors.append(caught.value)
    zeros = [[3.0, 3.0], [0.0, 0.0], [0.0, 0.0]]
    assert_array_equal(comm.sparse(out, wanted, missing="zero").reduce(np.ones((2, 2))), zeros)
    assert_array_equal(comm.sparse_reduce(out, np.ones((2, 2)), wanted, missing="zero", size=100), zeros)
    assert_array_equal(comm.sparse(out, wanted, missing="zero").reduce(np.ones(2), "min"), [1, 0, 0])
    return errors


def test_missing_indices_are_an_error_on_every_rank_or_zero(world):
    for error in np.ravel(world(3).run(missing_ones)):
        assert isinstance(error, rp.RipienoError) and isinstance(error, KeyError)
        assert (error.count, error.examples) == (4, [55, 60, 61, 62])
        assert str(error).startswith("4 requested indices that no rank contributes: 55, 60, 61, 62; contribute them")
        assert str(pickle.loads(pickle.dumps(error))) == str(error)


def wrong_arguments(comm):
    configured = comm.sparse([1, 2], [2])
    for call, text in [
        (lambda: comm.sparse([1, -2], []), "out_indices=-2 at position 1: expected 0 to"),
        (lambda: comm.sparse([], [5], size=5), "in_indices=5 at position 0: expected 0 to 4, for size=5"),
        (lambda: comm.sparse([1.5], []), "out_indices: dtype float64: expected whole numbers"),
        (lambda: comm.sparse([], [[1]]), r"in_indices: shape \(1, 1\): expected one axis"),
        (lambda: comm.sparse(np.array([2**63], np.uint64), []), r"expected indices below 2\*\*63"),
        (lambda: comm.sparse([], [], degrees="3x1"), "degrees=3x1: expected"),
        (
            lambda: comm.sparse([], [], degrees=[3, 2]),
            "degrees=3x2: expected direct, binary or factors such as 8x4x2 whose product is 2",
        ),
        (lambda: comm.sparse([], [], missing="nan"), "missing='nan': expected 'error' or 'zero'"),
        (lambda: comm.sparse([], [], size=-1), "size=-1: expected"),
        (lambda: comm.sparse([], [], dense_above=float("nan")), "dense_above=NaN: expected a density"),
        (lambda: configured.reduce(np.ones(3)), r"values: shape \(3,\): expected 2 rows, one per out-index"),
        (lambda: configured.reduce(np.ones((2, 0))), "expected at least one element in a row"),
        (lambda: configured.reduce(np.ones(2), "mean"), "op='mean': expected one of sum"),
        (lambda: configured.reduce(np.ones(2), "or"), "op='or' of dtype float64"),
        (lambda: configured.reduce(np.ones(2), out=np.ones(2)), r"out: shape \(2,\)"),
        (lambda: comm.sparse_reduce([1], np.ones(2), []), "expected 1 rows, one per out-index"),
    ]:
        with pytest.raises(rp.InputError, match=text):
            call()
    with pytest.raises(rp.InputError, match=r"rank 1 passed size=1, .* rank 0 passed size=0, .*: expected the same"):
        comm.sparse([], [], size=comm.rank)
    comm.barrier()


def test_wrong_arguments_are_reported_and_nothing_is_sent(world):
    world(2).run(wrong_arguments)


def thousand_rounds(comm):
    n = 5000
    mine, wanted = out_indices("power-law", comm.rank, comm.world_size, n), None
    dense, known = oracle("power-law", comm.world_size, n, "sum", "int64", None)
    wanted = np.flatnonzero(known)[:: comm.rank + 1]
    configured = comm.sparse(mine, wanted)
    values, expected = contribution(comm.rank, len(mine), "int64", None), dense[wanted]
    out = np.empty(len(wanted), np.int64)
    return sum(not np.array_equal(configured.reduce(values * k, out=out), expected * k) for k in range(1, 1001))


def test_a_thousand_rounds_produce_no_wrong_value(world):
    assert world(4).run(thousand_rounds) == [0] * 4


def dies(comm, when):
    index = np.arange(200_000)
    configured = comm.sparse(index, index) if when == "reduce" else None
    comm.barrier()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(1000):
        if when == "configure":
            comm.sparse(index, index)
        elif when == "reduce":
            configured.reduce(np.ones(len(index)))
        else:
            comm.sparse_reduce(index, np.ones(len(index)), index)


@pytest.mark.parametrize("when", ["configure", "reduce", "both"])
def test_a_killed_rank_fails_the_others_in_time(when):
    with rp.launch(workers=3) as job:
        begun = time.monotonic()
        with pytest.raises(rp.RankFailed, match="killed by SIGKILL") as caught:
            job.run(dies, when)
        assert caught.value.rank == 1
        assert is_prompt(time.monotonic() - begun)


def other_widths(comm):
    configured = comm.sparse([1, 2], [1])
    configured.reduce(np.ones((2, 1 + comm.rank)))


def test_ranks_that_reduce_other_rows_are_listed_with_their_calls():
    with rp.launch(workers=2) as job, pytest.raises(rp.CollectiveMismatch) as caught:
        job.run(other_widths)
    for rank, width in enumerate([1, 2]):
        rows = rf"rows of float64 × {width}, sum, rows of shape \({width},\)"
        text = rf"rank {rank} called sparse-reduce\({rows}, configuration 1\)"
        assert caught.match(text)


def looked_at(comm):
    configured = comm.sparse(np.arange(comm.rank, 400, 3), np.arange(comm.rank, 400, 5), degrees="2x2", missing="zero")
    configured.reduce(np.ones(len(np.arange(comm.rank, 400, 3))))
    last = comm.flight(1)[0]
    return repr(configured), configured.degrees, configured.volumes, last


def test_configuration_and_runs_are_visible(world):
    shown, degrees, volumes, last = world(4).run(looked_at)[0]
    assert shown == "<SparseReduce 2x2, 134 rows out, 80 in, indices below 400>"
    assert degrees == "2x2"
    assert [volume["range"] for volume in volumes] == [400, 200, 100]
    assert volumes[0] == {"range": 400, "out_rows": 134, "in_rows": 80}
    assert (last["collective"], last["algorithm"], last["bytes"]) == ("sparse-reduce", "butterfly", 134 * 8)
    assert "sparse-reduce #" in last["text"] and "(butterfly, sum of float64 × 134)" in last["text"]
