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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ripieno.launch.process import processes

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
def deferred_interrupt() -> Iterator[None]:
    """Defer Ctrl-C until a short critical section has ended."""
    before = signal.getsignal(signal.SIGINT)
    if not processes.on_main_thread() or not callable(before):
        yield
        return
    signals: list[tuple[Any, ...]] = []
    signal.signal(signal.SIGINT, lambda *arguments: signals.append(arguments))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if signals:
            before(*signals[0])
