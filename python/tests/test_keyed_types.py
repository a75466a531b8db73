"""Keyed reductions equal pandas' groupby for every dtype and operation."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import ripieno as rp
from ripieno.keyed.allreduce import ALGORITHMS

DTYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "bool"]
KEYS = [3, 1, 3, 1, 3, 2]


def values_of(dtype: str) -> np.ndarray:
    """Return values with sums and products outside the range of small types."""
    if dtype == "bool":
        return np.array([True, False, True, True, True, False])
    return np.array([100, 101, 102, 3, 99, 4], dtype)


def type_of(dtype: str, op: str) -> str:
    """Return polars' result type; pandas returns to a small type if all results happen to fit."""
    if op not in ("sum", "prod") or dtype.startswith("float"):
        return dtype
    return "uint64" if dtype.startswith("u") else "int64"


def expected(dtype: str, op: str) -> pd.Series:
    return getattr(pd.Series(values_of(dtype)).groupby(KEYS), op)().astype(type_of(dtype, op))


def assert_equal(found: rp.KeyValues, dtype: str, op: str) -> None:
    series, rows = expected(dtype, op), found.sorted()
    assert rows.keys.tolist() == series.index.tolist()
    np.testing.assert_array_equal(rows.values, series.to_numpy(), strict=True)


def every_type(comm):
    for dtype in DTYPES:
        for op in ("sum", "prod", "min", "max"):
            mine = slice(comm.rank, None, comm.world_size)
            rows = rp.KeyValues(np.array(KEYS)[mine], values_of(dtype)[mine])
            assert_equal(comm.allreduce(rows, op), dtype, op)
            assert_equal(comm.allgather(comm.regroup(rows, combine=op)), dtype, op)
            assert_equal(rp.KeyValues(KEYS, values_of(dtype)).combined(op), dtype, op)
            assert_equal(rp.KeyValues(KEYS, values_of(dtype)).combined(op, memory_limit=1), dtype, op)


@pytest.mark.parametrize("workers", [1, 2])
def test_reductions_by_key_equal_pandas_in_wide_enough_types(world, workers):
    world(workers).run(every_type)


def tables(comm):
    for dtype in DTYPES:
        value = values_of(dtype)
        for op in ("sum", "prod", "min", "max"):
            table = rp.Table({7: value}, op)
            table.add(7, value)
            widened = expected(dtype, op).dtype
            assert table[7].dtype == widened
            whole = comm.allreduce(table)[7]
            copies = np.repeat(value[None], 2 * comm.world_size, axis=0)
            np.testing.assert_array_equal(whole, getattr(copies, op)(axis=0, **_in(op, widened)), strict=True)


def _in(op: str, dtype: np.dtype) -> dict:
    return {"dtype": dtype} if op in ("sum", "prod") else {}


@pytest.mark.parametrize("workers", [1, 2])
def test_partitions_of_tables_have_the_types_of_keyed_rows(world, workers):
    world(workers).run(tables)


#: From this value on, adding one is less than half a unit in the last place of the type, and is lost.
LARGE = {"float16": 2.0**11, "float32": 2.0**24}


def sums_of_short_floats(comm):
    # An odd number of ones on each rank: rounding a partial sum before sending it would change the result.
    for dtype, large in LARGE.items():
        ones = np.ones(5 if comm.rank else 6, dtype)
        ones[0] = 1 if comm.rank else large
        expected = np.array([large + 5 * comm.world_size], dtype)
        for keys in (np.full(len(ones), 7), ["seven"] * len(ones)):
            rows = rp.KeyValues(keys, ones)
            for options in ({}, {"local_reduction": False}, {"memory_limit": 1}):
                whole = comm.allgather(comm.regroup(rows, combine="sum", **options)).values
                np.testing.assert_array_equal(whole, expected, strict=True)
            np.testing.assert_array_equal(comm.allreduce(rows).values, expected, strict=True)
            wide = rp.KeyValues(keys, np.stack([ones] * 3, axis=1))
            np.testing.assert_array_equal(comm.allreduce(wide).values, np.stack([expected] * 3, axis=1), strict=True)

        for others in ({}, {9: np.zeros(1)} if comm.rank == 0 else {}):  # the same ids on all ranks, or not
            table = rp.Table({7: ones[:1]} | others)
            for one in ones[1:]:
                table.add(7, np.array([one]))
            for algorithm in (None, *ALGORITHMS):
                np.testing.assert_array_equal(comm.allreduce(table, algorithm=algorithm)[7], expected, strict=True)
            np.testing.assert_array_equal(comm.allgather(table)[7], expected, strict=True)
            (owned,) = [each[7] for each in comm.allgather(dict(comm.regroup(table))) if 7 in each]
            np.testing.assert_array_equal(owned, expected, strict=True)


@pytest.mark.parametrize("workers", [1, 2])
def test_sums_of_short_floats_accumulate_in_float64_and_are_rounded_once(world, workers):
    world(workers).run(sums_of_short_floats)


def test_local_sums_of_short_floats_accumulate_in_float64():
    for dtype, large in LARGE.items():
        values = np.ones(9, dtype)
        values[0] = large
        expected = np.array([large + 8], dtype)
        np.testing.assert_array_equal(rp.KeyValues(np.zeros(9, int), values).combined("sum").values, expected)
        table = rp.Table({3: values[:1]})
        for value in values[1:]:
            table.add(3, np.array([value]))
        np.testing.assert_array_equal(table[3], expected, strict=True)
    # Enough keys that each part of the hash range has a separate table.
    keys = np.tile(np.arange(100_000), 9)
    values = np.ones(900_000, np.float32)
    values[:100_000] = 2.0**24
    for threads in (1, 3):
        found = rp.KeyValues(keys, values).combined("sum", threads=threads)
        assert len(found) == 100_000 and (found.values == 2.0**24 + 8).all()


def test_booleans_stay_booleans_in_bitwise_operations_and_groups():
    rows = rp.KeyValues(["a", "b", "a"], [True, False, False])
    assert rows.combined("or").sorted().to_arrow().to_pydict() == {"key": ["a", "b"], "value": [True, False]}
    assert rows.combined("and").sorted().values.tolist() == [False, False]
    assert rows.combined("concat").values.dtype == np.bool_
    assert rows.combined(np.logical_or).values.dtype == np.bool_
    assert rp.KeyValues.from_arrow(rows.to_arrow()).values.tolist() == [True, False, False]
    assert rp.Table({1: np.array([True, False])}, "or")[1].dtype == np.bool_
