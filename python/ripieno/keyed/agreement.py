"""Check that ranks make the same call, with texts that they send along with the data."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ripieno.errors import CollectiveMismatch
from ripieno.keyed.columns import KeyedForm
from ripieno.wire import objects


def check(said: Sequence[str]) -> None:
    """Raise unless all ranks sent the same text; `said` has one text per rank.

    Raises
    ------
    CollectiveMismatch
        The text of each rank.
    """
    ranks: dict[str, list[str]] = {}
    for rank, text in enumerate(said):
        ranks.setdefault(text, []).append(str(rank))
    if len(ranks) > 1:
        parts = [f"{'rank' if len(who) == 1 else 'ranks'} {', '.join(who)}: {text}" for text, who in ranks.items()]
        raise CollectiveMismatch(f"ranks differ: {'; '.join(parts)}: expected the same on every rank")


def common_form(call: str, said: Sequence[tuple[KeyedForm, int]]) -> KeyedForm:
    """Return the common form of all ranks' rows, from the form and row count of each rank.

    A rank without rows takes the form of the others. If no rank has rows, all take the form of rank 0.

    Raises
    ------
    CollectiveMismatch
        Ranks have rows of different forms.
    """
    filled: list[KeyedForm] = [form for form, count in said if count] or [said[0][0]]
    if any(form != filled[0] for form in filled):
        check([described(call, form, count) for form, count in said])
    return filled[0]


def described(call: str, form: KeyedForm, row_count: int) -> str:
    """Describe a call with rows as text."""
    return f"{call} of {form if row_count else 'no rows'}"


def is_same_layout(native: Any, call: str, layout: str) -> bool:
    """Return whether all ranks have the same layout. All must make the same call. Cost: an allreduce of 32 bytes.

    Raises
    ------
    CollectiveMismatch
        On every rank: ranks make different calls.
    """
    call_mark, layout_mark = _mark(call), _mark(layout)
    marks = np.array([call_mark, -call_mark, layout_mark, -layout_mark])
    native.allreduce(marks, "min", None, "what tables are")
    if marks[0] != -marks[1]:
        check(objects.allgather(native, call, None))
    return bool(marks[2] == -marks[3])


def _mark(text: str) -> int:
    """Return a 63-bit hash of a text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
