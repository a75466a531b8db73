"""The log: what Ripieno says by Python's `logging`, under "ripieno", and how commands and workers show it.

Loggers have the names of rooms: ripieno.launch, ripieno.comm, ripieno.algorithms, ripieno.files and so on. Programs set
them up as any others. Commands show them with -v, and so does RIPIENO_LOG in the environment of any process of ranks.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ripieno.errors import InputError

#: The level at which commands and workers show what is logged.
VARIABLE = "RIPIENO_LOG"
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")

root = logging.getLogger("ripieno")
#: Told of notes, by whoever watches this process: the logger's name, the text, and the rank if it is of one.
listeners: list[Callable[[str, str, int | None], None]] = []


def note(name: str, text: str, rank: int | None = None) -> None:
    """Log something that has happened to this process or a rank of it, and tell who watches, whatever is shown."""
    logging.getLogger(name).info("%s", text if rank is None else f"rank {rank} {text}")
    for listener in list(listeners):
        listener(name, text, rank)


class StderrHandler(logging.StreamHandler):  # type: ignore[type-arg]  # it is generic to type checkers only
    """On the standard error that there is when a line comes."""

    def __init__(self, who: str) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(f"%(asctime)s %(name)s{who}: %(message)s", "%H:%M:%S"))

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def show(level: str, who: str = "") -> None:
    """Show what is logged on stderr, of this process, said by `who`, and of those that it starts.

    Raises
    ------
    InputError
        There is no such level.
    """
    if level.upper() not in LEVELS:
        raise InputError(f"{VARIABLE}={level}: expected one of {', '.join(LEVELS)}")
    os.environ[VARIABLE] = level.upper()
    root.setLevel(level.upper())
    if not any(isinstance(handler, StderrHandler) for handler in root.handlers):
        root.addHandler(StderrHandler(who))
        # Handlers of the program itself would show it once more.
        root.propagate = False


def show_as_told(who: str = "") -> None:
    """As `show`, if the environment says so."""
    level = os.environ.get(VARIABLE)
    if level:
        show(level, who)


@contextmanager
def warn_on_failure(name: str, what: str) -> Iterator[None]:
    """Turn an error of the block into a warning and a log line: it makes a page or picture of a result that is kept.

    Parameters
    ----------
    name : str
        The logger's.
    what : str
        The page or picture, for the warning.
    """
    try:
        yield
    except Exception as error:
        text = f"{what} is lost: {type(error).__name__}: {error}; the result is kept"
        logging.getLogger(name).info("%s", text, exc_info=True)
        warnings.warn(text, stacklevel=3)


def is_notebook() -> bool:
    """Whether what is displayed goes to a notebook; IPython on a terminal is none."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in getattr(shell, "config", {})
