"""Errors that mypy must find in a user's program. If it misses one, the unused `type: ignore` is reported."""

from __future__ import annotations

import numpy as np
import ripieno as rp
from numpy.typing import NDArray


def program(comm: rp.Communicator, rows: NDArray[np.float64], *, rounds: int = 1) -> float:
    return comm.allreduce(float(rows.sum()) * rounds)


def launching(job: rp.Job, rows: NDArray[np.float64]) -> None:
    job.run(program)  # type: ignore[call-arg]
    job.run(program, "rows")  # type: ignore[arg-type]
    job.run(program, rows, round=2)  # type: ignore[call-arg]
    job.run(len)  # type: ignore[arg-type]
    job.run(program, rows).strip()  # type: ignore[attr-defined]
    rp.lunch(2)  # type: ignore[attr-defined]
    job.broadcast(3).value.strip()  # type: ignore[attr-defined]


def collectives(comm: rp.Communicator, rows: NDArray[np.float64]) -> None:
    comm.allreduce(3).strip()  # type: ignore[attr-defined]
    comm.allreduce_async(rows).sum()  # type: ignore[attr-defined]
    comm.reduce(3) + 1  # type: ignore[operator]
    comm.allreduce(rows, op="add")  # type: ignore[call-overload]
    comm.reduce_scatter(rows, op="plus")  # type: ignore[call-overload]
    comm.sparse_reduce([0], rows, [0], op="add")  # type: ignore[call-overload]
    comm.regroup(rp.KeyValues([1], [2]), combine="add")  # type: ignore[call-overload]
    comm.gather(rows, out=rows)  # type: ignore[call-overload]
    comm.scatter(rows, counts="all")  # type: ignore[arg-type]
    comm.broadcast(rows, out=[1.0])  # type: ignore[call-overload]
    comm.send(rows)  # type: ignore[call-arg]
    comm.sparse([0], [0], missing="ones")  # type: ignore[arg-type]
    comm.regroup(rp.KeyValues([1], [2]), combine="concat").combined()  # type: ignore[attr-defined]
