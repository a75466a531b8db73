"""`init`: a communicator for a script, from the environment that a launcher has set.

Rank and world size are what the launcher says, see `ripieno.launch.script.launchers`; where the ranks meet and which
token they share, `ripieno.launch.script.meeting`. All that may be set is in docs/environment.md.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import ripieno.flight as flight
from ripieno.comm.communicator import Communicator
from ripieno.comm.rank import describe
from ripieno.errors import RendezvousError
from ripieno.host import usable_cores
from ripieno.launch.binding import Binding, bind_together
from ripieno.launch.encryption import wants_tls
from ripieno.launch.job.inline import single_rank
from ripieno.launch.job.programs import EventOptions, Events
from ripieno.launch.limits import MEETING_S
from ripieno.launch.process import running
from ripieno.launch.process.processes import fill_standard_descriptors
from ripieno.launch.racks import rack_of_this_host
from ripieno.launch.script import exit_message, launchers, meeting
from ripieno.launch.script.host_names import await_name

# What only ranks find in the environment.
VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "RIPIENO_DIRECTORY", "RIPIENO_TOKEN")

# The one communicator of this process that `init` made.
_current: Communicator | None = None
# What that emits goes to the launcher, if it is one that shows it.
_events: Events | None = None
_pulse_s = 0.0
# How the launcher is told anything, if it wants to be.
_send: Callable[[str, Any], None] | None = None


def init(*, threads: int | None = None, **options: Any) -> Communicator:
    """The communicator of a script under a launcher: ``ripieno run``, ``srun``, ``mpirun``, ``mpiexec``, ``torchrun``.

    In a program of `Job.run`, and in threads that it starts, this is the communicator that the program got. Without a
    launcher, or as the only rank of one, the script is on its own, a world of one rank. Called again, it returns the
    same communicator. It is closed when the script ends; an exception that nobody catches is told to the
    other ranks first. RIPIENO_TOKEN is taken out of the environment: what the script starts does not inherit it.

    Parameters
    ----------
    threads : int, optional
        Threads that this rank should compute with; by default its even share of the host's cores.
    **options
        ``replicas``, ``bind_host``, ``ports``, ``links``, ``racks``, ``rendezvous_timeout_s``,
        ``heartbeat_timeout_s``, and ``tls``, whether all TCP connections are encrypted or none, by default what
        RIPIENO_TLS says, else those between hosts.

    Raises
    ------
    RendezvousError
        If variables are missing or wrong, or the ranks cannot meet.
    InputError
        A thread calls it in a process in which several ranks run programs; or cores are not enough for what
        RIPIENO_BIND and RIPIENO_THREAD_AFFINITY ask for; or RIPIENO_TLS is neither 0 nor 1.
    """
    global _current
    own = running.of_this_thread() or current() or running.of_this_process()
    if own is not None:
        return own
    fill_standard_descriptors()
    launchers.take_secrets()
    if _send is not None:
        _send("meeting", None)
    _current = from_environment(launchers.own_variables(), threads=threads, on_event=_events, **options)
    atexit.register(_close)
    if _send is not None:
        _send("met", None)
    if _events is not None:
        # Before the communicator is closed.
        atexit.register(_events.begin(_current, EventOptions(False, _pulse_s)))
    _tell_peers_of_uncaught_exceptions()
    bind_together(_current, Binding.taken_from(os.environ), whole_process=True)
    return _current


def watched(send: Callable[[str, Any], None], pulse_s: str | None) -> None:
    """The script's launcher is told when it waits for the others, when it has met them, and how it fares, so often."""
    global _events, _pulse_s, _send
    _send = send
    if pulse_s is not None:
        _events, _pulse_s = Events(), float(pulse_s)
        _events.send = send


def current() -> Communicator | None:
    """The communicator that `init` made, or `Communicator.shrink` in its place, if it is open."""
    latest = None if _current is None else _current._latest
    return latest if latest is not None and not latest.closed else None


def has_met() -> bool:
    """Return whether `init` was called here."""
    return _current is not None


def _close() -> None:
    """At the end of the script."""
    comm = current()
    if comm is not None:
        comm.close()


def from_environment(
    variables: Mapping[str, str], *, threads: int | None, on_event: Events | None = None, **options: Any
) -> Communicator:
    """A new communicator as `variables` say."""
    place = launchers.detect(variables)
    options = flight.prepared(options)
    if options.get("tls") is None:
        options["tls"] = wants_tls(variables)
    if threads is None:
        share = usable_cores() if place is None else place.threads(usable_cores())
        threads = launchers.number(variables, "RIPIENO_THREADS", share)
    if place is None and (present := [name for name in VARIABLES if variables.get(name)]):
        missing = ", ".join(name for name in ("RANK", "WORLD_SIZE") if name not in present)
        raise RendezvousError(f"{', '.join(present)} set, but not {missing}: a launcher sets all or none")
    if place is None or place.is_alone:
        return single_rank(threads=threads, on_event=on_event, **options)
    import ripieno._native as _native

    options["rack"] = rack_of_this_host(options.pop("racks", None), variables)
    options.setdefault("replicas", launchers.number(variables, "RIPIENO_REPLICAS", 1))
    options.setdefault("bind_host", variables.get("RIPIENO_BIND_HOST") or ("127.0.0.1" if place.on_one_host else None))
    timeout_s = launchers.number(variables, "RIPIENO_RENDEZVOUS_TIMEOUT_S", MEETING_S)
    options.setdefault("rendezvous_timeout_s", timeout_s)
    with meeting.arranged(place, variables, options["rendezvous_timeout_s"]) as how:
        if place.rank == 0 and place.world_size > 1 and "tcp_store" in how:
            await_name(how["tcp_store"][0], options["rendezvous_timeout_s"])
        native = _native.Communicator.connect(place.rank, place.world_size, None, **how, **options)
    return Communicator(native, threads=threads, on_event=on_event)


def _tell_peers_of_uncaught_exceptions() -> None:
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        comm = current()
        if exit_message.said_by(error):
            return
        before(kind, error, trace)
        if comm is not None:
            comm.abort(*describe(error))

    sys.excepthook = hook
