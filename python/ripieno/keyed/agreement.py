"""Check that ranks make the same call: each rank sends a text of its call along with the data."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripieno.errors import CollectiveMismatch
from ripieno.keyed.columns import KeyedSchema
from ripieno.wire import objects


def check(texts: Sequence[str]) -> None:
    """Raise unless all ranks sent the same text; `texts` has one text per rank.

    Raises
    ------
    CollectiveMismatch
        The text of each rank.
    """
    ranks: dict[str, list[str]] = {}
    for rank, text in enumerate(texts):
        ranks.setdefault(text, []).append(str(rank))
    if len(ranks) > 1:
        parts = [f"{'rank' if len(same) == 1 else 'ranks'} {', '.join(same)}: {text}" for text, same in ranks.items()]
        raise CollectiveMismatch(f"ranks differ: {'; '.join(parts)}: expected the same on every rank")


def common_schema(call: str, schemas: Sequence[tuple[KeyedSchema, int]]) -> KeyedSchema:
    """Return the common schema of all ranks' rows, from the schema and row count of each rank.

    A rank without rows takes the schema of the others. If no rank has rows, all take the schema of rank 0.

    Raises
    ------
    CollectiveMismatch
        Ranks have rows of different schemas.
    """
    filled: list[KeyedSchema] = [schema for schema, count in schemas if count] or [schemas[0][0]]
    if any(schema != filled[0] for schema in filled):
        check([call_text(call, schema, count) for schema, count in schemas])
    return filled[0]


def call_text(call: str, schema: KeyedSchema, row_count: int) -> str:
    """Describe a call with rows as text."""
    return f"{call} of {schema if row_count else 'no rows'}"


def numbers(native: Any, call: str, mine: Sequence[int]) -> NDArray[np.int64]:
    """Return some numbers of each rank, shape (world_size, n). All must make the same call.

    Cost: an allgather of 8·(n + 1) bytes per rank.

    Raises
    ------
    CollectiveMismatch
        On every rank: ranks make different calls.
    """
    rows = np.zeros((native.world_size, len(mine) + 1), np.int64)
    rows[native.rank] = text_hash(call), *mine
    task = ("allgather", [rows.shape[1]] * native.world_size)
    native.collective(task, rows.reshape(-1), None, call.partition(",")[0])
    if (rows[:, 0] != rows[0, 0]).any():
        check(objects.allgather(native, call, None))
    return rows[:, 1:]


def text_hash(text: str) -> int:
    """Return a 63-bit hash of a text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
