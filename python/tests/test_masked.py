"""Masked arrays: every call that takes an array rejects masked elements."""

from __future__ import annotations

import numpy as np
import pytest
import ripieno as rp


def masked() -> np.ma.MaskedArray:
    return np.ma.MaskedArray([1.0, 2.0], mask=[False, True])


def reject_masked(comm):
    calls = {
        "allreduce": lambda: comm.allreduce(masked()),
        "allreduce of parts": lambda: comm.allreduce({"a": masked()}),
        "allreduce into": lambda: comm.allreduce(masked(), out=np.zeros(2)),
        "in place": lambda: comm.allreduce(masked(), out=masked()),
        "reduce": lambda: comm.reduce(masked()),
        "scan": lambda: comm.scan(masked()),
        "exscan": lambda: comm.exscan(masked()),
        "reduce-scatter": lambda: comm.reduce_scatter(masked()),
        "broadcast into": lambda: comm.broadcast(masked(), out=np.zeros(2)),
        "allgather into": lambda: comm.allgather(masked(), out=np.zeros(2 * comm.world_size)),
        "allgather of counts": lambda: comm.allgather(masked(), counts=[2] * comm.world_size),
        "gather": lambda: comm.gather(masked(), counts=[2] * comm.world_size),
        "scatter": lambda: comm.scatter(
            masked(), out=np.zeros(2 // comm.world_size), counts=[2 // comm.world_size] * comm.world_size
        ),
        "alltoall": lambda: comm.alltoall(masked(), out=np.zeros(2)),
        "rotate": lambda: comm.rotate(masked(), out=np.zeros(2)),
        "neighbors": lambda: comm.neighbour_exchange({0: masked()}, out={0: np.zeros(2)}),
        "sparse": lambda: comm.sparse_reduce([0, 1], masked(), [0]),
        "indices": lambda: comm.sparse(np.ma.MaskedArray([0, 1], mask=[0, 1]), [0]),
        "values": lambda: rp.KeyValues([1, 2], masked()),
        "keys": lambda: rp.KeyValues(np.ma.MaskedArray([0, 1], mask=[0, 1])),
        "table": lambda: rp.Table({1: masked()}),
    }
    for name, call in calls.items():
        with pytest.raises(rp.InputError, match="masked"):
            call()
            raise AssertionError(name)


def test_masked_values_are_reported_by_every_call(world):
    world(1).run(reject_masked)
