"""Provide `CallBase`: the identity of one rank, its access to the native module, and its lifecycle."""

from __future__ import annotations

import ctypes
import os
import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import ripieno.flight as flight
from ripieno import log
from ripieno._checks import time_limit, whole_number
from ripieno._native import PlainCalls
from ripieno.comm.added_amounts import AddedAmounts
from ripieno.comm.mailbox import Mailbox
from ripieno.errors import CommunicatorClosed, InputError, RankFailed, RipienoError
from ripieno.wire.calls import CallQueue, NativeCalls, PostedCall, StagedCall

if TYPE_CHECKING:
    from ripieno._native import Communicator as NativeCommunicator
    from ripieno.comm.memory_checkpoints import RankCheckpoint
    from ripieno.comm.serving import Serving
    from ripieno.comm.survivor_agreement import Agreements


R = TypeVar("R")

#: Characters of an exception's text that are sent to all ranks. The message of an exception may be of any length.
CAUSE_CHARACTERS_MAX = 8 * 1024
TRACEBACK_CHARACTERS_MAX = 128 * 1024

#: Open communicators. A forked process must not use them.
_open_communicators: weakref.WeakSet[CallBase] = weakref.WeakSet()


class CallBase:
    """Attributes and methods that all calls of a communicator share. `Communicator` documents the attributes."""

    # The fast path for calls on plain arrays. Not in `__dict__`, which an `AsyncCommunicator` shares: it has none.
    __slots__ = ("__dict__", "__weakref__", "_plain")

    _plain: PlainCalls | None

    def __init__(
        self,
        native: NativeCommunicator,
        *,
        threads: int = 1,
        on_event: Callable[[dict[str, Any]], None] | None = None,
        parent: CallBase | None = None,
        heartbeat_timeout_s: float = 10.0,
    ) -> None:
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._native_or_none: NativeCommunicator | None = native
        self._plain = PlainCalls(native)
        self._on_event = on_event
        self._parent = parent
        self._replicated: Self | None = None
        self._mailbox = Mailbox()
        self._broadcasts: Serving | None = None
        # Servers of values that outlast this communicator, the latest last. `shrink` passes them on after the ranks
        # reconnect.
        self._lasting: list[tuple[int, Serving]] = []
        # Checkpoints by name. `shrink` passes them on, too.
        self._memory: dict[str, list[RankCheckpoint]] = {}
        # Amounts that the running program has added to accumulators.
        self._added = AddedAmounts()
        # The checkpoint names of the fits of the current program, in order of their start.
        self._fits: list[str] = []
        self.restarts_on_failure = False
        self._queue: CallQueue = CallQueue() if parent is None else parent._queue
        self.rank: int = native.rank
        self.world_size: int = native.world_size
        self.replicas: int = native.replicas
        self.replica: int = native.replica
        self.hosts: list[str] = list(native.hosts)
        self.nodes: list[int] = list(native.nodes)
        self.racks: list[str | None] = list(native.racks)
        self.threads = threads
        self.cache: dict[Any, Any] = {}
        #: The rank of each rank in the launched world.
        self.first_ranks: list[int] = list(native.world_ranks)
        if parent is not None:
            self.first_ranks = [parent._world.first_ranks[rank] for rank in native.world_ranks]
        # Ranks of the launched world that `shrink` has removed.
        self._without: list[int] = []
        # The replacement that `shrink` has created, and the failure that led to it.
        self._successor: Self | None = None
        self._failure: RipienoError | None = None
        # Agreements with the other ranks; after a failure they have a world of their own.
        self._agreements: Agreements | None = None
        # Longest wait of a call for another rank, in seconds, and a function that notifies of a change of this limit.
        self._call_timeout_s = float("inf")
        self._on_timeout_change: Callable[[], None] | None = None
        self._is_forked = False
        _open_communicators.add(self)

    def __repr__(self) -> str:
        state = "" if self._native_or_none is not None else ", closed"
        return f"<Communicator rank {self.rank} of {self.world_size}{state}>"

    @property
    def closed(self) -> bool:
        """Whether the communicator is closed."""
        return self._native_or_none is None or (self._parent is not None and self._parent.closed)

    @property
    def _world(self) -> CallBase:
        """The communicator of all ranks, if this one was created from it; else this one."""
        return self if self._parent is None else self._parent._world

    @property
    def _latest(self) -> Self:
        """The latest replacement by `shrink`, or this communicator."""
        comm = self
        while comm._successor is not None:
            comm = comm._successor
        return comm

    @contextmanager
    def timeout(self, seconds: float | None) -> Iterator[None]:
        """Limit the wait for another rank of each call within the ``with`` statement.

        A wait that lasts longer ends the job with `CallTimeout`, which names the waiting and the missing rank, and has
        the stack of the missing one. Under other launchers, it ends all ranks with `RankFailed`.
        A separate thread checks the limit, ten times per limit. For the limit of all calls, pass
        ``call_timeout_s=`` to `ripieno.launch` or `ripieno.init`.

        Parameters
        ----------
        seconds : float, optional
            Limit in seconds; None for no limit.
        """
        limit_s = time_limit("seconds", seconds)
        world = self._world
        before = world._call_timeout_s
        world._set_call_timeout(limit_s)
        try:
            yield
        finally:
            # The statement may have replaced the world by `shrink`.
            world._latest._set_call_timeout(before)

    def _set_call_timeout(self, seconds: float) -> None:
        self._call_timeout_s = seconds
        if self._on_timeout_change is not None:
            self._on_timeout_change()

    def emit(self, event: dict[str, Any]) -> None:
        """Send a small dict to the process that launched the job (``on_event=``). Without a listener it is dropped.

        An event of more than 16 MiB when pickled is an `InputError`.
        """
        self._check_process()
        if not isinstance(event, Mapping):
            raise InputError(f"emit: a {type(event).__name__}: expected a dict")
        if self._on_event is not None:
            self._on_event(event)

    def abort(self, cause: str, traceback: str = "") -> None:
        """Report the failure of this rank to all ranks: their calls raise `RankFailed` with `cause` and `traceback`."""
        self._check_process()
        native = self._native_or_none
        if native is None:
            raise self._closed_error()
        # Abort before waiting calls finish: the abort ends them, and the recorder can then be read.
        native.abort(cause, traceback)
        flight.write_file(native)

    def _withdraw(self) -> None:
        """Mark the program as ended: `shrink` on other ranks does not wait for this rank."""
        if self._native_or_none is not None:
            self._native_or_none.withdraw()
        for each in members_of(self):
            if each._broadcasts is not None:
                each._broadcasts.native.begin_close()
        if self._agreements is not None and self._agreements.world is not self:
            self._agreements.world._withdraw()

    def close(self) -> None:
        """Finish the calls in flight, then close the connections. Repeated calls have no effect.

        Closing the world closes the communicators that were split from it. Closing a split communicator leaves the
        world open. Its array calls that are in flight finish. Its object calls that are queued behind others raise
        `CommunicatorClosed` from ``wait()``.
        """
        agreements, self._agreements = self._agreements, None
        if agreements is not None and agreements.world is not self:
            agreements.world.close()
        native, self._native_or_none = self._native_or_none, None
        self._plain = None
        broadcasts, self._broadcasts = self._broadcasts, None
        self.cache.clear()
        if broadcasts is not None:
            broadcasts.close()
        if native is not None:
            if self._parent is None:
                self._queue.drain()
                flight.write_file(native)
                self._log_links(native)
            native.close()

    def _log_links(self, native: NativeCommunicator) -> None:
        """Log links that do not use the preferred transport, such as TCP within a node."""
        # A failed rank has reported its cause already, and reading its links may fail.
        with suppress(RipienoError):
            for peer, kind in native.fallback_links():
                log.note("ripieno.comm", f"uses a fallback link to rank {peer}: {kind}", self.rank)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self._native_or_none is not None:
            self.abort(*describe(error))
        self.close()

    @property
    def _native(self) -> NativeCommunicator:
        native = self._native_or_none
        if native is None:
            self._check_process()
            raise self._closed_error()
        if self._queue.last is not None:
            # Calls are numbered in the order of their start.
            self._queue.drain()
        return native

    @property
    def _idle_native(self) -> NativeCommunicator | None:
        """The native communicator if calls run immediately and no earlier call is queued, else None."""
        return self._native_or_none if self._plain is not None and self._queue.last is None else None

    def _closed_error(self) -> RipienoError:
        """Return the error that calls raise after the communicator is closed."""
        failure = self._world._failure
        if failure is None:
            return CommunicatorClosed(f"the communicator of rank {self.rank} is closed")
        advice = "shrink() has closed this communicator: use the one that it returned"
        if self._world._successor is None:
            advice = "agree() has closed this communicator: call shrink()"
        if isinstance(failure, RankFailed):
            return RankFailed(failure.rank, failure.host, f"{failure.cause}; {advice}", failure.traceback)
        return type(failure)(f"{failure}; {advice}")

    def _check_process(self) -> None:
        if self._is_forked:
            raise CommunicatorClosed(
                f"this process was forked from rank {self.rank} and is not a rank itself: "
                f"return its results to rank {self.rank}, and call collectives there"
            )

    def _detach(self) -> None:
        """Detach from the native communicator in a forked process. Resources of the rank stay open."""
        native, self._native_or_none = self._native_or_none, None
        self._plain = None
        self._is_forked = True
        if native is not None:
            # Keep a reference forever. Collecting the object would close it, but its links and threads are the rank's.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(native))
        if self._broadcasts is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._broadcasts))
        for _, each in self._lasting:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))

    def _do(self, call: NativeCalls[R] | StagedCall[R] | PostedCall[R]) -> R:
        """Run a call and return its result. `AsyncCommunicator` only begins it."""
        return call.run(self._native)

    def _run_native(self, result: R, name: str, *args: Any) -> R:
        """Return `result` after a single native call: like `_do`, in half the time for short calls."""
        native = self._native_or_none
        if native is None or self._queue.last is not None:
            native = self._native
        getattr(native, name)(*args)
        return result

    def _rank(self, name: str, rank: int) -> int:
        if type(rank) is int and 0 <= rank < self.world_size:
            return rank
        # Programs compare ranks to select one of two: `root=rank > 0`, `to=not rank`.
        expected = f"expected a rank, 0 … {self.world_size - 1}"
        return whole_number(name, rank, 0, self.world_size - 1, expected, takes_booleans=True)

    def _other(self, name: str, rank: int) -> int:
        rank = self._rank(name, rank)
        if rank == self.rank:
            raise InputError(f"{name}={rank}: expected a rank other than this one")
        return rank


