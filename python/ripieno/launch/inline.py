"""The job of a single rank: it runs in the calling process, with all its cores, and starts nothing."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from typing import Any

from ripieno import flight
from ripieno.comm import Communicator, describe
from ripieno.flight.trace import Trace
from ripieno.launch.here import standing_for
from ripieno.launch.job import EventListener, Job, tell_all
from ripieno.launch.racks import rack_of_this_host


class InlineJob(Job):
    """`workers=1`."""

    def __init__(self, *, threads: int, on_event: EventListener | None, trace: Trace | None, **options: Any) -> None:
        super().__init__(1, threads, trace, on_event)
        options |= {} if trace is None else {"flight_folder": trace.folder}
        self._comm = alone(threads=threads, on_event=partial(tell_all, self._listeners), **options)
        self._local: dict[str, Any] = {}

    def _run(self, program: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        try:
            with standing_for(self._local):
                return [program(self._comm, *args, **kwargs)]
        except BaseException as error:
            self._over = f"its program failed: {describe(error)[0]}"
            self._comm.close()
            self._finish_trace(failed=True)
            raise

    def _close(self) -> None:
        self._comm.close()


def alone(*, threads: int, on_event: EventListener | None = None, **options: Any) -> Communicator:
    """A communicator of one rank."""
    from ripieno import _native

    options["rack"] = rack_of_this_host(options.pop("racks", None))
    options = flight.prepared(options)
    native = _native.Communicator.connect(0, 1, lambda text: [text], token=secrets.token_bytes(32), **options)
    listener = None if on_event is None else lambda event: on_event({"rank": 0, **event})
    return Communicator(native, threads=threads, on_event=listener)
