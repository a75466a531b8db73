"""Reductions by user functions, and argmin and argmax: all equal NumPy's."""

from __future__ import annotations

import ctypes
import math
import operator
import shutil
import subprocess
from functools import partial, reduce
from pathlib import Path

import numpy as np
import pytest
import ripieno as rp
from numpy.testing import assert_array_equal
from ripieno.wire.operations import description_of

SOURCE = """
#include <stdint.h>
/* 3a + 2b, which is neither commutative nor associative, on rows of one double. */
void mix(const void *from, void *into, int64_t rows, int64_t row_bytes) {
    const double *b = from; double *a = into;
    for (int64_t i = 0; i < rows; i++) a[i] = 3 * a[i] + 2 * b[i];
}
"""


def vector(rank: int, length: int = 37) -> np.ndarray:
    return np.random.default_rng(rank).normal(size=length)


def affine(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Compose rows (a, b), which represent x -> a·x + b, left first. Associative, but not commutative."""
    return np.stack([left[:, 0] * right[:, 0], right[:, 0] * left[:, 1] + right[:, 1]], axis=1)


def of_ranks(comm, function, values):
    """Return the expected combinations: of all ranks, of the ranks up to this one, and of the ranks before it."""
    prefixes = [reduce(function, values[: rank + 1]) for rank in range(comm.world_size)]
    return prefixes[-1], prefixes[comm.rank], prefixes[comm.rank - 1] if comm.rank else None


def functions(comm):
    maps = [vector(rank, 74).reshape(37, 2) for rank in range(comm.world_size)]
    total, upto, before = of_ranks(comm, affine, maps)
    mine = maps[comm.rank]
    result = comm.allreduce(mine, op=affine)
    np.testing.assert_allclose(result, total, rtol=1e-12)
    assert all(other.tobytes() == result.tobytes() for other in comm.allgather(result)), "the bits differ between ranks"
    assert comm.allreduce(mine, op=affine).tobytes() == result.tobytes(), "the bits differ between calls"
    np.testing.assert_allclose(comm.scan(mine, op=affine), upto, rtol=1e-12)
    exscan = comm.exscan(mine, op=affine)
    assert exscan is None if before is None else np.allclose(exscan, before, rtol=1e-12)
    for root in range(comm.world_size):
        at_root = comm.reduce(mine, op=affine, root=root)
        assert at_root is None if comm.rank != root else np.allclose(at_root, total, rtol=1e-12)
    counts = [37 - comm.world_size + 1, *[1] * (comm.world_size - 1)]
    starts = np.cumsum([0, *counts])
    part = comm.reduce_scatter(mine, op=affine, counts=counts)
    np.testing.assert_allclose(part, total[starts[comm.rank] : starts[comm.rank + 1]], rtol=1e-12)
    out = mine.copy()
    assert comm.allreduce(out, op=affine, out=out) is out
    np.testing.assert_allclose(out, total, rtol=1e-12)
    np.testing.assert_allclose(comm.allreduce_async(mine, op=affine).wait(), total, rtol=1e-12)


def test_functions_combine_in_the_order_of_the_ranks_to_the_same_bits_everywhere(everywhere):
    everywhere(functions)


def rows_are_never_split(comm):
    seen = []

    def multiply(left, right):
        seen.append(left.shape)
        return left @ right

    matrices = np.tile(np.array([[1.0, comm.rank], [0.0, 1.0]]), (5000, 1, 1))
    result = comm.allreduce(matrices, op=multiply)
    assert_array_equal(result[-1], [[1.0, sum(range(comm.world_size))], [0.0, 1.0]])
    assert all(shape[1:] == (2, 2) for shape in seen)
    # A row longer than a segment of the executor.
    long = comm.allreduce(np.full((2, 30_000), comm.rank + 1.0), op=np.multiply)
    assert_array_equal(long, np.full((2, 30_000), float(np.prod(np.arange(1, comm.world_size + 1)))))
    assert comm.allreduce(np.empty((0, 3)), op=np.add).shape == (0, 3)
    long = comm.allreduce(np.full((2, 30_000), comm.rank), op=np.gcd)
    assert_array_equal(long, np.full((2, 30_000), np.gcd.reduce(range(comm.world_size))))


def test_rows_are_never_split(everywhere):
    everywhere(rows_are_never_split)


def objects(comm):
    ranks = list(range(comm.world_size))
    assert comm.allreduce([comm.rank], op=lambda left, right: left + right) == ranks
    assert comm.scan(str(comm.rank), op=lambda left, right: left + right) == "".join(map(str, ranks[: comm.rank + 1]))
    assert comm.allreduce({comm.rank}, op=operator.or_) == set(ranks)
    assert comm.allreduce(str(comm.rank), op=max) == str(ranks[-1])
    before = comm.exscan({comm.rank}, op=set.union)
    assert before == (set(ranks[: comm.rank]) if comm.rank else None)
    total = comm.reduce([comm.rank], op=lambda left, right: left + right, root=comm.world_size - 1)
    assert total == (ranks if comm.rank == comm.world_size - 1 else None)


def test_objects_are_combined_in_the_order_of_the_ranks(everywhere):
    everywhere(objects)


def compiled(comm, path):
    library = ctypes.CDLL(path)
    mix = rp.CFunction(library.mix)
    values = [vector(rank, 20_000) for rank in range(comm.world_size)]
    expected = reduce(lambda left, right: 3 * left + 2 * right, values)
    assert_array_equal(comm.allreduce(values[comm.rank], op=mix), expected)
    assert_array_equal(comm.allreduce(values[comm.rank], op=library.mix), expected)
    assert_array_equal(comm.allreduce_async(values[comm.rank], op=mix).wait(), expected)
    address = ctypes.cast(library.mix, ctypes.c_void_p).value
    assert_array_equal(comm.allreduce(values[comm.rank], op=rp.CFunction(address, "mix")), expected)
    assert comm.allreduce(1.0, op=mix) == reduce(lambda left, right: 3 * left + 2 * right, [1.0] * comm.world_size)


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_compiled_function_is_used_for_combining(everywhere, tmp_path: Path):
    source, library = tmp_path / "mix.c", tmp_path / "mix.so"
    source.write_text(SOURCE)
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, source], check=True)
    everywhere(compiled, str(library))


def positions(comm):
    p = comm.world_size
    for dtype in ("i1", "u8", "f2", "f4", "f8"):
        tables = [np.random.default_rng(rank).integers(0, 4, size=23).astype(dtype) for rank in range(p)]
        for call, value_of, position_of in ((comm.argmin, np.min, np.argmin), (comm.argmax, np.max, np.argmax)):
            values, ranks = call(tables[comm.rank])
            assert_array_equal(values, value_of(tables, axis=0), strict=True)
            assert_array_equal(ranks, position_of(tables, axis=0))
            _, indices = call(tables[comm.rank], index=np.arange(23) + 100 * comm.rank)
            assert_array_equal(indices, np.arange(23) + 100 * position_of(tables, axis=0))
    with_nan = np.array([np.nan if comm.rank == p - 1 else 1.0, comm.rank])
    assert_array_equal(comm.argmax(with_nan)[1], [p - 1, p - 1])
    assert_array_equal(comm.argmin(with_nan)[1], [p - 1, 0])
    assert comm.argmin(7) == (7, 0)
    assert comm.argmax(float(comm.rank)) == (p - 1.0, p - 1)
    with pytest.raises(rp.InputError, match="argmax of a list: expected a number or an array"):
        comm.argmax([[1], [1, 2]])
    assert comm.argmin_async(comm.rank).wait() == (0, 0)


def test_positions_match_numpy_and_ties_go_to_the_lowest_rank(everywhere):
    everywhere(positions)


def fails_at_one(comm):
    def fail(left, right):
        raise ValueError("no such sum")

    comm.allreduce(np.arange(9.0), op=fail)


@pytest.mark.parametrize("workers", [2, 3])
def test_an_exception_of_a_function_ends_the_program_with_its_message(workers):
    with rp.launch(workers=workers) as job:
        with pytest.raises(ValueError, match="no such sum"):
            job.run(fails_at_one)
        assert job.run(lambda comm: comm.allreduce(1)) == [workers] * workers


def test_ranks_that_combine_by_different_functions_are_reported(threads):
    def program(comm):
        with pytest.raises(rp.CollectiveMismatch, match=r"by function (hypot|gcd)"):
            comm.allreduce(np.arange(3.0), op=np.hypot if comm.rank else np.gcd)

    threads(2, program)


def scaled(factor):
    return lambda left, right: factor * left + right


def counted(seen):
    count = 0

    def add(left, right):
        nonlocal count
        count += 1
        seen.append(count)
        return left + right

    return add


def test_the_description_of_a_function_depends_on_code_and_constants():
    seen = [1]
    functions = [
        lambda left, right: left + right,
        lambda left, right: left * right,
        scaled(1),
        scaled(2),
        partial(scaled(2)),
        partial(scaled(2), 1),
        counted(seen),
        np.hypot,
    ]
    assert len({description_of(function) for function in functions}) == len(functions)
    assert description_of(scaled(2)) == description_of(scaled(2))

    # Each rank has its own log and counter.
    function, other = counted(seen), counted([2, 3])
    before = description_of(function)
    assert function(1, 2) == 3 and seen == [1, 1]
    assert description_of(function) == before == description_of(other)


ROWS = np.arange(3.0)
CALLS = {
    "allreduce": lambda comm, op: comm.allreduce(ROWS, op=op),
    "reduce of objects": lambda comm, op: comm.reduce("text", op=op),
    "allreduce of objects": lambda comm, op: comm.allreduce("text", op=op),
    "regroup": lambda comm, op: comm.regroup(rp.KeyValues([1, 2], np.ones(2)), combine=op),
    "partitioner": lambda comm, op: comm.regroup(
        rp.KeyValues([1, 2], np.ones(2)), partitioner=lambda keys, op=op: op(keys, 0)
    ),
    "table": lambda comm, op: comm.regroup(rp.Table(combine=op)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_functions_with_different_code_are_a_mismatch(threads, call):
    def program(comm):
        with pytest.raises(rp.CollectiveMismatch, match=r"<lambda> of code"):
            call(comm, (lambda left, right: left % 2 + right) if comm.rank else (lambda left, right: left % 1 + right))

    threads(2, program)


def test_wrong_arguments_are_named(world):
    def program(comm):
        x = np.arange(6.0)
        for call, message in [
            (lambda: comm.allreduce(x, op=np.hypot, algorithm="ring"), "ring.*expected rank-order"),
            (lambda: comm.allreduce(np.array([object()]), op=np.hypot), "Python objects"),
            (lambda: comm.reduce_scatter([1], op=np.hypot), "expected an array"),
            (lambda: rp.CFunction(0), "expected the address"),
            (lambda: comm.argmin(np.array([1j])), "expected integers or floats"),
            (lambda: comm.argmin(x, index=x), "whole numbers"),
            (lambda: comm.argmin(x, index=[1, 2]), "whole numbers"),
        ]:
            with pytest.raises(rp.InputError, match=message):
                call()

    world(1).run(program)


def equivalent_functions(comm):
    p, rank = comm.world_size, comm.rank
    x = np.arange(5.0) + rank
    mine = (x, {"a": rank + 1})
    table = {
        "sum": (sum, np.add, np.sum, operator.add, operator.iadd),
        "prod": (math.prod, np.multiply, np.prod, operator.mul),
        "min": (min, np.minimum, np.min),
        "max": (max, np.maximum, np.max),
    }
    for name, functions in table.items():
        expected = comm.allreduce(mine, op=name)
        for function in functions:
            total, parts = comm.allreduce(mine, op=function)
            assert_array_equal(total, expected[0], strict=True)
            assert parts == expected[1]
            assert_array_equal(comm.allreduce(x, op=function), expected[0])
            assert_array_equal(comm.exscan(x, op=function), comm.exscan(x, op=name))
            assert comm.scan(rank + 1, op=function) == comm.scan(rank + 1, op=name)
            assert_array_equal(comm.reduce(x, op=function), comm.reduce(x, op=name))
            assert_array_equal(comm.reduce_scatter(x, op=function), comm.reduce_scatter(x, op=name))
            assert_array_equal(comm.sparse_reduce([0], x[:1], [0], op=function), expected[0][:1])
            rows = comm.regroup(rp.KeyValues([7], x[:1]), combine=function)
            assert_array_equal(rows.values, expected[0][: len(rows.values)])
    assert_array_equal(comm.allreduce(np.array([6, rank]), op=np.bitwise_or), [6, comm.allreduce(rank, op="or")])
    assert_array_equal(comm.allreduce(np.array([rank > 0, True]), op=all), [False, True])
    assert comm.allreduce({"any": rank > 0}, op=np.logical_or) == {"any": p > 1}
    truths = comm.allreduce(np.array([rank, 0.0]), op=np.logical_or)
    assert_array_equal(truths, [min(p - 1, 1), 0.0], strict=False)
    assert truths.dtype == np.float64


def test_builtins_and_ufuncs_select_the_operation(everywhere):
    everywhere(equivalent_functions)


def complex_numbers(comm):
    p = comm.world_size
    for dtype in (np.complex64, np.complex128):
        values = [np.array([1 + 2j, rank], dtype) for rank in range(p)]
        mine = values[comm.rank]
        for op, ufunc in (("sum", np.add), ("prod", np.multiply)):
            expected, upto, _ = of_ranks(comm, ufunc, values)
            assert_array_equal(comm.allreduce(mine, op=op), expected, strict=True)
            assert_array_equal(comm.scan(mine, op=op), upto, strict=True)
            first = comm.exscan(mine, op=op)
            assert comm.rank > 0 or first.tolist() == [1 if op == "prod" else 0] * 2
            out = np.empty_like(mine)
            assert_array_equal(comm.allreduce(mine, op=op, out=out), expected, strict=True)
            total, count = comm.allreduce((mine, 1.0), op=op)
            assert_array_equal(total, expected, strict=True)
            assert count == (p if op == "sum" else 1.0)
        wide = np.tile(mine, (p, 1))
        assert_array_equal(comm.reduce_scatter(wide), of_ranks(comm, np.add, values)[0][None])
        assert_array_equal(comm.sparse_reduce([0], mine[:1], [0]), [p * (1 + 2j)])
    assert comm.allreduce(1j) == p * 1j
    with pytest.raises(rp.InputError, match="sums and products only"):
        comm.allreduce(mine, op="max")
    with pytest.raises(rp.InputError, match=r"op='prod' of complex numbers: .* use allreduce"):
        comm.allreduce_init(mine, "prod", out=out)


def test_complex_numbers_support_only_sums_and_products(everywhere):
    everywhere(complex_numbers)


def complex_products(comm):
    p, rank = comm.world_size, comm.rank
    factors = np.array([1 + each * 1j for each in range(p)])
    for call, count in ((comm.allreduce, p), (comm.scan, rank + 1), (comm.exscan, rank)):
        product = complex(np.multiply.reduce(factors[:count]))
        assert call(complex(factors[rank]), "prod") == product
        single = call(np.complex64(factors[rank]), "prod")
        assert single.dtype == np.complex64 and single == product
        # Whole numbers beside complex ones remain exact.
        assert call([complex(factors[rank]), 10**12, 2.5, True], "prod") == [product, 10 ** (12 * count), 2.5**count, 1]
        found = call(
            {"b": (factors[rank : rank + 1].astype(">c16"), np.arange(3)), "a": np.zeros((0, 2), "c8")}, "prod"
        )
        assert_array_equal(found["b"][0], np.array([product]), strict=True)
        assert_array_equal(found["b"][1], np.arange(3) ** count, strict=True)
        assert_array_equal(found["a"], np.zeros((0, 2), "c8"), strict=True)
    expected = [complex(np.multiply.reduce(factors)), 1.25 * 2 ** (p - 1)]
    assert comm.allreduce([complex(factors[rank]), 1.25 if rank == p - 1 else 2], "prod") == expected
    assert comm.reduce((2j, 3), "prod", root=p - 1) == ((2j**p, 3**p) if rank == p - 1 else None)


def test_products_of_complex_numbers_in_containers_are_exact(everywhere):
    everywhere(complex_products)


@pytest.mark.parametrize(
    "values", [([1], [1, 2]), (np.ones(1), np.ones(3)), ({"a": 1}, {"b": 1})], ids=["lengths", "shapes", "keys"]
)
def test_containers_for_a_logical_function_must_be_alike(values):
    def program(comm):
        comm.allreduce([values[comm.rank]], np.logical_and)

    with rp.launch(workers=2, threads=1) as job, pytest.raises(rp.CollectiveMismatch, match="logical_and"):
        job.run(program)


def foreign_byte_order(comm):
    p = comm.world_size
    big = np.arange(4, dtype=">f8") + comm.rank
    small = big.astype(np.float64)
    for op in ("sum", "min", lambda left, right: left + right):
        assert_array_equal(comm.allreduce(big, op=op), comm.allreduce(small, op=op))
    assert_array_equal(comm.argmax(big)[0], np.arange(4) + p - 1)
    assert_array_equal(comm.allgather(big, counts=[4] * p), comm.allgather(small, counts=[4] * p))
    assert_array_equal(comm.alltoall([big] * p), comm.alltoall([small] * p))
    assert_array_equal(comm.broadcast(big, root=p - 1), np.arange(4) + p - 1)


def test_arrays_of_foreign_byte_order_give_the_same_results(everywhere):
    everywhere(foreign_byte_order)


@pytest.mark.parametrize(
    ("op", "value", "message"),
    [
        (lambda left, right: left[:1], np.arange(6.0), r"returned shape \(1,\).*expected the same"),
        (lambda left, right: (left + right).astype(str), np.arange(6.0), "returned .*dtype <U.*expected the same"),
        (lambda left, right: left / right, np.arange(1, 7), "dtype float64 for two blocks .* dtype int64"),
        (lambda left, right: left < right, 3, "op=<lambda>: returned a bool for operands of type int"),
        (lambda left, right: None, {3}, "returned a NoneType for operands of type set"),
    ],
    ids=["too few", "texts", "another dtype", "truth", "nothing"],
)
def test_a_function_that_returns_another_shape_is_reported(world, op, value, message):
    with pytest.raises(rp.InputError, match=message):
        world(2).run(lambda comm: comm.allreduce(value, op=op))
