"""Provide reports of long waits: each rank detects its own waits, and answers the launcher with its position.

A thread of a rank sleeps until its launcher asks by a datagram, or until it is time to check for a long wait. It does
not take part in calls, so it answers while the program waits or computes, unless the program holds the interpreter.
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import ripieno
import ripieno.flight as flight
from ripieno._checks import seconds_of
from ripieno.comm import mailbox
from ripieno.comm.rank import describe
from ripieno.errors import CallTimeout, RipienoError
from ripieno.launch import limits
from ripieno.launch.deadline import Deadline
from ripieno.launch.process.channel import Channel, ConnectionClosed

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: Environment variable: waits of at least this many seconds are reported; 0 disables the reports.
VARIABLE = "RIPIENO_WAIT_NOTICE_S"
NOTICE_S = 30.0
#: Bounds in seconds of the interval between a rank's checks for a long wait: a third of `NOTICE_S`, or a tenth of the
#: time limit of its calls, whichever is shorter.
CHECK_S_MIN, CHECK_S_MAX = 0.01, 3600.0
#: Kind of the message by which a launcher asks a rank of another host for its position.
QUERY = "where"
#: Lines of the stack of a rank, the innermost.
STACK_COUNT = 8
#: Maximum numbers of printed waits and of printed stacks.
SHOWN_COUNT = 16
STACK_RANK_COUNT = 3

_PACKAGE = str(Path(ripieno.__file__).parent) + os.sep
_STARTING = ("<frozen ", "<string>")


class RankPlace(NamedTuple):
    """The wait of a rank, and its position in the program.

    Attributes
    ----------
    rank : int
    wait : str or None
        The call that waits, the seconds, and the missing rank; None if the rank does not wait for a rank.
    waited_s : float
        Seconds of the wait.
    stack : str
        The Python stack of the program, up to its call of this package.
    missing : int or None
        The missing rank, if it is known.
    """

    rank: int
    wait: str | None
    waited_s: float
    stack: str
    missing: int | None = None


def notice_s() -> float:
    """Return the shortest reported wait in seconds, or infinity.

    Raises
    ------
    InputError
        The variable is not a number.
    """
    return seconds_of(os.environ, VARIABLE, NOTICE_S, zero="no notice") or float("inf")


class WaitReporter:
    """Reports the long waits of a rank, and answers the launcher's queries.

    Parameters
    ----------
    current
        Returns the communicator of the rank, or None.
    send
        Sends a message of a kind to the launcher; None if the launcher does not listen. Then the rank prints its waits,
        and asks a missing rank of the same host to print its position.
    is_remote
        Whether the launcher is on another host, so that its queries arrive in `query` instead of at an address.
    """

    def __init__(
        self,
        current: Callable[[], Communicator | None],
        send: Callable[[str, Any], None] | None,
        *,
        is_remote: bool = False,
    ) -> None:
        self._current = current
        self._send = send
        self._is_remote = is_remote
        self._notice_s = notice_s()
        # The thread that runs the program.
        self._thread = threading.get_ident()
        self._is_reported = self._is_closed = False
        self._printed_s = float("-inf")
        self._queries = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        # The first part of the addresses of ranks without a listening launcher. Addresses are not files.
        self._prefix = ""
        comm, address = current(), ""
        if send is None and comm is not None:
            self._prefix = f"\0ripieno-{comm._native.flight(0)['job']}-"
            address = f"{self._prefix}{comm.first_ranks[comm.rank]}"
        try:
            self._queries.bind(address)
        except OSError:
            # The kernel chooses an address, which the other ranks do not know.
            self._queries.bind("")

    def start(self) -> None:
        """Start the thread, and send the address for queries."""
        if self._send is not None:
            self._send("query-address", None if self._is_remote else self._queries.getsockname())
        self._watch_timeout()
        threading.Thread(target=self._run, name="ripieno-waits", daemon=True).start()

    def close(self) -> None:
        """End the thread."""
        self._is_closed = True
        self._wake()

    def query(self) -> None:
        """Send the position of the rank to the launcher."""
        self._wake(b"?")

    def _wake(self, query: bytes = b"!") -> None:
        """End the sleep of the thread."""
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
            own.sendto(query, self._queries.getsockname())

    def _watch_timeout(self) -> float:
        """Return the time limit of calls. The thread is woken when it changes."""
        comm = self._current()
        if comm is None:
            return float("inf")
        comm._on_timeout_change = self._wake
        return comm._call_timeout_s

    def _run(self) -> None:
        while True:
            interval_s = min(self._notice_s / 3, self._watch_timeout() / 10)
            self._queries.settimeout(min(max(interval_s, CHECK_S_MIN), CHECK_S_MAX))
            try:
                query, asker = self._queries.recvfrom(1)
            except TimeoutError:
                self._check()
                continue
            if self._is_closed:
                self._queries.close()
                return
            if query == b"!":
                continue
            place = self._place()
            if place is not None and self._send is not None:
                with suppress(ConnectionClosed):
                    self._send("place", place)
            elif place is not None:
                self._print_position(place)
                with suppress(OSError):
                    self._queries.sendto(b"!", asker)

    def _check(self) -> None:
        """Report each long wait once, and end a wait that exceeds the time limit of calls."""
        place = self._place()
        if place is not None and place.wait is not None and place.waited_s >= self._watch_timeout():
            self._time_out(place)
            return
        is_long = place is not None and place.wait is not None and place.waited_s >= self._notice_s
        if is_long and not self._is_reported and place is not None:
            if self._send is None:
                _print([line_of(place)])
                self._ask_missing(place)
            else:
                with suppress(ConnectionClosed):
                    self._send("waits-long", None)
        self._is_reported = is_long

    def _time_out(self, place: RankPlace) -> None:
        """Notify the launcher, which ends the job; without it end the calls of all ranks."""
        comm = self._current()
        if self._send is not None:
            with suppress(ConnectionClosed):
                self._send("timed-out", place)
        elif comm is not None:
            self._ask_missing(place)
            with suppress(RipienoError):
                comm.abort(*describe(CallTimeout(line_of(place))))
        if comm is not None:
            # One report suffices: the job ends.
            comm._call_timeout_s = float("inf")

    def _ask_missing(self, place: RankPlace) -> None:
        """Ask the missing rank to print its position, and wait for it. A rank of another host gets no query."""
        comm = self._current()
        if comm is None or place.missing is None:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
            own.bind("")
            own.settimeout(limits.OTHER_REPORTS_S)
            own.sendto(b"?", f"{self._prefix}{comm.first_ranks[place.missing]}")
            own.recv(1)

    def _print_position(self, place: RankPlace) -> None:
        """Print the position of a rank that other ranks wait for, although several of them ask."""
        now = time.monotonic()
        if place.wait is None and now - self._printed_s >= self._notice_s:
            self._printed_s = now
            _print(_position(place))

    def _place(self) -> RankPlace | None:
        comm = self._current()
        native = None if comm is None else comm._native_or_none
        if comm is None or native is None:
            return None
        now = time.monotonic()
        stalled = native.stalled(now)
        received = mailbox.waiting_of(self._thread)
        stack = _stack_of(self._thread)
        if received is not None:
            sender, since = received
            waited_s = now - since
            sender_name = "any rank" if sender is None else f"rank {sender}"
            return RankPlace(comm.rank, f"in recv, waiting {waited_s:.1f} s for {sender_name}", waited_s, stack, sender)
        if stalled is None:
            return RankPlace(comm.rank, None, 0.0, stack)
        text, waited_s, missing = stalled
        return RankPlace(comm.rank, flight.text_at(comm.rank, text), waited_s, stack, missing)


class WaitingRanks:
    """The positions of a job's ranks, for its launcher. Ranks are identified by their initial numbers."""

    def __init__(self) -> None:
        # The address of each rank's queries, or the channel to a rank of another host.
        self._addresses: dict[int, Any] = {}
        self._places: dict[int, RankPlace] = {}
        self._deadline: Deadline | None = None
        self._timed_out: RankPlace | None = None

    def take(self, number: int, kind: str, value: Any, channel: Channel | None = None) -> bool:
        """Store a message of a rank, received from `channel`, if it is about waits; return whether it is."""
        if kind == "query-address":
            self._addresses[number] = channel if value is None else value
        elif kind == "place":
            self._places[number] = value
        elif kind == "waits-long":
            self.query()
        elif kind == "timed-out":
            self._timed_out = value
            self.query()
        else:
            return False
        return True

    def query(self) -> None:
        """Ask all ranks for their positions, unless answers are still awaited."""
        if self._deadline is not None:
            return
        self._places.clear()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as own:
            for rank, address in list(self._addresses.items()):
                try:
                    if isinstance(address, Channel):
                        address.send(QUERY)
                    else:
                        own.sendto(b"?", address)
                except BlockingIOError:
                    # The rank has not read earlier queries.
                    continue
                except (OSError, ConnectionClosed):
                    # The rank has ended.
                    del self._addresses[rank]
        if self._addresses:
            self._deadline = Deadline(limits.OTHER_REPORTS_S)

    def explain(
        self,
        selector: selectors.BaseSelector,
        receive: Callable[[selectors.SelectorKey], None],
        *,
        always: bool = False,
    ) -> Iterator[str]:
        """Query all ranks, and yield the answers as lines. `receive` handles a ready object of `selector`."""
        self.query()
        while self._deadline is not None:
            for key, _ in selector.select(self.wait_s(None)):
                receive(key)
            yield from self._lines(always=always)

    def forget(self) -> None:
        """Drop the unanswered query of an earlier program."""
        self._deadline = self._timed_out = None

    def wait_s(self, other_s: float | None) -> float | None:
        """Return the timeout of the wait for a message: until all answers are due, or `other_s`."""
        own_s = None if self._deadline is None else self._deadline.left_s
        return min((each for each in (own_s, other_s) if each is not None), default=None)

    def answers(self) -> list[str]:
        """Return the answers as lines once all have arrived or are overdue. Until then return no lines.

        If no rank waits, there are no lines.

        Raises
        ------
        CallTimeout
            A call of a rank has exceeded its time limit.
        """
        if self._timed_out is not None and self._has_all():
            timed_out, self._timed_out = self._timed_out, None
            raise CallTimeout(line_of(timed_out), "\n".join(self._lines(always=True)))
        return self._lines(always=False)

    def _has_all(self) -> bool:
        """Return whether all answers have arrived or are overdue."""
        return self._deadline is None or len(self._places) >= len(self._addresses) or not self._deadline.left_s

    def _lines(self, *, always: bool) -> list[str]:
        if self._deadline is None or not self._has_all():
            return []
        self._deadline = None
        places = [self._places[number] for number in sorted(self._places)]
        waiting = [place for place in places if place.wait is not None]
        if not waiting and not always:
            return []
        lines = [line_of(place) for place in waiting[:SHOWN_COUNT]]
        if len(waiting) > SHOWN_COUNT:
            lines.append(f"and {len(waiting) - SHOWN_COUNT} more ranks wait")
        # If all ranks wait, as in a circle, the call of the first one shows the place.
        for place in ([place for place in places if place.wait is None] or places)[:STACK_RANK_COUNT]:
            lines += _position(place)
        silent = sorted(self._addresses.keys() - self._places.keys())[:STACK_RANK_COUNT]
        return lines + [f"rank {rank} does not answer: it runs code that holds the interpreter" for rank in silent]


