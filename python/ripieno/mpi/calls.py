"""Variants of a buffer call: blocking, non-blocking and persistent."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from ripieno.mpi.requests import Prequest, Request


class Prepared(NamedTuple):
    """A call of `Communicator` on the values of parsed buffers.

    Attributes
    ----------
    method : str
        Name of the method; its asynchronous variant has the suffix "_async".
    arguments : tuple
        Its arguments.
    finish : callable
        Writes the result into the receive buffer.
    options : dict
        Its keyword arguments.
    """

    method: str
    arguments: tuple[Any, ...]
    finish: Callable[[Any], None]
    options: dict[str, Any]

    def run(self, comm: Any) -> None:
        """Make the call, and return when it is complete."""
        self.finish(getattr(comm, self.method)(*self.arguments, **self.options))

    def start(self, comm: Any) -> Request:
        """Start the call."""
        handle = getattr(comm, f"{self.method}_async")(*self.arguments, **self.options)

        def attempt(timeout_s: float | None, status: Any) -> tuple[bool, None]:
            if timeout_s is not None and not handle.done:
                return False, None
            self.finish(handle.wait())
            return True, None

        return Request(attempt)


#: A method that parses the buffers of a call.
Preparation = Callable[..., Prepared]


def variants(
    prepare: Preparation,
) -> tuple[Callable[..., None], Callable[..., Request], Callable[..., Prequest]]:
    """Return the blocking, the non-blocking and the persistent method of a call."""
    name = prepare.__name__.removeprefix("_")
    argument_count = len(inspect.signature(prepare).parameters) - 1

    @functools.wraps(prepare)
    def blocking(self: Any, *args: Any, **options: Any) -> None:
        prepare(self, *args, **options).run(self._comm)

    @functools.wraps(prepare)
    def starting(self: Any, *args: Any, **options: Any) -> Request:
        return prepare(self, *args, **options).start(self._comm)

    @functools.wraps(prepare)
    def persistent(self: Any, *args: Any, info: Any = None, **options: Any) -> Prequest:
        # MPI's last argument is `info`, which has no effect.
        args = args[:-1] if len(args) > argument_count else args
        return Prequest(lambda: prepare(self, *args, **options).start(self._comm))

    starting.__doc__ = f"Start `{name.capitalize()}`; the buffers must not change until the request is complete."
    persistent.__doc__ = f"Return a persistent request. Each start runs `{name.capitalize()}`."
    functions: tuple[Any, ...] = (blocking, starting, persistent)
    names = (name.capitalize(), f"I{name}", f"{name.capitalize()}_init")
    for function, public in zip(functions, names, strict=True):
        function.__name__ = public
        function.__qualname__ = f"Intracomm.{public}"
    return blocking, starting, persistent


def ignore(result: Any) -> None:
    """Discard a result."""
