"""Parsing of the buffers of `Alltoallw`: a type and a displacement in bytes for each rank."""

from __future__ import annotations

from typing import Any

from ripieno.errors import InputError
from ripieno.mpi.buffers import BufferArgument, numbers_of, octets_of
from ripieno.mpi.constants import BOTTOM
from ripieno.mpi.datatypes import typed
from ripieno.mpi.elements import Elements


def byte_blocks(given: Any, rank_count: int, call: str, *, is_written: bool = False) -> list[Elements]:
    """Return the elements of each rank in a buffer with counts, displacements and types.

    The forms are ``[memory, types]``, which sends one element of each type, ``[memory, (counts, displacements),
    types]`` and ``[memory, counts, displacements, types]``. A single count or displacement applies to all ranks.
    """
    if not isinstance(given, list | tuple) or not 2 <= len(given) <= 4:
        raise InputError(f"{call}: expected [memory, (counts, displacements), types]")
    memory, *rest, types = given
    counts, starts = rest[0] if len(rest) == 1 else rest or (None, None)
    octets = octets_of(None if memory is BOTTOM else memory, call, is_written=is_written)
    lists = (_for_each(counts, 1, rank_count, call), _for_each(starts, 0, rank_count, call), list(types))
    if any(len(each) != rank_count for each in lists):
        raise InputError(f"{call}: {[len(each) for each in lists]} counts, displacements and types: expected one each")
    return [_block(octets, *each, call) for each in zip(*lists, strict=True)]


def _for_each(given: Any, default: int, rank_count: int, call: str) -> list[int]:
    numbers = numbers_of(given, call)
    if isinstance(numbers, list):
        return numbers
    return [default if numbers is None else numbers] * rank_count


def _block(octets: Any, count: int, start: int, kind: Any, call: str) -> Elements:
    # A displacement beyond the memory is an error only if there are elements.
    whole = BufferArgument(call, octets, typed(kind).layout, count, 0)
    if count and not 0 <= start <= octets.size:
        raise InputError(f"{call}: displacement {start}: expected one within the {octets.size} bytes of the buffer")
    return whole._replace(memory=octets[start:] if count else octets[:0]).elements
