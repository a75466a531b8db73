"""Everything that Ripieno raises: one tree under `RipienoError`.

Every class keeps its fields in ``args``, so each survives pickling between processes unchanged.
"""

from __future__ import annotations


class RipienoError(Exception):
    """The root: ``except RipienoError`` catches whatever this package raises on purpose."""


class RankFailed(RipienoError):
    """A rank ended, fell silent or raised; raised on every other rank and, if nothing better is known, to the caller.

    Parameters
    ----------
    rank : int
        The rank that failed first, not the one that noticed.
    host : str
        Where it ran.
    cause : str
        Why, in one line: ``"killed by SIGKILL"``, ``"ValueError: x"``, ``"no heartbeat for 10.0 s"``.
    traceback : str
        The Python traceback of the failed rank, if it could still send one.

    Attributes
    ----------
    results : dict of int to object, or None
        The results of the ranks that did return, by rank, if `Job.run` raised this error or has it as a cause.
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
        """Whether the others have not heard of it for too long; it may be stopped, or cut off, and live."""
        return self.cause.startswith("no heartbeat")

    def __str__(self) -> str:
        where = f" on {self.host}" if self.host else ""
        sentence = f"rank {self.rank}{where} failed: {self.cause or 'cause unknown'}"
        if not self.traceback.strip():
            return sentence
        return f"{sentence}\n\nTraceback of rank {self.rank}:\n{self.traceback.rstrip()}"


class CollectiveMismatch(RipienoError):
    """Ranks called different collectives, or gave other sizes, types, shapes, keys or roots; lists the ranks' calls."""


class RendezvousError(RipienoError):
    """The ranks could not meet: an address out of reach, a wrong token, a rank that never came."""


class EngineError(RipienoError):
    """An engine cannot run the ranks: too few slots, no session, another version there, tasks that it has ended."""


class TooFewSlots(EngineError):
    """An engine has no room for the ranks of a job.

    Parameters
    ----------
    engine : str
        Its name.
    needed, free, total : int
        Slots that the job takes, that are free, and that there are in all.
    advice : str
        How to get more, in the words of the engine.
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
    """The value of a broadcast variable will not come: its root is lost, and parts of it with the root.

    Its ``__cause__`` is the `RankFailed` of the root, if the root is lost.
    """


class CommunicatorClosed(RipienoError):
    """The communicator, or the job it belongs to, has ended and cannot be used again."""


class InputError(RipienoError, ValueError):
    """An argument or an input file is wrong; the message names it and the expected value."""


class MissingExtra(RipienoError, ImportError):
    """A package is not installed that only some calls need.

    Parameters
    ----------
    package : str
        Which one.
    extra : str
        What ``pip install "ripieno[…]"`` brings it with.
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(package, extra)
        self.package = package
        self.extra = extra

    def __str__(self) -> str:
        return f'{self.package} is not installed: pip install "ripieno[{self.extra}]"'


class SpillError(RipienoError, OSError):
    """Keyed data beyond the memory limit could not be written to a file or read back; says where, how much and why."""


class MissingIndicesError(RipienoError, KeyError):
    """A sparse reduction wants indices that no rank contributes; the same on every rank.

    Parameters
    ----------
    count : int
        How many different indices.
    examples : list of int
        The smallest of them, ascending.
    """

    def __init__(self, count: int, examples: list[int]) -> None:
        super().__init__(count, examples)
        self.count = count
        self.examples = examples

    def __str__(self) -> str:
        indices = "index" if self.count == 1 else "indices"
        more = ", …" if self.count > len(self.examples) else ""
        return (
            f"{self.count} wanted {indices} that no rank contributes: {', '.join(map(str, self.examples))}{more}; "
            'contribute them, do not ask for them, or take zeros for them (missing="zero")'
        )


class SerializationError(RipienoError, TypeError):
    """A program, an argument or a result cannot travel between processes."""


class CheckpointError(RipienoError):
    """A checkpoint is torn, foreign or in use, or cannot be written; the message names the file and says what to do."""


class LabError(RipienoError):
    """An emulated cluster cannot be made here, or is not in the state that a command needs; says what to do."""
