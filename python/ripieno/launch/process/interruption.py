"""Provide waits that every signal interrupts.

Python runs signal handlers between two instructions of the main thread. A signal may arrive after the last instruction
before a blocking system call, or the kernel may deliver it to another thread. Its handler then runs only when the wait
ends. The waits in this module therefore also poll a pipe. Python writes the number of every signal to it.
"""

from __future__ import annotations

import os
import select
import selectors
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ripieno.launch import limits
from ripieno.launch.process import processes

#: Exit status of a process after a signal, less the number of the signal, as in shells.
SIGNAL_BASE = 128

Wait = Callable[[float | None], list[tuple[selectors.SelectorKey, Any]]]


@contextmanager
def interruptible(selector: selectors.DefaultSelector) -> Iterator[Wait]:
    """Yield a replacement for ``selector.select`` with the same timeout that returns early after any signal."""
    if not processes.on_main_thread():
        # Other threads run no handlers.
        yield selector.select
        return
    signals, written = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = signal.set_wakeup_fd(written, warn_on_full_buffer=False)
    waiting = select.poll()
    for descriptor in (selector.fileno(), signals):
        waiting.register(descriptor, select.POLLIN)

    def wait(timeout_s: float | None) -> list[tuple[selectors.SelectorKey, Any]]:
        ready = waiting.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000)
        if any(descriptor == signals for descriptor, _ in ready):
            numbers = os.read(signals, 1 << 16)
            if before >= 0:
                os.write(before, numbers)
        return selector.select(0)

    try:
        yield wait
    finally:
        signal.set_wakeup_fd(before)
        os.close(signals)
        os.close(written)


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Defer Ctrl-C and SIGTERM, if handled, until a short critical section has ended.

    Examples are the end of workers, and the start of a child: `subprocess.Popen` loses a child that it has just started
    if a handler raises an exception.
    """
    if not processes.on_main_thread():
        # Other threads run no handlers.
        yield
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handled = {number: handler for number, handler in handlers.items() if callable(handler)}
    deferred: list[tuple[int, Any]] = []
    for number in handled:
        signal.signal(number, lambda *arguments: deferred.append(arguments))
    try:
        yield
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)
        if deferred:
            arrived, frame = deferred[0]
            handled[signal.Signals(arrived)](arrived, frame)


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Exit by an exception on SIGTERM, with status 143, so that cleanup ends workers and removes unfinished files.

    Python discards an exception that a handler raises in a finalizer or in a callback of C code. The process then sends
    the signal to itself again, from another thread, when the finalizer has probably ended.
    """
    raised: list[SystemExit] = []

    def exit_now(number: int, _: Any) -> None:
        raised.append(SystemExit(SIGNAL_BASE + number))
        raise raised[-1]

    def repeat(unraisable: Any) -> None:
        if not any(unraisable.exc_value is each for each in raised):
            hook_before(unraisable)
            return
        timer = threading.Timer(limits.PAUSE_S_MAX, os.kill, (os.getpid(), signal.SIGTERM))
        timer.daemon = True
        timer.start()

    before = signal.signal(signal.SIGTERM, exit_now)
    hook_before, sys.unraisablehook = sys.unraisablehook, repeat
    try:
        yield
    finally:
        sys.unraisablehook = hook_before
        signal.signal(signal.SIGTERM, before)
