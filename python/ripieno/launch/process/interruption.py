"""Waiting that every signal ends.

Python runs a signal's handler between two instructions of the main thread. A signal that comes after the last of them,
before the system call that waits, or that the kernel gives to another thread, is noted but heard only when the wait
ends. Here a pipe to which Python writes the number of every signal is waited for, too.
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
    """What takes the place of ``selector.select``, at most for the given seconds: it returns early after any signal."""
    if not processes.on_main_thread():
        # Others run no handlers.
        yield selector.select
        return
    heard, written = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = signal.set_wakeup_fd(written, warn_on_full_buffer=False)
    waiting = select.poll()
    for descriptor in (selector.fileno(), heard):
        waiting.register(descriptor, select.POLLIN)

    def wait(timeout_s: float | None) -> list[tuple[selectors.SelectorKey, Any]]:
        ready = waiting.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000)
        if any(descriptor == heard for descriptor, _ in ready):
            numbers = os.read(heard, 1 << 16)
            if before >= 0:
                os.write(before, numbers)
        return selector.select(0)

    try:
        yield wait
    finally:
        signal.set_wakeup_fd(before)
        os.close(heard)
        os.close(written)


@contextmanager
def held_back() -> Iterator[None]:
    """Let Ctrl-C wait until what must not be left half done, and is soon over, is done."""
    before = signal.getsignal(signal.SIGINT)
    if not processes.on_main_thread() or not callable(before):
        yield
        return
    heard: list[tuple[Any, ...]] = []
    signal.signal(signal.SIGINT, lambda *arguments: heard.append(arguments))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if heard:
            before(*heard[0])
