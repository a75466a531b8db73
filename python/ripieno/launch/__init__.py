"""Launching: worker ranks as processes of this machine, or in whatever engine there is."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any, get_args

from ripieno._checks import check_count, whole
from ripieno._types import OnFailure
from ripieno.errors import InputError
from ripieno.flight.trace import Trace
from ripieno.host import cores, usable_cores
from ripieno.launch.binding import Binding, places
from ripieno.launch.encryption import wants_tls
from ripieno.launch.engine.contract import Engine
from ripieno.launch.engines import ENGINES, engine_of
from ripieno.launch.job.accumulators import JobAccumulator
from ripieno.launch.job.broadcast import Broadcast
from ripieno.launch.job.inline import InlineJob
from ripieno.launch.job.job import EventListener, Job
from ripieno.launch.job.local import LocalJob
from ripieno.launch.job.replicas import checked as checked_replicas
from ripieno.launch.job.watch import JobWatch
from ripieno.launch.limits import check_room
from ripieno.launch.process.processes import fill_standard_descriptors
from ripieno.launch.script.environment import init

__all__ = ["Broadcast", "Job", "JobAccumulator", "init", "launch"]


def launch(
    workers: int | None = None,
    engine: str | Engine = "local",
    threads: int | None = None,
    on_event: EventListener | None = None,
    *,
    replicas: int = 1,
    on_failure: OnFailure | None = None,
    spares: int = 0,
    bind: str = "none",
    thread_affinity: str = "inherit",
    prefix_output: bool = False,
    trace: str | os.PathLike[str] | None = None,
    dashboard: bool = False,
    **options: Any,
) -> Job:
    """Start worker ranks and let them meet.

    Parameters
    ----------
    workers : int, optional
        How many; by default one per usable core, or per slot of an engine. A single local one runs in this process and
        starts nothing.
    engine : {"local", "spark", "dask", "ray", "slurm", "mpirun"} or Engine
        Where they run. "local" workers are processes of this machine; others are tasks of an engine that runs already.
        docs/engines describes the engines, and how to write one.
    threads : int, optional
        Threads that each computes with; by default the usable cores divided among the workers, at least one, or the
        cores of an engine's slot.
    on_event : callable, optional
        Gets every dict that a rank emits, with its "rank", in the calling process while `Job.run` waits.
    replicas : int
        How many replicas there are of each logical rank: workers ``i`` and ``i + workers / replicas`` are replicas.
        Programs that communicate by ``comm.replicate(replicas)`` go on while one replica of each lives. `Job.run`
        returns one result for each logical rank.
    on_failure : {"raise", "shrink", "respawn"}, optional
        What happens if a rank dies or falls silent while a program runs. "raise", the default without `spares`, tells
        the caller. Otherwise the others meet anew, in milliseconds where they are local, and the program begins again
        with its arguments: with "shrink" on the ranks that are left, numbered anew, with "respawn" on as many as
        before, up to 3 times. What it has kept by a checkpoint it goes on from. In an engine all ranks are started
        anew. A program that raises something of its own has failed, whatever is said here.
    spares : int
        So many local processes more, which wait to take the place of ranks that have died: that saves the second in
        which a process starts. Only for "respawn", which is the default then.
    bind : {"core", "socket", "none"}
        What each local worker is bound to: as many cores as it has threads, a socket, or nothing. A single worker that
        is bound, or pins its threads, is a process of its own.
    thread_affinity : {"inherit", "pin"}
        Whether threads of a local worker may be wherever it may, or each thread of its kernels and teams has a core of
        its own. In engines, set the variables of docs/environment.md for the ranks.
    prefix_output : bool
        Mark each line that a worker prints with ``[rank 1]``, and write it to this process's ``sys.stdout`` and
        ``sys.stderr``, which in a notebook is the cell. By default workers write to the terminal themselves.
    trace : path, optional
        A file to write when the job ends, well or not: the collectives of every rank over time, for ui.perfetto.dev.
    dashboard : bool
        Serve a page that shows the job while it runs, and print its link, which is in ``job.dashboard.link``, too. See
        docs/dashboard.md.
    **options
        ``links`` ("auto", "tcp", "shared-memory"), ``rendezvous_timeout_s``, ``heartbeat_timeout_s``, ``bind_host``,
        ``ports``; ``racks``, a file or a dict of the hosts of each rack, see `ripieno.launch.racks`; ``tls``, whether
        all TCP connections are encrypted, or none; by default what RIPIENO_TLS says, else those between hosts are, see
        docs/security.md; and the options of an engine, see docs/engines.

    Returns
    -------
    Job
        To be used in a ``with`` statement.

    Raises
    ------
    InputError
        There are not enough cores to bind workers to, or to pin their threads to; or the memory of this machine does
        not suffice for so many local workers.
    EngineError
        The engine has too few free slots, or cannot be used; the message has the numbers.
    RendezvousError, RankFailed
        The workers could not meet, or one ended before.

    Examples
    --------
    >>> import ripieno as rp
    >>> def program(comm, first):
    ...     return comm.allreduce(first + comm.rank)
    >>> with rp.launch(workers=2) as job:
    ...     job.run(program, 10)
    [21, 21]
    """
    fill_standard_descriptors()
    if not isinstance(engine, Engine) and (not isinstance(engine, str) or engine not in ENGINES):
        raise InputError(f"engine={engine!r}: expected one of {', '.join(ENGINES)}, or an Engine")
    for name, value in (("workers", workers), ("threads", threads)):
        if value is not None:
            check_count(name, value)
    if on_event is not None and not callable(on_event):
        raise InputError(f"on_event: a {type(on_event).__name__}: expected a function of a dict")
    if trace is not None and not isinstance(trace, str | os.PathLike):
        raise InputError(f"trace={trace!r}: expected the path of a file to write")
    if on_failure not in (None, *get_args(OnFailure)):
        raise InputError(f"on_failure={on_failure!r}: expected one of {', '.join(get_args(OnFailure))}")
    spares = whole("spares", spares, 0, 2**16)
    on_failure = on_failure or ("respawn" if spares else "raise")
    if spares and on_failure != "respawn":
        raise InputError(f"spares={spares}, on_failure={on_failure!r}: spares are for 'respawn'")
    if replicas != 1 and on_failure != "raise":
        raise InputError(
            f"replicas={replicas}, on_failure={on_failure!r}: ranks with replicas go on by themselves: choose one"
        )
    binding = Binding(bind, thread_affinity)
    if options.get("tls") is None:
        options["tls"] = wants_tls(os.environ)
    if not isinstance(dashboard, bool):
        raise InputError(f"dashboard={dashboard!r}: expected True or False; RIPIENO_DASHBOARD_ADDRESS says where")
    common: dict[str, Any] = {"on_event": on_event, "trace": None if trace is None else Trace(trace)}
    if engine != "local":
        if prefix_output:
            name = engine if isinstance(engine, str) else engine.NAME
            raise InputError(f"prefix_output=True is for local workers: what ranks print goes where {name} takes it")
        if binding.is_asked:
            instead = ", ".join(f"{variable}={value}" for variable, value in binding.environment.items())
            raise InputError(f"{binding}: is for local workers; for ranks of an engine set {instead}")
        where, options = engine_of(engine, options) if isinstance(engine, str) else (engine, options)
        _check_options(options, where.NAME, where.OPTIONS)
        # Where there is no room at all the engine says so.
        workers = workers or max(1, where.slots())
        return _watched(
            dashboard,
            where.job,
            workers,
            threads=threads or where.threads,
            replicas=checked_replicas(replicas, workers),
            on_failure=on_failure,
            spares=spares,
            **common,
            **options,
        )
    _check_options(options, "local", frozenset())
    workers = workers or usable_cores()
    threads = threads or max(1, usable_cores() // workers)
    replicas = checked_replicas(replicas, workers)
    check_room(workers, spares)
    # Too few cores are told before anything starts.
    places(binding, [threads] * workers, cores())
    if workers == 1 and not binding.is_asked:
        if spares:
            raise InputError(f"spares={spares}: the only rank is the calling process: expected workers=2 or more")
        return _watched(dashboard, InlineJob, threads=threads, **common, **options)
    return _watched(
        dashboard,
        LocalJob,
        workers,
        threads=threads,
        replicas=replicas,
        binding=binding,
        on_failure=on_failure,
        spares=spares,
        prefix_output=prefix_output,
        **common,
        **options,
    )


def _watched(is_asked: bool, make: Callable[..., Job], *args: Any, **options: Any) -> Job:
    """The job that is made, with a dashboard if it is to have one."""
    watch = JobWatch(is_asked)
    try:
        return make(*args, watch=watch, **options)
    except BaseException:
        watch.close()
        raise


def _check_options(options: Mapping[str, Any], engine: str, own: frozenset[str]) -> None:
    """Raise `InputError` if there is one that ranks do not have, or a number of seconds that is none."""
    for name, value in options.items():
        if name in own:
            raise InputError(f"{name}={value!r}: give it to the engine {engine} when you make it")
        if name not in _OPTIONS:
            known = ", ".join((*_OPTIONS, *sorted(own)))
            raise InputError(f"{name}={value!r}: there is no such option of engine {engine}; there are {known}")
        is_valid, expected = _OPTIONS[name]
        if not is_valid(value):
            raise InputError(f"{name}={value!r}: expected {expected}")


def _is_duration(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and 0 < float(value) < math.inf


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_range(value: Any) -> bool:
    are_ports = isinstance(value, tuple) and all(
        isinstance(each, Integral) and 0 < int(each) < 1 << 16 for each in value
    )
    return are_ports and len(value) == 2 and value[0] <= value[1]


# Of the ranks, in every engine: whether a value will do, and what is expected.
_OPTIONS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "bind_host": (lambda value: value is None or _is_text(value), "a name or an address"),
    "heartbeat_timeout_s": (_is_duration, "a positive number of seconds"),
    "links": (_is_text, '"auto", "tcp" or "shared-memory"'),
    "ports": (lambda value: value is None or _is_range(value), "the first and the last port, as (5000, 5010)"),
    "racks": (
        lambda value: value is None or isinstance(value, str | os.PathLike | Mapping),
        "a file or a dict of racks",
    ),
    "rendezvous_timeout_s": (_is_duration, "a positive number of seconds"),
    "tls": (lambda value: value is None or isinstance(value, bool), "True, False or None"),
}
