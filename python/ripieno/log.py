"""Provide logging under the logger "ripieno", and print its records in commands and workers.

Loggers are named after packages: ripieno.launch, ripieno.comm, ripieno.algorithms, ripieno.files and so on. Programs
configure them with `logging`. Commands print their records with -v. With RIPIENO_LOG, the processes of ranks print
them, too.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ripieno.errors import InputError

#: Environment variable with the log level of commands and workers.
VARIABLE = "RIPIENO_LOG"
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")

# Files that no warning names: this package, and the callers of its context managers.
_SKIPPED = (os.path.dirname(__file__) + os.sep, contextlib.__file__)

root = logging.getLogger("ripieno")
#: Called with each note: the logger's name, the text, and the rank if the note concerns one.
listeners: list[Callable[[str, str, int | None], None]] = []


def note(name: str, text: str, rank: int | None = None) -> None:
    """Log an event of this process or of one of its ranks, and call all listeners regardless of the log level."""
    logging.getLogger(name).info("%s", text if rank is None else f"rank {rank} {text}")
    for listener in list(listeners):
        listener(name, text, rank)


@contextmanager
def noted(name: str) -> Iterator[list[str]]:
    """Collect the texts of `note` under `name` within the block, each text once."""
    texts: list[str] = []

    def listen(logger: str, text: str, rank: int | None) -> None:
        if logger == name and text not in texts:
            texts.append(text)

    listeners.append(listen)
    try:
        yield texts
    finally:
        listeners.remove(listen)


class StderrHandler(logging.StreamHandler):  # type: ignore[type-arg]  # it is generic to type checkers only
    """A handler that writes to the current `sys.stderr`, also after a program has replaced it."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s", "%H:%M:%S"))

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def show(level: str) -> None:
    """Print log records of this process, and of its child processes, on stderr.

    Raises
    ------
    InputError
        If the level is unknown.
    """
    if level.upper() not in LEVELS:
        raise InputError(f"{VARIABLE}={level}: expected one of {', '.join(LEVELS)}")
    os.environ[VARIABLE] = level.upper()
    root.setLevel(level.upper())
    if not any(isinstance(handler, StderrHandler) for handler in root.handlers):
        root.addHandler(StderrHandler())
        # Otherwise the handlers of the program would print the record a second time.
        root.propagate = False


def show_if_set() -> None:
    """Call `show` if RIPIENO_LOG is set."""
    level = os.environ.get(VARIABLE)
    if level:
        show(level)


@contextmanager
def warn_on_failure(name: str, output: str) -> Iterator[None]:
    """Turn an error in the block into a warning and a log line, for output that is less important than the result.

    Parameters
    ----------
    name : str
        Name of the logger.
    output : str
        Name of the page or picture in the warning.
    """
    try:
        yield
    except Exception as error:
        text = f"{output} is lost: {type(error).__name__}: {error}; the result is kept"
        logging.getLogger(name).info("%s", text, exc_info=True)
        warn(text)


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the program that has called this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_SKIPPED):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)


def is_notebook() -> bool:
    """Return whether output is displayed in a notebook, as opposed to IPython on a terminal."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in getattr(shell, "config", {})
