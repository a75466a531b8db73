"""Provide error agreement: bad input found by any rank, or a failed computation on rank 0, raises on all ranks."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import cloudpickle

from ripieno.comm.rank import describe
from ripieno.errors import InputError, RipienoError

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

R = TypeVar("R")


@contextmanager
def agreement(comm: Communicator, call: str = "a check of the input") -> Iterator[None]:
    """Raise an `InputError` of any rank on all ranks, so that all raise the error of the lowest such rank.

    All ranks pass the same text for the call and its options. Otherwise all raise `CollectiveMismatch`.
    """
    own = None
    try:
        yield
    except InputError as error:
        own = error if pickled_error(error) is not None else InputError(str(error))
    first = next((error for error in comm._allgather_values(call, own) if error is not None), None)
    if first is not None:
        raise first


def on_root(comm: Communicator, compute: Callable[[], R]) -> R:
    """Return the result of ``compute()`` on rank 0, on all ranks. If it raises an error, raise it on all ranks."""
    return shared_outcome(comm, outcome_on_root(comm, compute))


def outcome_on_root(comm: Communicator, compute: Callable[[], R]) -> R | Exception | None:
    """Return the result or the error of ``compute()`` on rank 0, and None on other ranks. No message is sent."""
    if comm.rank > 0:
        return None
    try:
        return compute()
    except Exception as error:
        if pickled_error(error) is not None:
            return error
        sendable = RipienoError(describe(error)[0])
        sendable.__cause__ = error
        return sendable


def shared_outcome(comm: Communicator, outcome: R | Exception | None) -> R:
    """Return rank 0's result on all ranks, or raise its error on all ranks."""
    found: R | Exception = comm.broadcast(outcome)
    if isinstance(found, Exception):
        raise found
    return found


def pickled_error(error: Exception) -> bytes | None:
    """Return the pickled error, or None if it cannot be pickled and unpickled."""
    try:
        pickled = cloudpickle.dumps(error)
    except Exception:
        return None
    # If the __init__ of an exception takes other arguments than its args, only unpickling fails.
    return pickled if unpickled_error(pickled) is not None else None


def unpickled_error(pickled: bytes) -> Exception | None:
    """Return the error that `pickled_error` returned as bytes, or None if this process cannot unpickle it."""
    try:
        error = pickle.loads(pickled)
    except Exception:
        return None
    return error if isinstance(error, Exception) else None
