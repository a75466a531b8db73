"""What one rank finds wrong with its share of the input is told on all, in the same words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ripieno.errors import InputError

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator


@contextmanager
def agreement(comm: Communicator, call: str = "a look at the input") -> Iterator[None]:
    """Make bad input that one worker finds known to all, so that all stop and the first finder's words are told.

    All ranks name the call, with its options, in the same words: otherwise it raises `CollectiveMismatch` on all.
    """
    message = None
    try:
        yield
    except InputError as error:
        message = str(error)
    first = next((text for text in comm._said_by_all(call, message) if text is not None), None)
    if first is not None:
        raise InputError(first)
