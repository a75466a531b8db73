"""Operations for reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ripieno._types import Combining, OpName
from ripieno.errors import InputError
from ripieno.mpi.buffer import buffer
from ripieno.mpi.datatypes import Datatype
from ripieno.mpi.elements import Elements
from ripieno.mpi.unsupported import refusing


class OperationDefinition(NamedTuple):
    """The name and the functions of an operation.

    Attributes
    ----------
    name : str
    on_objects : callable
        Combines two objects.
    combine : str or callable, optional
        Combines arrays, as for `Communicator.allreduce`; None for a function of the program.
    made_of : tuple, optional
        The function of the program, and the other argument of `Op.Create`.
    """

    name: str
    on_objects: Callable[[Any, Any], Any]
    combine: OpName | Combining | None
    made_of: tuple[Callable[[Any, Any, Any], Any], bool] | None = None


#: Functions on arrays in place of named operations.
_ON_LONG: dict[str, Combining] = {
    "sum": lambda left, right: left + right,
    "prod": lambda left, right: left * right,
    "min": lambda left, right: np.minimum(left, right),
    "max": lambda left, right: np.maximum(left, right),
}


#: The named operations within a process.
_LOCAL: dict[str, Combining] = {
    **_ON_LONG,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


@refusing
class Op:
    """A binary operation: `__call__` combines objects, `on_values` prepares reductions of buffers.

    Parameters
    ----------
    op : Op, optional
        Another reference to this operation is created. By default the operation is null.
    """

    _definition: OperationDefinition | None

    def __new__(cls, op: Op | None = None) -> Self:
        if not isinstance(op, Op | None):
            raise TypeError(f"Op: a {type(op).__name__}: expected an operation; Op.Create accepts functions")
        instance = object.__new__(cls)
        instance._definition = None if op is None else op._definition
        return instance

    @classmethod
    def _of(cls, definition: OperationDefinition) -> Self:
        instance = cls()
        instance._definition = definition
        return instance

    @property
    def name(self) -> str:
        """The name of the operation."""
        return "OP_NULL" if self._definition is None else self._definition.name

    @property
    def combine(self) -> OpName | Combining | None:
        """The operation as `Communicator.allreduce` accepts it for arrays; None for a function of the program."""
        return self._defined().combine

    def on_values(self, values: NDArray[Any], datatype: Datatype) -> tuple[NDArray[Any], OpName | Combining]:
        """Return the values of elements of a datatype, and the operation, as `Communicator.allreduce` accepts them.

        Reductions never split a row: an element of a derived type for a function of the program, or a pair of a value
        and a location.
        """
        combine = self.combine
        if combine is None:
            value_count = datatype.layout.value_count
            rows = values.reshape(-1, value_count) if value_count > 1 else values
            return rows, _on_elements(self, datatype)
        if self.name in ("MINLOC", "MAXLOC") and not values.dtype.names:
            if values.size % 2:
                raise InputError(f"{self.name}: {values.size} elements: expected pairs of a value and a location")
            return values.reshape(-1, 2), combine
        if isinstance(combine, str) and values.dtype.char in "gG":
            # The native module does not have C's long double, and refuses its bitwise operations.
            return values, _ON_LONG.get(combine, combine)
        return values, combine

    @property
    def is_predefined(self) -> bool:
        """Whether this is an operation of MPI."""
        return self._definition is None or self._definition.made_of is None

    @property
    def is_commutative(self) -> bool:
        """Whether the operands may be exchanged."""
        made_of = self._defined().made_of
        return self.name not in ("REPLACE", "NO_OP") if made_of is None else made_of[1]

    def Is_commutative(self) -> bool:
        """Return whether the operands may be exchanged."""
        return self.is_commutative

    def __call__(self, left: Any, right: Any) -> Any:
        return self._defined().on_objects(left, right)

    def __bool__(self) -> bool:
        return self._definition is not None

    def __eq__(self, other: object) -> bool:
        return self._definition is other._definition if isinstance(other, Op) else NotImplemented

    def __hash__(self) -> int:
        return id(self._definition)

    @classmethod
    def Create(cls, function: Callable[[Any, Any, Any], None], commute: bool = False) -> Self:
        """Create an operation from ``function(in, inout, datatype)``; operands are in order of rank.

        Both are memory of one or more elements of the datatype, at its extent.
        """

        def on_objects(left: Any, right: Any) -> Any:
            return function(left, right, None)

        name = getattr(function, "__name__", "user")
        return cls._of(OperationDefinition(name, on_objects, None, (function, commute)))

    def Reduce_local(self, inbuf: Any, inoutbuf: Any) -> None:
        """Combine two buffers of this process into the second one."""
        from ripieno.mpi.buffers import buffer_of, incoming

        source = buffer_of(inbuf, "Reduce_local")
        given, into = source.elements.read(), incoming(inoutbuf, "Reduce_local").elements
        if given.dtype != into.dtype or given.size != into.size:
            sizes = f"{given.size} elements of {given.dtype} and {into.size} of {into.dtype}"
            raise InputError(f"Reduce_local: {sizes}: expected equal numbers of one type")
        rows, combine = self.on_values(given, source.datatype)
        function = _LOCAL[combine] if isinstance(combine, str) else combine
        into.write(np.asarray(function(rows, into.read().reshape(rows.shape))).astype(into.dtype, copy=False))

    def Free(self) -> None:
        """Turn this reference into the null operation."""
        if self.is_predefined:
            raise InputError(f"Free: {self!r}: expected an operation of Op.Create")
        self._definition = None

    def free(self) -> None:
        """Turn this reference into the null operation, unless it is one of the module's constants."""
        if _PREDEFINED.get(self.name) is not self:
            self._definition = None

    def __reduce__(self) -> Any:
        if self._definition is None or self._definition.made_of is None:
            return self.name if _PREDEFINED[self.name] is self else (_copied, (type(self), self.name))
        return type(self).Create, self._definition.made_of

    def _defined(self) -> OperationDefinition:
        if self._definition is None:
            raise InputError("operation: OP_NULL: expected an operation; a freed operation is null")
        return self._definition

    def __repr__(self) -> str:
        return f"<Op {self.name}>"