def line_of(place: RankPlace) -> str:
    """Return the wait of a rank as a line."""
    return f"rank {place.rank}: {place.wait}"


def _print(lines: list[str]) -> None:
    """Print lines in one write, so that lines of other ranks are not between them."""
    print("".join(f"ripieno: {line}\n" for line in lines), end="", file=sys.stderr, flush=True)


def _position(place: RankPlace) -> list[str]:
    """Return the position of a rank in its program as lines."""
    return [
        f"rank {place.rank} {'is here' if place.wait else 'waits for no rank, and is here'}:",
        *place.stack.splitlines(),
    ]


def _stack_of(thread: int) -> str:
    """Return the innermost frames of a thread that belong neither to this package nor to the start of Python."""
    frames = [
        traceback.FrameSummary(filename, line, name, lookup_line=False)
        for filename, line, name in reversed(_places_of(thread))
        if not filename.startswith((_PACKAGE, *_STARTING)) and Path(filename).name != "runpy.py"
    ]
    return "".join(traceback.format_list(frames[-STACK_COUNT:])).rstrip("\n")


def _places_of(thread: int) -> list[tuple[str, int, str]]:
    """Return the file, line and function of each frame of a thread, the innermost first.

    Frames keep the arrays of the program alive, so they are released before files are read, while the program runs.
    """
    frame = sys._current_frames().get(thread)
    if frame is None:
        return []
    return [(each.f_code.co_filename, line, each.f_code.co_name) for each, line in traceback.walk_stack(frame)]
