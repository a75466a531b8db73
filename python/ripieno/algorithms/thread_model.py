"""The thread model of a fit: fork-join, or threads that are busy from start to end."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import ripieno.kernels as kernels

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

Program = TypeVar("Program", bound=Callable[..., Any])


def in_thread_model(program: Program) -> Program:
    """Run a whole worker program, `program(comm, source, weights, options, …)`, in the model `options.thread_model`."""

    @wraps(program)
    def wrapped(comm: Communicator, source: Any, weights: Any, options: Any, *arguments: Any, **named: Any) -> Any:
        with kernels.threads_in_model(options.thread_model, comm.threads):
            return program(comm, source, weights, options, *arguments, **named)

    return cast(Program, wrapped)
