"""Operations for reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ripieno._types import Combining, OpName
from ripieno.mpi.datatypes import Datatype


class Op:
    """A binary operation: `__call__` combines objects, `combine` combines buffers."""

    def __init__(
        self,
        name: str,
        on_objects: Callable[[Any, Any], Any],
        combine: OpName | Combining,
    ) -> None:
        self.name = name
        self._on_objects = on_objects
        #: The operation as `Communicator.allreduce` accepts it for arrays.
        self.combine = combine
        self._made_of: tuple[Callable[[Any, Any, Any], None], bool] | None = None

    def __call__(self, left: Any, right: Any) -> Any:
        return self._on_objects(left, right)

    @classmethod
    def Create(cls, function: Callable[[Any, Any, Any], None], commute: bool = False) -> Self:
        """Create an operation from ``function(in, inout, datatype)`` on memory; operands are in order of rank."""

        def combine(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
            result = np.ascontiguousarray(right).copy()
            given = np.ascontiguousarray(left)
            function(given.data.cast("B"), result.data.cast("B"), Datatype(left.dtype.str))
            return result

        made = cls(getattr(function, "__name__", "user"), function, combine)  # type: ignore[arg-type]
        made._made_of = (function, commute)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return (_predefined, (self.name,)) if self._made_of is None else (type(self).Create, self._made_of)

    def Free(self) -> None:
        """Do nothing: the operation is freed with its last reference."""

    def __repr__(self) -> str:
        return f"<Op {self.name}>"


def _located(is_better: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
    """Return a function that selects the better of two (value, location) pairs; ties select the smaller location."""

    def choose(left: Any, right: Any) -> Any:
        if left[0] == right[0]:
            return left if left[1] <= right[1] else right
        return left if is_better(left[0], right[0]) else right

    return choose


def _on_pairs(choose: Callable[[Any, Any], Any]) -> Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]:
    """Return `choose` for an array of alternating values and locations."""

    def combine(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
        axes = (-1,) if left.dtype.names else (-1, 2)
        pairs = zip(left.reshape(axes), right.reshape(axes), strict=True)
        return np.array([choose(*pair) for pair in pairs], left.dtype).reshape(left.shape)

    return combine


_LEAST = _located(lambda left, right: left < right)
_GREATEST = _located(lambda left, right: left > right)

SUM = Op("SUM", lambda left, right: left + right, "sum")
PROD = Op("PROD", lambda left, right: left * right, "prod")
MIN = Op("MIN", lambda left, right: left if left <= right else right, "min")
MAX = Op("MAX", lambda left, right: left if left >= right else right, "max")
BAND = Op("BAND", lambda left, right: left & right, "and")
BOR = Op("BOR", lambda left, right: left | right, "or")
BXOR = Op("BXOR", lambda left, right: left ^ right, "xor")
LAND = Op("LAND", lambda left, right: bool(left) and bool(right), np.logical_and)
LOR = Op("LOR", lambda left, right: bool(left) or bool(right), np.logical_or)
LXOR = Op("LXOR", lambda left, right: bool(left) != bool(right), np.logical_xor)
MINLOC = Op("MINLOC", _LEAST, _on_pairs(_LEAST))
MAXLOC = Op("MAXLOC", _GREATEST, _on_pairs(_GREATEST))

_PREDEFINED = {op.name: op for op in (SUM, PROD, MIN, MAX, BAND, BOR, BXOR, LAND, LOR, LXOR, MINLOC, MAXLOC)}


def _predefined(name: str) -> Op:
    return _PREDEFINED[name]
