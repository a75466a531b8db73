"""Damage bytes at random by a seed, as `ripieno-fuzz` does, for readers in Python."""

from __future__ import annotations

import random
from collections.abc import Sequence

BOUNDARY_NUMBERS = (0, 1, 2, 7, 0xFF, 0x7FFF, 0xFFFF, 1 << 24, 0x7FFFFFFF, 0xFFFFFFFF, (1 << 63) - 1, (1 << 64) - 1)
INSERTS = (
    b"\n",
    b" ",
    b"\t",
    b",",
    b":",
    b"-",
    b"0",
    b"1e999",
    b"nan",
    b"null",
    b'"',
    b"\0",
    b"{",
    b"[]",
    b"9" * 30,
)
DAMAGE_COUNT_MAX = 6


def damaged(valid: Sequence[bytes], seed: int) -> bytes:
    """Return one of the valid inputs, damaged."""
    chance = random.Random(seed)
    found = bytearray(chance.choice(valid))
    for _ in range(chance.randint(1, DAMAGE_COUNT_MAX)):
        _damage(found, valid, chance)
    return bytes(found)


def _damage(found: bytearray, valid: Sequence[bytes], chance: random.Random) -> None:
    at = chance.randint(0, len(found))
    end = at + chance.randint(0, min(64, len(found) - at))
    match chance.randrange(8):
        case 0 | 1 if at < len(found):
            found[at] ^= 1 << chance.randrange(8)
        case 2:
            width = chance.choice((1, 2, 4, 8))
            number = chance.choice(BOUNDARY_NUMBERS) & ((1 << 8 * width) - 1)
            found[at : at + width] = number.to_bytes(width, chance.choice(("little", "big")))
        case 3:
            del found[at:]
        case 4:
            del found[at:end]
        case 5:
            found[at:at] = found[at:end]
        case 6:
            found[at:at] = chance.choice(INSERTS)
        case _:
            other = chance.choice(valid)
            found[at:] = other[chance.randint(0, len(other)) :]
