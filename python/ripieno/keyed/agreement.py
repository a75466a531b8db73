"""Ranks find out that they mean the same before anything of size is sent.

Cost: an allreduce of 32 bytes; another small collective if ranks differ.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from ripieno.errors import CollectiveMismatch
from ripieno.keyed.columns import Form
from ripieno.wire import objects


def agree(native: Any, call: str, layout: str) -> bool:
    """Whether all ranks have the same layout; they have to make the same call.

    Raises
    ------
    CollectiveMismatch
        On every rank: ranks make other calls.
    """
    call_mark, layout_mark = _mark(call), _mark(layout)
    marks = np.array([call_mark, -call_mark, layout_mark, -layout_mark])
    native.allreduce(marks, "min", None, "what key-values and tables are")
    if marks[0] != -marks[1]:
        refuse(objects.allgather(native, call, None))
    return bool(marks[2] == -marks[3])


def common_form(native: Any, call: str, form: Form, row_count: int) -> Form:
    """The form of all ranks' rows; a rank without rows takes that of the others, rank 0's if nobody has any.

    Raises
    ------
    CollectiveMismatch
        On every rank: ranks make other calls, or have rows of other forms.
    """
    if agree(native, call, str(form)):
        return form
    said = objects.allgather(native, (form, row_count), None)
    filled: list[Form] = [form for form, count in said if count] or [said[0][0]]
    if any(form != filled[0] for form in filled):
        refuse([f"{call} of {form if count else 'no rows'}" for form, count in said])
    return filled[0]


def refuse(said: list[str]) -> None:
    """`CollectiveMismatch`, with who said what."""
    ranks: dict[str, list[str]] = {}
    for rank, text in enumerate(said):
        ranks.setdefault(text, []).append(str(rank))
    parts = [f"{'rank' if len(who) == 1 else 'ranks'} {', '.join(who)}: {text}" for text, who in ranks.items()]
    raise CollectiveMismatch("ranks differ: " + "; ".join(parts))


def _mark(text: str) -> int:
    """63 bits that differ where texts do."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