def members_of(world: CallBase) -> list[CallBase]:
    """Return the communicators that were created from `world`, followed by `world` itself."""
    return sorted((comm for comm in list(_open_communicators) if comm._world is world), key=lambda comm: comm is world)


def _detach_all() -> None:
    for comm in _open_communicators:
        comm._detach()


os.register_at_fork(after_in_child=_detach_all)


def describe(error: BaseException) -> tuple[str, str]:
    """Return a short cause and the traceback text of an exception, as `Communicator.abort` takes them."""
    messages = [str(each) for each in _chained(error)]
    cause = shortened(f"{type(error).__qualname__}: {messages[0]}".rstrip(": "), CAUSE_CHARACTERS_MAX)
    if sum(map(len, messages)) > TRACEBACK_CHARACTERS_MAX:
        # Python indents and copies each line of all messages, which takes seconds for 50 MB.
        place = "".join(traceback.format_tb(error.__traceback__))
        text = f"Traceback (most recent call last):\n{place}{cause}\n"
    else:
        text = "".join(traceback.format_exception(error))
    return cause, shortened(text, TRACEBACK_CHARACTERS_MAX)


def _chained(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, the exceptions that it was raised from or during, and the exceptions of a group."""
    seen: set[int] = set()
    found = [error]
    while found:
        each = found.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        found += [link for link in (each.__cause__, each.__context__) if link is not None]
        found += each.exceptions if isinstance(each, BaseExceptionGroup) else ()


def shortened(text: str, characters_max: int) -> str:
    """Return `text`, or its beginning and end if it is longer than `characters_max`."""
    if len(text) <= characters_max:
        return text
    half = characters_max // 2
    return f"{text[:half]} … {len(text) - 2 * half:,} characters left out … {text[-half:]}"
