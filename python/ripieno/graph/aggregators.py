"""Provide aggregators: active vertices contribute in a superstep, and all ranks read the result in the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno._types import OpName
from ripieno.errors import InputError
from ripieno.graph.columns import of_type
from ripieno.wire.arrays import identity, reducible
from ripieno.wire.operations import OPS, PAIRWISE, named, text_of

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator


class Aggregators:
    """Named numbers or arrays that combine the contributions of all ranks, and are reset in every superstep.

    Parameters
    ----------
    forms : dict of str to op, or to (op, zero)
        ``zero`` has the dtype and shape of a contribution; by default a float64, and a bool with and, or, xor.

    Attributes
    ----------
    results : dict of str to number or array
        Results of the last superstep. Before the first, and without contributions: the identity of the operation.
    """

    def __init__(self, forms: Mapping[str, Any]) -> None:
        self._ops: dict[str, OpName] = {}
        self._parts: dict[str, NDArray[Any]] = {}
        for name, form in forms.items():
            op, zero = form if isinstance(form, tuple) and len(form) == 2 else (form, None)
            op = named(op)
            if op not in OPS:
                raise InputError(f"aggregator {name!r}: op={text_of(op)}, expected one of {', '.join(OPS)}")
            if zero is None:
                zero = np.zeros((), np.bool_ if op in ("and", "or", "xor") else np.float64)
            like = reducible(np.asarray(zero), op, f"aggregator {name!r}")
            self._ops[name], self._parts[name] = op, np.full(like.shape, identity(op, like.dtype), like.dtype)
        self.results: dict[str, Any] = {name: part[()] for name, part in self._parts.items()}
        self._identities = {name: part.copy() for name, part in self._parts.items()}

    def __str__(self) -> str:
        parts = ((name, self._ops[name], part) for name, part in self._parts.items())
        return "{" + ", ".join(f"{name!r}: {op} of {part.dtype} {part.shape}" for name, op, part in parts) + "}"

    def add(self, name: str, contributions: Any) -> None:
        """Combine a contribution in the form of the aggregator, or all rows of such contributions, into it."""
        if name not in self._parts:
            raise InputError(f"aggregator {name!r}: expected one of {', '.join(map(repr, self._parts)) or 'none'}")
        part = self._parts[name]
        rows = of_type(contributions, part.dtype, f"aggregator {name!r}")
        if rows.shape == part.shape:
            rows = rows[None]
        elif rows.shape[1:] != part.shape or rows.ndim != part.ndim + 1:
            raise InputError(f"aggregator {name!r}: shape {rows.shape}, expected {part.shape} or rows of it")
        ufunc = PAIRWISE[self._ops[name]].on_arrays
        combined = ufunc.reduce(rows, axis=0, dtype=part.dtype, initial=self._identities[name].flat[0])
        self._parts[name] = ufunc(part, combined, dtype=part.dtype)

    def finish(self, comm: Communicator, counts: Sequence[int]) -> list[int]:
        """Combine the parts of all ranks into `results`, reset the parts, and return the sums of `counts`.

        One allreduce carries the counts and all summed aggregators.
        """
        by_op: dict[OpName, dict[str, Any]] = {"sum": {}}
        for name, op in self._ops.items():
            by_op.setdefault(op, {})[name] = self._parts[name]
        sums, total = comm.allreduce((by_op.pop("sum"), np.array(counts, np.int64)))
        combined = dict(sums)
        for op, parts in by_op.items():
            combined |= comm.allreduce(parts, op)
        self.results = {name: combined[name][()] for name in self._ops}
        self._parts = {name: part.copy() for name, part in self._identities.items()}
        totals: list[int] = total.tolist()
        return totals
