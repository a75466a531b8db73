"""Reductions of Python integers are exact, or raise an error."""

from __future__ import annotations

import math

import numpy as np
import pytest
import ripieno as rp
from varied import exhaustively

# No int64 holds the sum of the first, and no uint64 the sum of the second.
LARGE = [2**62, 2**63, -(2**63), 2**64 + 12345, 2**70, -(2**71), -1, 0]


def sums_and_products(comm):
    p, rank = comm.world_size, comm.rank
    for number in LARGE:
        of_ranks = [number * (-1) ** each + each for each in range(p)]
        mine = of_ranks[rank]
        assert comm.allreduce(mine) == sum(of_ranks) and type(comm.allreduce(mine)) is int
        assert comm.allreduce_async(mine).wait() == sum(of_ranks)
        assert comm.reduce(mine, root=p - 1) == (sum(of_ranks) if rank == p - 1 else None)
        assert comm.scan(mine) == sum(of_ranks[: rank + 1])
        assert comm.exscan(mine) == sum(of_ranks[:rank])
        assert comm.allreduce(mine, "prod") == math.prod(of_ranks)
        assert comm.allreduce_async(mine, "prod").wait() == math.prod(of_ranks)
        assert comm.reduce(mine, "prod", root=p - 1) == (math.prod(of_ranks) if rank == p - 1 else None)
        assert comm.scan(mine, "prod") == math.prod(of_ranks[: rank + 1])
        assert comm.exscan(mine, "prod") == math.prod(of_ranks[:rank])


def in_lists_and_dicts(comm):
    p, rank = comm.world_size, comm.rank
    value = {"n": 2**62, "parts": [2**63, 1.5, np.arange(3), np.int8(100)], "is": True}
    total = comm.allreduce(value)
    assert total["n"] == p * 2**62 and total["parts"][0] == p * 2**63 and total["parts"][1] == 1.5 * p
    assert total["parts"][2].tolist() == [0, p, 2 * p] and (total["is"], type(total["is"])) == (p, int)
    assert total["parts"][3] == np.array(100 * p).astype(np.int8) and total["parts"][3].dtype == np.int8
    product = comm.allreduce({"n": 2**40, "parts": [2**41, 2.0, np.full(2, 3)], "is": True}, "prod")
    assert product["n"] == 2 ** (40 * p) and product["parts"][0] == 2 ** (41 * p) and product["is"] == 1
    assert product["parts"][1] == 2.0**p and product["parts"][2].tolist() == [3**p] * 2
    counts = comm.allreduce([rank == 0, np.bool_(True)])
    assert counts == [1, p] and [type(count) for count in counts] == [int, np.int64]


@pytest.mark.parametrize("program", [sums_and_products, in_lists_and_dicts])
@pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
def test_integers_are_added_and_multiplied_exactly(world, workers, program):
    world(workers).run(program)


def out_of_range(comm):
    before = comm.stats()["call_count"]
    for number in (2**72, -(2**72), 10**100):
        with pytest.raises(rp.InputError, match=f"allreduce: {number}: expected a whole number between"):
            comm.allreduce((1.0, number))
    for op in ("min", "max", "and", "or", "xor"):
        with pytest.raises(rp.InputError, match=r"9223372036854775808: expected -2\*\*63"):
            comm.allreduce(2**63, op)
        assert comm.stats()["call_count"] == before
    return comm.allreduce(2**63 - 1, "max"), comm.allreduce(-(2**63), "min")


def test_numbers_outside_the_range_of_an_operation_are_reported_before_anything_is_sent(world):
    assert world(2).run(out_of_range) == [(2**63 - 1, -(2**63))] * 2


def numpy_numbers(comm):
    with np.errstate(over="ignore"):
        assert comm.allreduce(np.int64(2**62)) == np.int64(-(2**63))
        assert comm.allreduce(np.array([2**62])).tolist() == [-(2**63)]


def test_numpy_numbers_keep_numpy_arithmetic(world):
    world(2).run(numpy_numbers)


def mixed_numbers(comm):
    def on_ranks(*values):
        return values[comm.rank % len(values)]

    def combined(*values, op="sum"):
        found = comm.allreduce(on_ranks(*values), op)
        assert found == comm.allreduce([on_ranks(*values)], op)[0] or found != found
        assert repr(found) == repr(comm.allreduce({"n": on_ranks(*values), "a": np.ones(2)}, op)["n"])
        return comm.allgather(repr(found))

    return [
        combined(0, 1.5, 2.25),
        combined(2**53 + 1, 0.0, 0),
        combined(True, 2, 1.0),
        combined(-0.0, -0.0),
        combined(False, 7, True, op="max"),
        combined(True, True, op="min"),
        combined(3, 2.5, -1, op="max"),
        combined(3, 2.5, -(2**63), op="min"),
        combined(-(2**63), -np.inf, -np.inf, op="max"),
        combined(1, np.nan, 2.0, op="max"),
        combined(1, np.nan, 2.0, op="min"),
        combined(-1.5, -2.5, -0.5, op="max"),
        combined(3, 0.5, 2, op="prod"),
        combined(2**70, 1e300, 2**70, op="prod"),
        [repr(comm.scan(on_ranks(1, 2, 0.5))), repr(comm.exscan(on_ranks(1, 2, 0.5)))],
        comm.reduce(on_ranks(1, np.float64(0.5), np.bool_(True))),
    ]


def test_whole_numbers_and_floats_of_different_ranks_are_combined_as_floats(world):
    found = world(3).run(mixed_numbers)
    results = ["3.75", repr(float(2**53 + 1)), "4.0", "-0.0", "7", "True", "3.0", repr(-(2.0**63)), repr(-(2.0**63))]
    results += ["nan", "nan", "-0.5", "3.0", "inf"]
    assert [found[0][at] for at in range(len(results))] == [[text] * 3 for text in results]
    assert [each[-2] for each in found] == [["1", "0"], ["3", "1"], ["3.5", "3"]]
    assert [each[-1] for each in found] == [2.5, None, None]


def types_of_products(comm):
    return [type(comm.exscan(value, "prod")) for value in (2.5, 2, True, np.float64(2.5), np.bool_(True))]


def test_the_identity_of_a_product_has_the_type_of_the_value(world):
    assert world(2).run(types_of_products) == [[float, int, int, np.float64, np.int64]] * 2