def _on_elements(op: Op, datatype: Datatype) -> Combining:
    """Return the function of an operation of the program, for rows with the values of an element each."""
    assert op._definition is not None and op._definition.made_of is not None, "on_values has checked the operation"
    function, layout = op._definition.made_of[0], datatype.layout
    if layout.bounds[0] < 0:
        raise InputError(f"{op.name}: {datatype!r} with values before its first byte: expected none, or a named type")

    def memory_of(rows: NDArray[Any]) -> tuple[NDArray[np.uint8], Elements]:
        size = max(layout.extent * (len(rows) - 1) + layout.bounds[1], layout.extent * len(rows))
        memory = np.zeros(size, np.uint8)
        elements = Elements(op.name, layout.views(memory, 0, len(rows)), rows.dtype)
        elements.write(rows)
        return memory, elements

    def combine(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
        if not right.size:
            return right.copy()
        given, (memory, result) = memory_of(left)[0], memory_of(right)
        function(buffer.frombuffer(given), buffer.frombuffer(memory), datatype)
        return result.read().reshape(right.shape)

    return combine


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


def _op(name: str, on_objects: Callable[[Any, Any], Any], combine: OpName | Combining) -> Op:
    return Op._of(OperationDefinition(name, on_objects, combine))


SUM = _op("SUM", lambda left, right: left + right, "sum")
PROD = _op("PROD", lambda left, right: left * right, "prod")
MIN = _op("MIN", lambda left, right: left if left <= right else right, "min")
MAX = _op("MAX", lambda left, right: left if left >= right else right, "max")
BAND = _op("BAND", lambda left, right: left & right, "and")
BOR = _op("BOR", lambda left, right: left | right, "or")
BXOR = _op("BXOR", lambda left, right: left ^ right, "xor")
LAND = _op("LAND", lambda left, right: bool(left) and bool(right), np.logical_and)
LOR = _op("LOR", lambda left, right: bool(left) or bool(right), np.logical_or)
LXOR = _op("LXOR", lambda left, right: bool(left) != bool(right), np.logical_xor)
MINLOC = _op("MINLOC", _LEAST, _on_pairs(_LEAST))
MAXLOC = _op("MAXLOC", _GREATEST, _on_pairs(_GREATEST))
REPLACE = _op("REPLACE", lambda left, right: right, lambda left, right: right)
NO_OP = _op("NO_OP", lambda left, right: left, lambda left, right: left)
OP_NULL = Op()

_OPS = (SUM, PROD, MIN, MAX, BAND, BOR, BXOR, LAND, LOR, LXOR, MINLOC, MAXLOC, REPLACE, NO_OP, OP_NULL)
_PREDEFINED = {op.name: op for op in _OPS}


def _copied(cls: type[Op], name: str) -> Op:
    return cls(_PREDEFINED[name])
