"""All exceptions of Ripieno, in one tree under `RipienoError`.

Every class keeps its fields in ``args``, so each survives pickling between processes unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence


class RipienoError(Exception):
    """Base class of all exceptions that this package defines."""


class RankFailed(RipienoError):
    """A rank ended, sent no heartbeats or raised. Raised on other ranks, and in the caller if it has no better report.

    Parameters
    ----------
    rank : int
        The rank that failed first, not the rank that detected the failure.
    host : str
        Host of that rank.
    cause : str
        Cause in one line: ``"killed by SIGKILL"``, ``"ValueError: x"``, ``"no heartbeat for 10.0 s"``.
    traceback : str
        The Python traceback of the failed rank, if the rank has sent one.

    Attributes
    ----------
    results : dict of int to object, or None
        The results of the ranks that returned, by rank, if `Job.run` raised this error or has it as a cause.
    """

    def __init__(self, rank: int, host: str = "", cause: str = "", traceback: str = "") -> None:
        super().__init__(rank, host, cause, traceback)
        self.rank = rank
        self.host = host
        self.cause = cause
        self.traceback = traceback
        self.results: dict[int, object] | None = None

    @property
    def was_silent(self) -> bool:
        """Whether the rank's heartbeats were missing for too long. It may be alive, but stopped or disconnected."""
        return self.cause.startswith("no heartbeat")

    def __str__(self) -> str:
        where = f" on {self.host}" if self.host else ""
        sentence = f"rank {self.rank}{where} failed: {self.cause or 'cause unknown'}"
        if not self.traceback.strip():
            return sentence
        return f"{sentence}\n\nTraceback of rank {self.rank}:\n{self.traceback.rstrip()}"


class CallTimeout(RipienoError, TimeoutError):
    """A call waited for another rank beyond its time limit.

    Parameters
    ----------
    wait : str
        The rank, the call, the seconds, and the missing rank.
    details : str
        The waits of the other ranks, and the Python stacks of ranks that do not wait, as far as ranks have answered.
    """

    def __init__(self, wait: str, details: str = "") -> None:
        super().__init__(wait, details)
        self.wait = wait
        self.details = details

    def __str__(self) -> str:
        return f"{self.wait}, longer than call_timeout_s" + (f"\n{self.details}" if self.details else "")


class CollectiveMismatch(RipienoError):
    """Ranks called different collectives, or passed other sizes, types, shapes, keys or roots; lists the calls."""


class RendezvousError(RipienoError):
    """The ranks could not join: an unreachable address, a wrong token, or a missing rank."""


class EngineError(RipienoError):
    """An engine cannot run the ranks: too few slots, no session, a different version, or ended tasks."""


class TooFewSlots(EngineError):
    """An engine has too few slots for the ranks of a job.

    Parameters
    ----------
    engine : str
        Name of the engine.
    needed, free, total : int
        Slots that the job needs, free slots, and all slots.
    advice : str
        How to get more slots, in the engine's terms.
    """

    def __init__(self, engine: str, needed: int, free: int, total: int, advice: str) -> None:
        super().__init__(engine, needed, free, total, advice)
        self.engine = engine
        self.needed = needed
        self.free = free
        self.total = total
        self.advice = advice

    def __str__(self) -> str:
        return (
            f"{self.engine} has too few free slots for {self.needed} ranks: {self.free} free, {self.total} in all; "
            f"{self.advice}"
        )


class BroadcastError(RipienoError):
    """The value of a broadcast variable is no longer available: its root and parts of the value were lost.

    Its ``__cause__`` is the `RankFailed` of the root, if the root is lost.
    """


class CommunicatorClosed(RipienoError):
    """The communicator, or the job it belongs to, has ended and cannot be used again."""


class InputError(RipienoError, ValueError):
    """An argument or an input file is invalid; the message names it and the expected value."""


class MissingColumn(InputError):
    """A table has no column of the name that an argument passes.

    Parameters
    ----------
    argument : str
        The argument that names the column.
    column : str
        The name.
    table : str
        The table, or its file.
    columns : sequence of str
        The names of its columns.
    """

    def __init__(self, argument: str, column: object, table: str, columns: Sequence[object]) -> None:
        super().__init__(argument, column, table, tuple(columns))
        self.argument = argument
        self.column = column
        self.table = table
        self.columns = tuple(columns)

    def __str__(self) -> str:
        known = f"expected one of {', '.join(map(str, self.columns))}" if self.columns else "its columns have no names"
        return f"{self.argument}={self.column!r}: {self.table} has no such column: {known}"


class PlanError(RipienoError, ValueError):
    """A set of plans is wrong: `ripieno.plan.check` has found the first fault.

    Parameters
    ----------
    rank : int
        The rank of the plan.
    step : int or None
        The index of the step in the plan, or None if no step of the plan writes the wrong elements.
    call : str
        The step as the call that appends it, empty if there is none.
    span : str
        The elements in question, such as ``main[0:10]``.
    problem : str
        What is wrong.
    advice : str
        What to do.
    waiting : list of str
        In a deadlock, the step at which each unfinished rank waits.
    """

    def __init__(
        self,
        rank: int,
        step: int | None,
        call: str,
        span: str,
        problem: str,
        advice: str,
        waiting: list[str],
    ) -> None:
        super().__init__(rank, step, call, span, problem, advice, waiting)
        self.rank = rank
        self.step = step
        self.call = call
        self.span = span
        self.problem = problem
        self.advice = advice
        self.waiting = waiting

    def __str__(self) -> str:
        where = f"rank {self.rank}" if self.step is None else f"rank {self.rank}, step {self.step} {self.call}"
        problem = self.problem if not self.waiting else f"these steps wait for each other: {'; '.join(self.waiting)}"
        return f"{where}: {self.span}: {problem}; {self.advice}"


class UnsupportedError(RipienoError, NotImplementedError):
    """A call of another library that this package does not have; the message names the alternative."""


class MissingExtra(RipienoError, ImportError):
    """An optional package is not installed.

    Parameters
    ----------
    package : str
        Name of the package.
    extra : str
        The extra in ``pip install "ripieno[…]"`` that installs it.
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(package, extra)
        self.package = package
        self.extra = extra

    def __str__(self) -> str:
        return f'{self.package} is not installed: pip install "ripieno[{self.extra}]"'


class SpillError(RipienoError, OSError):
    """Keyed data beyond the memory limit could not be written or read; the message has the file, size and cause."""


class MissingIndicesError(RipienoError, KeyError):
    """A sparse reduction requests indices that no rank contributes. Raised on every rank.

    Parameters
    ----------
    count : int
        Number of missing indices.
    examples : list of int
        The smallest missing indices, ascending.
    """

    def __init__(self, count: int, examples: list[int]) -> None:
        super().__init__(count, examples)
        self.count = count
        self.examples = examples

    def __str__(self) -> str:
        indices = "index" if self.count == 1 else "indices"
        more = ", …" if self.count > len(self.examples) else ""
        return (
            f"{self.count} requested {indices} that no rank contributes: {', '.join(map(str, self.examples))}{more}; "
            'contribute them, leave them out, or accept zeros for them (missing="zero")'
        )


class SerializationError(RipienoError, TypeError):
    """A program, an argument or a result cannot be pickled for another process."""


class CheckpointError(RipienoError):
    """A checkpoint is incomplete, in use, not writable or of another program; the message has the file and a remedy."""


class LabError(RipienoError):
    """An emulated cluster cannot be created here, or is in the wrong state for a command; the message has a remedy."""
