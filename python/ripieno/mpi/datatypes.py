"""Datatypes: named types of elements, and types derived from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike

from ripieno.errors import InputError
from ripieno.mpi import constants
from ripieno.mpi.constants import ORDER_C, ORDER_FORTRAN
from ripieno.mpi.layouts import Layout, Piece, joined
from ripieno.mpi.unsupported import refusing

if TYPE_CHECKING:
    from ripieno.mpi.buffers import BufferArgument
    from ripieno.mpi.elements import Elements

#: Combiners with displacements in bytes.
_IN_BYTES = ("HVECTOR", "HINDEXED", "HINDEXED_BLOCK", "STRUCT", "RESIZED")
_ADDRESSES = ("stride", "displacements", "lb", "extent")


class DatatypeDefinition(NamedTuple):
    """A datatype's layout, and the constructor call that made it."""

    layout: Layout
    combiner: str
    arguments: dict[str, Any]
    parts: tuple[Datatype, ...] = ()

    @property
    def copies(self) -> list[Datatype]:
        """References to the parts, which the caller may free."""
        return [Datatype(part) for part in self.parts]


@refusing
class Datatype:
    """The type of an element: a named type, or a derived type, which describes elements at strides in memory.

    Parameters
    ----------
    datatype : Datatype, optional
        Another reference to this type is created. By default the null type.
    """

    _definition: DatatypeDefinition | None
    name: str

    def __new__(cls, datatype: Datatype | None = None) -> Self:
        if not isinstance(datatype, Datatype | None):
            raise TypeError(f"Datatype: a {type(datatype).__name__}: expected a Datatype; fromcode accepts codes")
        instance = object.__new__(cls)
        instance._definition = None if datatype is None else datatype._definition
        instance.name = "MPI_DATATYPE_NULL" if datatype is None else datatype.name
        return instance

    @classmethod
    def _of(cls, definition: DatatypeDefinition, name: str = "") -> Self:
        instance = object.__new__(cls)
        instance._definition, instance.name = definition, name
        return instance

    def __bool__(self) -> bool:
        return self._definition is not None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Datatype):
            return NotImplemented
        if self._definition is other._definition:
            return True
        return self.is_named and other.is_named and bool(self) and bool(other) and self.dtype == other.dtype

    def __hash__(self) -> int:
        return hash(self.dtype if self and self.is_named else id(self._definition))

    def __reduce__(self) -> tuple[Any, ...]:
        if self._is_constant:
            return _predefined, (self.name,)
        return (self._of, (self._definition, self.name)) if self else (type(self), ())

    def __repr__(self) -> str:
        return f"<Datatype {self.name or self.dtype}>"

    # Sizes

    @property
    def layout(self) -> Layout:
        """The layout of one element in memory."""
        return self._defined().layout

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's type of the values that one element consists of."""
        return self.layout.dtype

    def Get_size(self) -> int:
        """Return the number of bytes of the values of an element."""
        return self.layout.value_count * self.dtype.itemsize

    def Get_extent(self) -> tuple[int, int]:
        """Return the lower bound of an element, and the distance of two elements, in bytes."""
        return self.layout.lb, self.layout.extent

    def Get_true_extent(self) -> tuple[int, int]:
        """Return the first byte of the values of an element, and the number of bytes to the end of its last value."""
        low, high = self.layout.bounds
        return low, high - low

    @property
    def alignment(self) -> int:
        """Alignment of an element in bytes; 0 for a type of `Create_resized`, which sets the extent."""
        definition = self._defined()
        if definition.combiner == "RESIZED":
            return 0
        return _alignment(definition.parts) if definition.parts else self.dtype.alignment

    size = property(Get_size)
    lb = property(lambda self: self.layout.lb)
    extent = property(lambda self: self.layout.extent)
    ub = property(lambda self: self.layout.lb + self.layout.extent)
    true_lb = property(lambda self: self.layout.bounds[0])
    true_ub = property(lambda self: self.layout.bounds[1])
    true_extent = property(lambda self: self.Get_true_extent()[1])

    # Derived types

    def Dup(self) -> Datatype:
        """Return a type with the same layout."""
        return self._derived(self.layout, "DUP")

    Create_dup = Dup

    def Create_contiguous(self, count: int) -> Datatype:
        """Return the type of `count` consecutive elements."""
        return self._derived(self._blocks([0], [_count("count", count)]), "CONTIGUOUS", count=count)

    def Create_vector(self, count: int, blocklength: int, stride: int) -> Datatype:
        """Return the type of `count` blocks of elements; their starts are `stride` elements apart."""
        layout = self._vector(count, blocklength, stride * self.layout.extent)
        return self._derived(layout, "VECTOR", count=count, blocklength=blocklength, stride=stride)

    def Create_hvector(self, count: int, blocklength: int, stride: int) -> Datatype:
        """Return the type of `count` blocks of elements; their starts are `stride` bytes apart."""
        layout = self._vector(count, blocklength, stride)
        return self._derived(layout, "HVECTOR", count=count, blocklength=blocklength, stride=stride)

    def Create_indexed(self, blocklengths: Sequence[int], displacements: Sequence[int]) -> Datatype:
        """Return the type of blocks of these lengths, which start at displacements in elements."""
        starts = [each * self.layout.extent for each in displacements]
        arguments = {"blocklengths": list(blocklengths), "displacements": list(displacements)}
        return self._derived(self._blocks(starts, blocklengths), "INDEXED", **arguments)

    def Create_hindexed(self, blocklengths: Sequence[int], displacements: Sequence[int]) -> Datatype:
        """Return the type of blocks of these lengths, which start at displacements in bytes."""
        arguments = {"blocklengths": list(blocklengths), "displacements": list(displacements)}
        return self._derived(self._blocks(displacements, blocklengths), "HINDEXED", **arguments)

    def Create_indexed_block(self, blocklength: int, displacements: Sequence[int]) -> Datatype:
        """Return the type of blocks of equal length, which start at displacements in elements."""
        layout = self._blocks([each * self.layout.extent for each in displacements], [blocklength] * len(displacements))
        return self._derived(layout, "INDEXED_BLOCK", blocklength=blocklength, displacements=list(displacements))

    def Create_hindexed_block(self, blocklength: int, displacements: Sequence[int]) -> Datatype:
        """Return the type of blocks of equal length, which start at displacements in bytes."""
        layout = self._blocks(displacements, [blocklength] * len(displacements))
        return self._derived(layout, "HINDEXED_BLOCK", blocklength=blocklength, displacements=list(displacements))

    @classmethod
    def Create_struct(
        cls, blocklengths: Sequence[int], displacements: Sequence[int], datatypes: Sequence[Datatype]
    ) -> Datatype:
        """Return the type of blocks of different types, which start at displacements in bytes."""
        if not len(blocklengths) == len(displacements) == len(datatypes):
            raise InputError(
                f"Create_struct: {len(blocklengths)} blocklengths, {len(displacements)} displacements and "
                f"{len(datatypes)} datatypes: expected equal numbers"
            )
        blocks = zip(datatypes, displacements, blocklengths, strict=True)
        layout = joined(each._blocks([start], [length]) for each, start, length in blocks)
        # As in C, the next element of an array begins at an aligned address.
        alignment = _alignment(datatypes) or 1
        layout = layout._replace(extent=-(-layout.extent // alignment) * alignment)
        arguments = {"blocklengths": list(blocklengths), "displacements": list(displacements)}
        return cls._of(DatatypeDefinition(layout, "STRUCT", arguments, tuple(Datatype(each) for each in datatypes)))

    def Create_subarray(
        self, sizes: Sequence[int], subsizes: Sequence[int], starts: Sequence[int], order: int = ORDER_C
    ) -> Datatype:
        """Return the type of a block within an array of several axes; its extent covers the whole array."""
        if not len(sizes) == len(subsizes) == len(starts):
            given = f"sizes={sizes}, subsizes={subsizes}, starts={starts}"
            raise InputError(f"Create_subarray: {given}: expected equal lengths")
        if order not in (ORDER_C, ORDER_FORTRAN):
            raise InputError(f"Create_subarray: order={order}: expected ORDER_C or ORDER_FORTRAN")
        for size, subsize, start in zip(sizes, subsizes, starts, strict=True):
            if subsize < 0 or start < 0 or start + subsize > size:
                raise InputError(f"Create_subarray: {subsize} elements from {start} on: expected a part of {size}")
        axes = list(zip(sizes, subsizes, starts, strict=True))
        inner_last = axes if order == ORDER_C else axes[::-1]
        extent, offset = self.layout.extent, 0
        strides: list[int] = []
        for size, _, start in reversed(inner_last):
            strides.insert(0, extent)
            offset += start * extent
            extent *= size
        layout = self.layout.repeated([subsize for _, subsize, _ in inner_last], strides, offset)
        arguments = {"sizes": list(sizes), "subsizes": list(subsizes), "starts": list(starts), "order": order}
        return self._derived(layout._replace(lb=0, extent=extent), "SUBARRAY", **arguments)

    def Create_resized(self, lb: int, extent: int) -> Datatype:
        """Return the type with another lower bound and extent, in bytes."""
        return self._derived(self.layout._replace(lb=lb, extent=extent), "RESIZED", lb=lb, extent=extent)

    Resized = Create_resized

    def Commit(self) -> Self:
        """Return this type, which is ready for use."""
        self._defined()
        return self

    def Free(self) -> None:
        """Turn this reference into the null type."""
        self._defined()
        if self.is_predefined:
            raise InputError(f"Free: {self!r}: expected a derived type")
        self._definition, self.name = None, "MPI_DATATYPE_NULL"

    def free(self) -> None:
        """Turn this reference into the null type, unless it is one of the module's constants."""
        if not self._is_constant:
            self._definition, self.name = None, "MPI_DATATYPE_NULL"

    # Inspection

    @property
    def combiner(self) -> int:
        """The constructor that made the type: ``COMBINER_NAMED``, ``COMBINER_VECTOR``, …"""
        number: int = getattr(constants, f"COMBINER_{self._defined().combiner}")
        return number

    @property
    def is_named(self) -> bool:
        """Whether this is a named type."""
        return self._definition is None or self._definition.combiner == "NAMED"

    is_predefined = is_named

    def decode(self) -> tuple[Datatype, str, dict[str, Any]]:
        """Return the type that this type was derived from, the name of the constructor, and its arguments."""
        definition = self._defined()
        if definition.combiner == "NAMED":
            return self, "NAMED", {}
        if definition.combiner == "STRUCT":
            return Datatype(), "STRUCT", {**definition.arguments, "datatypes": definition.copies}
        return definition.copies[0], definition.combiner, dict(definition.arguments)

    def Get_contents(self) -> tuple[list[int], list[int], list[int], list[Datatype]]:
        """Return the arguments of the constructor: whole numbers, addresses, counts and types."""
        definition = self._defined()
        if definition.combiner == "NAMED":
            raise InputError(f"Get_contents: {self!r}: expected a derived type")
        numbers: list[int] = []
        addresses: list[int] = []
        lists = [value for value in definition.arguments.values() if isinstance(value, list)]
        if lists:
            numbers.append(len(lists[0]))
        for name, value in definition.arguments.items():
            is_address = definition.combiner in _IN_BYTES and name in _ADDRESSES
            (addresses if is_address else numbers).extend(value if isinstance(value, list) else [value])
        return numbers, addresses, [], definition.copies

    def Get_envelope(self) -> tuple[int, int, int, int, int]:
        """Return the numbers of arguments that `Get_contents` returns, and the combiner."""
        if self.is_named:
            return 0, 0, 0, 0, self.combiner
        numbers, addresses, counts, types = self.Get_contents()
        return len(numbers), len(addresses), len(counts), len(types), self.combiner

    contents, envelope = property(Get_contents), property(Get_envelope)

    def Get_name(self) -> str:
        """Return the name of the type."""
        return self.name

    def Set_name(self, name: str) -> None:
        """Set the name of the type."""
        self.name = name

    @classmethod
    def fromcode(cls, code: str) -> Datatype:
        """Return the named type for a type code of NumPy."""
        return typed(code, ValueError)

    def tocode(self) -> str:
        """Return NumPy's code of the type of the values."""
        if not self or self.dtype.names:
            raise InputError(f"tocode: {self!r}: expected a type with a code")
        return self.typechar

    @property
    def typechar(self) -> str:
        """NumPy's character for the type of the values; "V" for structures."""
        if not self.layout.is_plain:
            return "V"
        # "S" is a string without characters.
        return "c" if self.dtype == "S1" else self.dtype.char

    @property
    def typestr(self) -> str:
        """NumPy's code for the type of the values without byte order; "V" and the size for structures."""
        return self.dtype.str[1:] if self.layout.is_plain else f"V{self.extent}"

    # Packing

    def Pack(self, inbuf: Any, outbuf: Any, position: int, comm: Any) -> int:
        """Copy the whole elements of `inbuf` to byte `position` of `outbuf`, and return the position behind them."""
        from ripieno.mpi.buffers import buffer_of, octets_of

        given = self._whole_elements(buffer_of([inbuf, self], "Pack")).read().view(np.uint8)
        target = octets_of(outbuf, "Pack", is_written=True)
        _check_room("Pack", position, given.size, target.size)
        target[position : position + given.size] = given
        return position + given.size

    def Unpack(self, inbuf: Any, position: int, outbuf: Any, comm: Any) -> int:
        """Fill the whole elements of `outbuf` from byte `position` of `inbuf`, and return the position behind them."""
        from ripieno.mpi.buffers import incoming, octets_of

        into = self._whole_elements(incoming([outbuf, self], "Unpack"))
        source = octets_of(inbuf, "Unpack")
        _check_room("Unpack", position, into.nbytes, source.size)
        into.write(source[position : position + into.nbytes])
        return position + into.nbytes

    def Pack_size(self, count: int, comm: Any) -> int:
        """Return the number of bytes that `count` packed elements take."""
        return self.layout.value_count * self.dtype.itemsize * _count("count", count)

    def _whole_elements(self, buffer: BufferArgument) -> Elements:
        """Return the elements that fit into a buffer; a rest of its memory is not used."""
        if self.extent > 0:
            buffer = buffer._replace(counts=buffer.memory.nbytes // self.extent)
        return buffer.elements

    @property
    def _is_constant(self) -> bool:
        return _PREDEFINED.get(self.name) is self

    def _defined(self) -> DatatypeDefinition:
        if self._definition is None:
            raise InputError("datatype: DATATYPE_NULL: expected a type; a freed type is null")
        return self._definition

    def _derived(self, layout: Layout, combiner: str, **arguments: Any) -> Datatype:
        return Datatype._of(DatatypeDefinition(layout, combiner, arguments, (Datatype(self),)))

    def _vector(self, count: int, blocklength: int, stride_bytes: int) -> Layout:
        axes = (_count("count", count), _count("blocklength", blocklength))
        return self.layout.repeated(axes, (stride_bytes, self.layout.extent))

    def _blocks(self, starts: Sequence[int], lengths: Sequence[int]) -> Layout:
        if len(starts) != len(lengths):
            raise InputError(f"{len(lengths)} blocklengths and {len(starts)} displacements: expected equal numbers")
        blocks = zip(starts, lengths, strict=True)
        parts = [
            self.layout.repeated((_count("blocklength", length),), (self.layout.extent,), start)
            for start, length in blocks
        ]
        return joined(parts)._replace(dtype=self.dtype) if not any(each.pieces for each in parts) else joined(parts)


def _alignment(datatypes: Sequence[Datatype]) -> int:
    """Return the alignment of a structure; 0 if one of its types has an explicit extent."""
    each = [datatype.alignment for datatype in datatypes]
    return 0 if 0 in each else max(each, default=1)


#: Type codes that have another meaning in mpi4py than in NumPy.
_CODES = {"c": "S1", "S": "S1", "U": "U1", "p": "i8", "P": "u8"}

#: The named types, by their names in MPI and by NumPy's characters.
_PREDEFINED: dict[str, Datatype] = {}
_BY_CODE: dict[str, Datatype] = {}


def named(code: DTypeLike | None, name: str = "") -> Datatype:
    """Return a named type; with a name of MPI it becomes a predefined type, without a code the null type."""
    if code is None:
        instance = Datatype()
    else:
        dtype = np.dtype(code)
        layout = Layout(dtype, (Piece(0),), 0, dtype.itemsize)
        instance = Datatype._of(DatatypeDefinition(layout, "NAMED", {}), name or str(dtype))
        if name and not dtype.names:
            _BY_CODE.setdefault(dtype.char, instance)
    if name:
        _PREDEFINED[name] = instance
    return instance


def typed(given: str | Datatype, kind: type[Exception] = KeyError) -> Datatype:
    """Return a datatype for a datatype or a type code of NumPy. Raise `kind` for an unknown code."""
    if isinstance(given, Datatype):
        return given
    try:
        # NumPy accepts the character of code 0, too.
        dtype = np.dtype(_CODES.get(given, given)) if given.isprintable() else None
    except (TypeError, ValueError):
        dtype = None
    if dtype is None or not dtype.itemsize:
        raise kind(f"type code {given!r}: expected a code of NumPy, such as 'd' or 'i4'")
    return type_of(dtype)


def type_of(dtype: np.dtype[Any]) -> Datatype:
    """Return the datatype of NumPy's type, with the name of MPI if it has one."""
    found = _BY_CODE.get(dtype.char)
    return found if found is not None and found.dtype == dtype else named(dtype)


def _count(name: str, given: int) -> int:
    if given < 0:
        raise InputError(f"{name}={given}: expected 0 or more")
    return given


def _check_room(call: str, position: int, needed: int, size: int) -> None:
    if position < 0 or position + needed > size:
        raise InputError(f"{call}: {needed} bytes from {position} on: expected a part of a buffer of {size} bytes")


def _predefined(name: str) -> Datatype:
    return _PREDEFINED[name]
