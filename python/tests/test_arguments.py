"""Whole-number arguments of all methods: errors give name, value and expectation."""

from __future__ import annotations

import numpy as np
import pytest
import ripieno as rp

ONES = np.ones(1)

#: By method and parameter: the call with that argument, and whether 0 is a valid value in a world of one rank.
CALLS = {
    "broadcast root": (lambda c, n: c.broadcast(1, n), True),
    "reduce root": (lambda c, n: c.reduce(ONES, "sum", n), True),
    "gather root": (lambda c, n: c.gather(1, n), True),
    "scatter root": (lambda c, n: c.scatter([1], n), True),
    "send to": (lambda c, n: c.send(1, n), False),
    "send_into to": (lambda c, n: c.send_into(ONES, n), False),
    "recv source": (lambda c, n: c.recv(n), False),
    "rotate distance": (lambda c, n: c.rotate(1, n), True),
    "neighbour_exchange peer": (lambda c, n: c.neighbour_exchange({n: 1}), True),
    "allgather counts": (lambda c, n: c.allgather(ONES[:0], counts=[n]), True),
    "gather counts": (lambda c, n: c.gather(ONES[:0], counts=[n]), True),
    "scatter counts": (lambda c, n: c.scatter(ONES[:0], out=ONES[:0], counts=[n]), True),
    "reduce_scatter counts": (lambda c, n: c.reduce_scatter(ONES[:0], counts=[n]), True),
    "alltoall counts": (lambda c, n: c.alltoall(ONES[:0], counts=[n]), True),
    "alltoall out_counts": (lambda c, n: c.alltoall(ONES[:0], out=ONES[:0].copy(), out_counts=[n]), True),
    "split color": (lambda c, n: c.split(n), True),
    "split key": (lambda c, n: c.split(0, n), True),
    "replicate replicas": (lambda c, n: c.replicate(n), False),
    "sparse size": (lambda c, n: c.sparse([], [], size=n), True),
    "sparse degrees": (lambda c, n: c.sparse([0], [0], degrees=n), False),
    "sparse degrees of layers": (lambda c, n: c.sparse([0], [0], degrees=[n]), False),
    "flight count": (lambda c, n: c.flight(n), True),
    "measure_packets sizes": (lambda c, n: c.measure_packets([n]), False),
    "regroup memory_limit": (lambda c, n: c.regroup(rp.KeyValues([1]), memory_limit=n), False),
}

#: Valid values of other types.
VALID = {
    "split color": [None],
    "sparse size": [None],
    "sparse degrees": [None],
    "flight count": [None],
    "regroup memory_limit": [None],
}
INVALID = [
    1.5,
    0.0,
    True,
    None,
    "0",
    b"0",
    np.float64(0.0),
    np.array(0),
    np.array([0]),
    1j,
    [0],
    -(2**70),
    2**64,
    2**70,
]

#: Calls by the name of a parameter that is not a whole number.
OTHER_CALLS = {
    "op": [
        lambda c, w: c.allreduce(ONES, w),
        lambda c, w: c.allreduce(ONES, w, out=ONES),
        lambda c, w: c.reduce(ONES, w),
        lambda c, w: c.scan(ONES, w),
        lambda c, w: c.exscan(ONES, w),
        lambda c, w: c.reduce_scatter(ONES, w),
        lambda c, w: c.sparse_reduce([0], ONES, [0], w),
    ],
    "algorithm": [
        lambda c, w: c.broadcast(ONES, algorithm=w),
        lambda c, w: c.allreduce(ONES, algorithm=w),
        lambda c, w: c.allreduce(ONES, out=ONES, algorithm=w),
        lambda c, w: c.reduce(ONES, algorithm=w),
        lambda c, w: c.scan(ONES, algorithm=w),
        lambda c, w: c.exscan(ONES, algorithm=w),
        lambda c, w: c.allgather(ONES, algorithm=w),
        lambda c, w: c.gather(ONES, algorithm=w),
        lambda c, w: c.scatter([ONES], algorithm=w),
        lambda c, w: c.reduce_scatter(ONES, algorithm=w),
        lambda c, w: c.alltoall([ONES], algorithm=w),
        lambda c, w: c.rotate(ONES, algorithm=w),
        lambda c, w: c.neighbour_exchange({}, algorithm=w),
        lambda c, w: c.barrier(algorithm=w),
    ],
    "order": [
        lambda c, w: c.broadcast(ONES, order=w),
        lambda c, w: c.allreduce(ONES, order=w),
        lambda c, w: c.reduce(ONES, order=w),
        lambda c, w: c.allgather(ONES, order=w),
        lambda c, w: c.reduce_scatter(ONES, order=w),
    ],
    "missing": [lambda c, w: c.sparse([0], [0], missing=w)],
    "dense_above": [lambda c, w: c.sparse([0], [0], dense_above=w)],
    "budget_s": [lambda c, w: c.measure_packets(budget_s=w)],
    "counts": [lambda c, w: c.allgather(ONES, counts=w), lambda c, w: c.gather(ONES, counts=w)],
    "sizes_bytes": [lambda c, w: c.measure_packets(w)],
}


def same_values(left, right) -> bool:
    return type(left) is type(right) and repr(left) == repr(right)


def refuse_invalid_numbers(comm, name):
    call, is_zero_valid = CALLS[name]
    for value in INVALID:
        if any(same_values(value, valid) for valid in VALID.get(name, [])):
            continue
        if name == "sparse degrees" and isinstance(value, str | list | np.ndarray):
            continue
        if name == "neighbour_exchange peer" and isinstance(value, list | np.ndarray):
            continue  # unhashable, so no key of a dict
        with pytest.raises(rp.InputError, match="expected"):
            call(comm, value)
            raise AssertionError(f"{name}: {value!r} was accepted")
    if is_zero_valid:
        for zero in (0, np.int64(0), np.uint8(0)):
            call(comm, zero)


@pytest.mark.parametrize("name", CALLS)
def test_a_number_that_is_not_an_integer_or_out_of_range_is_reported(name, threads):
    threads(1, refuse_invalid_numbers, name)


def refuse_other_values(comm, name):
    for call in OTHER_CALLS[name]:
        for value in (1, 1.5 if name not in ("dense_above", "budget_s") else "x", b"ring", object(), "sideways"):
            if name in ("dense_above", "budget_s") and value == 1:
                continue
            with pytest.raises(rp.InputError, match=r"expected|rows for"):
                call(comm, value)
                raise AssertionError(f"{name}: {value!r} was accepted")


@pytest.mark.parametrize("name", OTHER_CALLS)
def test_an_unexpected_value_is_reported(name, threads):
    threads(1, refuse_other_values, name)


def layers(comm):
    return comm.sparse([0], [0], degrees=2).degrees, comm.sparse([0], [0], degrees=np.int64(2)).degrees


def test_a_single_degree_means_one_layer(threads):
    assert threads(2, layers) == [("2", "2")] * 2


def huge(comm):
    for counts in ([2**62, 2], [2, 2**62]):
        with pytest.raises(rp.InputError, match="counts"):
            comm.allgather(np.ones((2, 4)), counts=counts)


def test_counts_of_more_rows_than_memory_can_hold_are_reported(threads):
    threads(2, huge)
