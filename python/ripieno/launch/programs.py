"""What a rank does for its launcher, wherever it runs: it meets its peers, then runs the programs that come."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ripieno import flight
from ripieno.comm import Communicator
from ripieno.errors import CollectiveMismatch, SerializationError
from ripieno.launch.channel import Channel, HungUp
from ripieno.launch.racks import rack_of_this_host
from ripieno.launch.report import Report

# What ranks do together after a program. No program does the same, so those that still wait for one another are told.
_END = np.zeros(11, np.uint8)
_END_IS_CALLED = re.compile(r"called allreduce\(uint8 × 11, xor\b[^)]*\)(?: as its collective \d+)?")

Exchange = Callable[[str], list[str]]


class Source(Protocol):
    """Where programs come from and what they say goes to: a channel."""

    def send(self, kind: str, value: Any = None) -> None: ...

    def receive(self) -> tuple[str, Any]: ...


def through(channel: Channel) -> Exchange:
    """The exchange that the launcher at the other end of `channel` answers."""

    def exchange(text: str) -> list[str]:
        channel.send("exchange", text)
        kind, texts = channel.receive()
        assert kind == "exchange", "the launcher answers an exchange before anything else"
        return texts

    return exchange


def meet(
    rank: int,
    world_size: int,
    exchange: Exchange,
    *,
    threads: int,
    on_event: Callable[[dict[str, Any]], None],
    **options: Any,
) -> Communicator:
    """The communicator of this rank, once it has met the others; `options` are those of the native module."""
    from ripieno import _native

    options["rack"] = rack_of_this_host(options.pop("racks", None))
    native = _native.Communicator.connect(rank, world_size, exchange, **flight.prepared(options))
    return Communicator(native, threads=threads, on_event=on_event)


def serve(channel: Source, comm: Communicator, replicas: int = 1) -> None:
    """Run the programs that come over `channel` until it says that this is all; `HungUp` if it ends before."""
    # Of all ranks, whoever has died, where ranks have copies.
    together = comm if replicas == 1 else comm.replicate(replicas)
    channel.send("ready", comm.hosts[comm.rank])
    while True:
        try:
            work = _next(channel, comm)
            if work is None:
                return
            program, args, kwargs = work
            result = program(comm, *args, **kwargs)
            # A rank that still waits for this one learns here that it has finished.
            together.allreduce(_END, op="xor")
            _send_result(channel, comm, result)
        except HungUp:
            raise
        except BaseException as error:
            _fail(channel, comm, _in_terms_of_programs(error))
        sys.stdout.flush()
        sys.stderr.flush()


def _next(channel: Channel, comm: Communicator) -> Any:
    """The next program with its arguments, or None if there is none."""
    kind, value = channel.receive()
    return None if kind == "close" else value


def _send_result(channel: Channel, comm: Communicator, result: Any) -> None:
    try:
        channel.send("result", result)
    except SerializationError as error:
        message = f"the result of rank {comm.rank}, a {type(result).__name__}, cannot be sent: {error}"
        raise SerializationError(message) from None


def _in_terms_of_programs(error: BaseException) -> BaseException:
    """An error that names what ranks do together after a program says instead that they have returned from it."""
    if isinstance(error, CollectiveMismatch):
        error.args = tuple(_END_IS_CALLED.sub("has returned from its program", str(each)) for each in error.args)
    return error


def _fail(channel: Channel, comm: Communicator, error: BaseException) -> None:
    report = Report.of(error, comm.rank, comm.hosts[comm.rank]).told_to_all(comm)
    sys.stdout.flush()
    channel.send("error", report)
