"""Provide `init`, which creates a communicator for a script from the environment of its launcher.

`ripieno.launch.script.launchers` reads rank and world size. `ripieno.launch.script.rendezvous` selects the
rendezvous and the token. docs/environment.md lists all variables.
"""

from __future__ import annotations

import atexit
import math
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ripieno._checks import TIMEOUT_S_MAX, check_threads, seconds_of, time_limit
from ripieno.comm.communicator import Communicator
from ripieno.comm.rank import describe
from ripieno.errors import InputError, RendezvousError
from ripieno.host import usable_cores
from ripieno.launch.binding import Binding, bind_together
from ripieno.launch.encryption import wants_tls
from ripieno.launch.job.inline import single_rank
from ripieno.launch.job.programs import EventOptions, Events, connect
from ripieno.launch.limits import RENDEZVOUS_TIMEOUT_S
from ripieno.launch.process import running
from ripieno.launch.process.processes import fill_standard_descriptors
from ripieno.launch.process.waits import WaitReporter
from ripieno.launch.script import exit_message, launchers, rendezvous
from ripieno.launch.script.addresses import await_name

# Environment variables that only ranks have.
VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "RIPIENO_DIRECTORY", "RIPIENO_TOKEN")

# The communicator that `init` has created in this process.
_current: Communicator | None = None
# Sends the communicator's events to the launcher, if it has a dashboard.
_events: Events | None = None
_telemetry_interval_s = 0.0
# Sends messages to the launcher, if it listens.
_send: Callable[[str, Any], None] | None = None


def init(*, threads: int | None = None, **options: Any) -> Communicator:
    """Return the communicator of a script under ``ripieno run``, ``srun``, ``mpirun``, ``mpiexec`` or ``torchrun``.

    In a program of `Job.run`, and in threads that it starts, this is the communicator of the program. Without a
    launcher, or as the only rank, the script gets a world of one rank. Repeated calls return the same communicator. It
    is closed when the script ends; an uncaught exception is first reported to the other ranks. The call removes
    RIPIENO_TOKEN from the environment, so child processes do not inherit it.

    Parameters
    ----------
    threads : int, optional
        Threads of this rank; by default its even share of the host's cores.
    **options
        ``replicas``, ``bind_host``, ``ports``, ``links``, ``racks``, ``rendezvous_timeout_s``, ``heartbeat_timeout_s``,
        ``call_timeout_s``, by default RIPIENO_CALL_TIMEOUT_S: a call that waits longer for another rank ends the job
        with `CallTimeout`; and ``tls``: whether all TCP connections are encrypted, or none. By default RIPIENO_TLS
        decides; without it, connections between hosts are encrypted.

    Raises
    ------
    RendezvousError
        If variables are missing or invalid, or the ranks cannot join.
    InputError
        If a thread calls it in a process in which several ranks run programs, if there are too few cores for
        RIPIENO_BIND and RIPIENO_THREAD_AFFINITY, if RIPIENO_TLS is neither 0 nor 1, or if `call_timeout_s` or
        RIPIENO_CALL_TIMEOUT_S is not a number of seconds.
    """
    global _current
    own = running.of_this_thread() or current() or running.of_this_process()
    if own is not None:
        return own
    fill_standard_descriptors()
    launchers.take_secrets()
    if _send is not None:
        _send("connecting", None)
    _current = from_environment(launchers.own_variables(), threads=threads, on_event=_events, **options)
    atexit.register(_close)
    if _send is not None:
        _send("connected", None)
    if _current.world_size > 1:
        WaitReporter(current, _send).start()
    if _events is not None:
        # Exit handlers run in reverse order, so events end before the communicator is closed.
        atexit.register(_events.begin(_current, EventOptions(False, _telemetry_interval_s)))
    _abort_on_uncaught_exception()
    bind_together(_current, Binding.take_from(os.environ), whole_process=True)
    return _current


def report_to(send: Callable[[str, Any], None], telemetry_interval_s: str | None) -> None:
    """Report waits for other ranks to the script's launcher, and telemetry at this interval."""
    global _events, _telemetry_interval_s, _send
    _send = send
    if telemetry_interval_s is not None:
        _events, _telemetry_interval_s = Events(), float(telemetry_interval_s)
        _events.send = send


def current() -> Communicator | None:
    """Return the communicator of `init`, or its successor after `Communicator.shrink`, if it is open."""
    latest = None if _current is None else _current._latest
    return latest if latest is not None and not latest.closed else None


def was_initialized() -> bool:
    """Return whether `init` was called in this process."""
    return _current is not None


def _close() -> None:
    """Close the communicator at the end of the script."""
    comm = current()
    if comm is not None:
        comm.close()


def from_environment(
    variables: Mapping[str, str], *, threads: int | None, on_event: Events | None = None, **options: Any
) -> Communicator:
    """Create a communicator from `variables`."""
    place = launchers.detect(variables)
    default_s = seconds_of(variables, "RIPIENO_CALL_TIMEOUT_S", math.inf)
    options["call_timeout_s"] = time_limit("call_timeout_s", options.get("call_timeout_s", default_s))
    if options.get("tls") is None:
        options["tls"] = wants_tls(variables)
    if threads is None:
        share = usable_cores() if place is None else place.threads(usable_cores())
        threads = launchers.number(variables, "RIPIENO_THREADS", share)
        check_threads(threads, "RIPIENO_THREADS")
    check_threads(threads)
    # Kubernetes sets MASTER_PORT=tcp://… in every pod next to a service named master.
    present = [name for name in VARIABLES if variables.get(name) and not variables[name].startswith("tcp://")]
    if place is None and present:
        missing = ", ".join(name for name in ("RANK", "WORLD_SIZE") if name not in present)
        raise RendezvousError(f"{', '.join(present)} set, but not {missing}: a launcher sets all or none")
    if place is None or place.is_alone:
        return single_rank(threads=threads, on_event=on_event, **options)
    options.setdefault("replicas", launchers.number(variables, "RIPIENO_REPLICAS", 1))
    options.setdefault("bind_host", variables.get("RIPIENO_BIND_HOST") or ("127.0.0.1" if place.on_one_host else None))
    timeout_s = seconds_of(variables, "RIPIENO_RENDEZVOUS_TIMEOUT_S", RENDEZVOUS_TIMEOUT_S)
    options.setdefault("rendezvous_timeout_s", timeout_s)
    if options["rendezvous_timeout_s"] > TIMEOUT_S_MAX:
        raise InputError(
            f"rendezvous_timeout_s={options['rendezvous_timeout_s']!r}: expected at most {TIMEOUT_S_MAX:,} seconds"
        )
    with rendezvous.joined(place, variables, options["rendezvous_timeout_s"]) as rendezvous_options:
        if place.rank == 0 and place.world_size > 1 and "tcp_store" in rendezvous_options:
            await_name(rendezvous_options["tcp_store"][0], options["rendezvous_timeout_s"])
        options |= rendezvous_options
        return connect(place.rank, place.world_size, None, threads=threads, on_event=on_event, **options)


def _abort_on_uncaught_exception() -> None:
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        comm = current()
        if exit_message.is_reported_by_another(error):
            return
        before(kind, error, trace)
        if comm is not None:
            comm.abort(*describe(error))

    sys.excepthook = hook
