"""Provide `agreement`: bad input that one rank finds is raised on every rank, with the same message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ripieno.errors import InputError

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator


@contextmanager
def agreement(comm: Communicator, call: str = "a check of the input") -> Iterator[None]:
    """Raise an `InputError` of any rank on all ranks, so that all stop with the message of the lowest such rank.

    All ranks pass the same text for the call and its options. Otherwise all raise `CollectiveMismatch`.
    """
    message = None
    try:
        yield
    except InputError as error:
        message = str(error)
    first = next((text for text in comm._allgather_values(call, message) if text is not None), None)
    if first is not None:
        raise InputError(first)
