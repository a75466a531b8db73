"""Provide benchmark cases: collectives, sizes, and lower bounds of the bytes moved by links and memory.

"Bytes" of a case are the vector of broadcast, reduce, allreduce and reduce-scatter, the block of one rank of allgather,
gather and scatter, and all bytes that one rank sends in alltoall.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from ripieno.bench.programs.timing import COLLECTIVES, ELEMENT_BYTES
from ripieno.errors import InputError
from ripieno.host import memory_limit_bytes
from ripieno.launch.limits import check_memory

#: Factor between the sizes of a range.
STEP = 8
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@dataclass(frozen=True)
class BenchCase:
    """One collective at one size.

    Parameters
    ----------
    collective
        One of `COLLECTIVES`.
    size_bytes
        Size in bytes, counted as the module describes.
    algorithm
        Algorithm of Ripieno; None for the default choice.
    """

    collective: str
    size_bytes: int
    algorithm: str | None = None

    @property
    def name(self) -> str:
        """Return ``allreduce=ring``, or ``allreduce`` for the default choice."""
        return self.collective if self.algorithm is None else f"{self.collective}={self.algorithm}"

    @property
    def word(self) -> str:
        """Return the case as a command-line argument of the programs: ``allreduce=ring:1048576``."""
        return f"{self.name}:{self.size_bytes}"


def collectives_of(text: str) -> list[str]:
    """Parse ``allreduce,broadcast`` or ``all`` into names.

    Raises
    ------
    InputError
        If one is unknown.
    """
    names = list(COLLECTIVES) if text == "all" else [name.strip().replace("_", "-") for name in text.split(",")]
    for name in names:
        if name not in COLLECTIVES:
            raise InputError(f"collective {name!r}: expected all, or some of {', '.join(COLLECTIVES)}")
    return list(dict.fromkeys(names))


def sizes_of(text: str) -> list[int]:
    """Parse sizes in bytes, ascending: ``8B:64MiB`` in steps of a factor of 8, with both ends; or ``1KiB,1MB``.

    Raises
    ------
    InputError
        If the text has neither form.
    """
    if ":" not in text:
        return sorted({size_of(part) for part in text.split(",")})
    ends = [size_of(part) for part in text.split(":")]
    if len(ends) != 2 or ends[0] > ends[1]:
        raise InputError(f"sizes {text!r}: expected two, the smaller first, such as 8B:64MiB")
    sizes = [ends[0]]
    while sizes[-1] * STEP < ends[1]:
        sizes.append(sizes[-1] * STEP)
    return sizes if sizes[-1] == ends[1] else [*sizes, ends[1]]


def size_of(text: str) -> int:
    """Parse ``64KiB`` or ``6.2MB`` into bytes.

    Raises
    ------
    InputError
        If the text is not a size, or not a multiple of a float32.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    unit = _UNITS.get(match[2] or "B") if match else None
    if match is None or unit is None:
        raise InputError(f"size {text!r}: expected a number and one of {', '.join(_UNITS)}, such as 64KiB")
    size = Fraction(match[1]) * unit
    if size == 0 or size % ELEMENT_BYTES:
        raise InputError(f"size {text!r}: expected a positive multiple of {ELEMENT_BYTES} bytes, of whole float32")
    return int(size)


def check_sizes(collectives: Sequence[str], sizes: Sequence[int], world_size: int) -> None:
    """Raise InputError if ranks of this machine, or their vectors, exceed its memory."""
    check_memory(world_size)
    blocks = world_size if {"allgather", "gather", "scatter"}.intersection(collectives) else 1
    limit_bytes = memory_limit_bytes() // (world_size * blocks)
    if max(sizes) > limit_bytes:
        raise InputError(
            f"size {max(sizes)}: expected at most {limit_bytes} bytes, because the vectors of {world_size} ranks must "
            "fit into the memory of this machine"
        )


def world_sizes_of(text: str) -> list[int]:
    """Parse ``2,4,8`` into numbers of ranks.

    Raises
    ------
    InputError
        If one of them is not a number above 1.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 1 for part in parts):
        raise InputError(f"ranks {text!r}: expected numbers of at least 2, such as 2,4,8")
    return [int(part) for part in parts]


def wire_bytes(collective: str, size_bytes: int, world_size: int) -> float:
    """Return the minimum bytes in the busiest direction of a host's network link, with one rank per host."""
    others = world_size - 1
    factors = {
        "broadcast": 1.0,
        "reduce": 1.0,
        "allreduce": 2 * others / world_size,
        "reduce-scatter": others / world_size,
        "allgather": others,
        "gather": others,
        "scatter": others,
        "alltoall": others / world_size,
        "barrier": 0.0,
    }
    return factors[collective] * size_bytes


def memory_work(collective: str, world_size: int) -> tuple[float, float]:
    """Return the minimum number of vectors that all ranks together must add, and must copy."""
    others = float(world_size - 1)
    return {
        "broadcast": (0.0, others),
        "reduce": (others, 0.0),
        "allreduce": (others, others),
        "reduce-scatter": (others, 0.0),
        "allgather": (0.0, others * world_size),
        "gather": (0.0, others),
        "scatter": (0.0, others),
        "alltoall": (0.0, others),
        "barrier": (0.0, 0.0),
    }[collective]


def cases_of(collectives: Sequence[str], sizes: Sequence[int], algorithm: str | None = None) -> list[BenchCase]:
    """Return every collective at every size. A barrier has one size, the smallest element."""
    return [
        BenchCase(collective, size, algorithm)
        for collective in collectives
        for size in ((ELEMENT_BYTES,) if collective == "barrier" else sizes)
    ]
