"""Provide `launch`, which starts worker ranks as processes of this machine or as tasks of an engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any, get_args

from ripieno._checks import TIMEOUT_S_MAX, check_count, check_threads, whole_number
from ripieno._types import OnFailure
from ripieno.errors import InputError
from ripieno.flight.trace import Trace
from ripieno.host import cores, usable_cores
from ripieno.launch.binding import Binding, cpus_of_ranks
from ripieno.launch.encryption import wants_tls
from ripieno.launch.engine.contract import Engine
from ripieno.launch.engines import ENGINES, engine_of
from ripieno.launch.job.accumulators import JobAccumulator
from ripieno.launch.job.broadcast import Broadcast
from ripieno.launch.job.inline import InlineJob
from ripieno.launch.job.job import EventListener, Job
from ripieno.launch.job.local import LocalJob
from ripieno.launch.job.watch import JobWatch
from ripieno.launch.limits import check_workers
from ripieno.launch.process.processes import fill_standard_descriptors
from ripieno.launch.replicas import checked as checked_replicas
from ripieno.launch.script.environment import init
from ripieno.launch.supervisor import RankState, RankStatus

__all__ = ["Broadcast", "Job", "JobAccumulator", "RankState", "RankStatus", "init", "launch"]


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
    """Start worker ranks and wait until they have joined.

    Parameters
    ----------
    workers : int, optional
        Number of ranks; by default one per usable core, or per slot of an engine. A single local worker runs in this
        process.
    engine : {"local", "spark", "dask", "ray", "slurm", "mpirun"} or Engine
        Where the ranks run. "local" workers are processes of this machine; others are tasks of a running engine.
        docs/engines describes the engines, and how to write one.
    threads : int, optional
        Threads of each rank; by default the usable cores divided among the workers, at least one, or the cores of an
        engine's slot.
    on_event : callable, optional
        Called in the calling process, while `Job.run` waits, with every dict that a rank emits and its "rank".
    replicas : int
        Number of replicas of each logical rank: workers ``i`` and ``i + workers / replicas`` are replicas. Programs
        that communicate through ``comm.replicate(replicas)`` continue while one replica of each logical rank lives.
        `Job.run` returns one result per logical rank.
    on_failure : {"raise", "shrink", "respawn"}, optional
        The reaction if a rank dies or sends no heartbeats during a program. "raise", the default without `spares`,
        raises an error. Otherwise the remaining ranks join again, locally within milliseconds, and the program restarts
        with its arguments. "shrink" restarts it on the remaining ranks, with new numbers. "respawn" restarts it on as
        many ranks as before, up to 3 times. The program can continue from its checkpoints. An engine restarts all
        ranks. An exception of the program itself always ends the run.
    spares : int
        Number of additional local processes that wait to replace dead ranks, which saves about a second of start-up.
        Only for "respawn", which is then the default.
    bind : {"core", "socket", "none"}
        CPUs of each local worker: as many cores as it has threads, a socket, or all. A single worker that is bound, or
        pins its threads, runs in its own process.
    thread_affinity : {"inherit", "pin"}
        Whether threads of a local worker may use all its CPUs, or each thread of its kernels and teams has its own
        core. For engines, set the variables of docs/environment.md on the ranks.
    prefix_output : bool
        Prefix each line that a worker prints with ``[rank 1]``, and write it to this process's ``sys.stdout`` and
        ``sys.stderr``, which in a notebook is the cell. By default workers write to the terminal directly.
    trace : path, optional
        A file to write at the end of the job, even after an error: a timeline of all collectives for ui.perfetto.dev.
    dashboard : bool
        Serve a page that shows the running job, and print its link, which is also in ``job.dashboard.link``. See
        docs/dashboard.md.
    **options
        ``call_timeout_s``: a call that waits longer for another rank ends the job with `CallTimeout`; by default, or
        with None, calls wait as long as the other rank lives. ``links`` ("auto", "tcp", "shared-memory"),
        ``rendezvous_timeout_s``, ``heartbeat_timeout_s``, ``bind_host``, ``ports``; ``racks``, a file or a dict of the
        hosts of each rack, or "find", see docs/racks.md; ``tls``: whether to encrypt all TCP connections, or none. By
        default RIPIENO_TLS decides; without it, connections between hosts are encrypted, see docs/security.md. Also the
        options of an engine, see docs/engines.

    Returns
    -------
    Job
        The job, for use in a ``with`` statement.

    Raises
    ------
    InputError
        If there are too few cores to bind workers or to pin their threads, or too little memory for that many local
        workers.
    EngineError
        If the engine has too few free slots, or is unavailable; the message contains the numbers.
    RendezvousError, RankFailed
        If the workers could not join, or a worker ended before the ranks had joined.

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
    if workers is not None:
        check_count("workers", workers)
    if threads is not None:
        check_threads(threads)
    if on_event is not None and not callable(on_event):
        raise InputError(f"on_event: a {type(on_event).__name__}: expected a function of a dict")
    if trace is not None and not isinstance(trace, str | os.PathLike):
        raise InputError(f"trace={trace!r}: expected the path of a file to write")
    if on_failure not in (None, *get_args(OnFailure)):
        raise InputError(f"on_failure={on_failure!r}: expected one of {', '.join(get_args(OnFailure))}")
    spares = whole_number("spares", spares, 0, 2**16)
    on_failure = on_failure or ("respawn" if spares else "raise")
    if spares and on_failure != "respawn":
        raise InputError(f"spares={spares}, on_failure={on_failure!r}: spares are for 'respawn'")
    if replicas != 1 and on_failure != "raise":
        raise InputError(
            f"replicas={replicas}, on_failure={on_failure!r}: ranks with replicas continue by themselves: choose one"
        )
    binding = Binding(bind, thread_affinity)
    if options.get("tls") is None:
        options["tls"] = wants_tls(os.environ)
    if not isinstance(dashboard, bool):
        raise InputError(f"dashboard={dashboard!r}: expected True or False; RIPIENO_DASHBOARD_ADDRESS sets the address")
    common: dict[str, Any] = {"on_event": on_event, "trace": None if trace is None else Trace(trace)}
    if engine != "local":
        if prefix_output:
            name = engine if isinstance(engine, str) else engine.NAME
            raise InputError(f"prefix_output=True is for local workers: {name} collects the output of its ranks")
        if binding.is_requested:
            instead = ", ".join(f"{variable}={value}" for variable, value in binding.environment.items())
            raise InputError(f"{binding}: is for local workers; for ranks of an engine set {instead}")
        where, options = engine_of(engine, options) if isinstance(engine, str) else (engine, options)
        _check_options(options, where.NAME, where.OPTIONS)
        # If the engine has no slots, its `start` raises the error.
        workers = workers or max(1, where.slots())
        return _create_job(
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
    check_workers(workers, spares)
    # Raise the error about too few cores before any process starts.
    cpus_of_ranks(binding, [threads] * workers, cores())
    if workers == 1 and not binding.is_requested:
        if spares:
            raise InputError(f"spares={spares}: the only rank is the calling process: expected workers=2 or more")
        return _create_job(dashboard, InlineJob, threads=threads, **common, **options)
    return _create_job(
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


def _create_job(is_requested: bool, make: Callable[..., Job], *args: Any, **options: Any) -> Job:
    """Create the job, with a dashboard if one is requested."""
    watch = JobWatch(is_requested)
    try:
        return make(*args, watch=watch, **options)
    except BaseException:
        watch.close()
        raise


def _check_options(options: Mapping[str, Any], engine: str, own: frozenset[str]) -> None:
    """Raise `InputError` for an unknown option, or an invalid number of seconds."""
    for name, value in options.items():
        if name in own:
            raise InputError(f"{name}={value!r}: pass it to the constructor of the engine {engine}")
        if name not in _OPTIONS:
            known = ", ".join((*_OPTIONS, *sorted(own)))
            raise InputError(f"{name}={value!r}: engine {engine} has no such option; it has {known}")
        is_valid, expected = _OPTIONS[name]
        if not is_valid(value):
            raise InputError(f"{name}={value!r}: expected {expected}")


def _is_duration(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and 0 < float(value) <= TIMEOUT_S_MAX


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_range(value: Any) -> bool:
    are_ports = isinstance(value, tuple) and all(
        isinstance(each, Integral) and 0 < int(each) < 1 << 16 for each in value
    )
    return are_ports and len(value) == 2 and value[0] <= value[1]


# Options of ranks in every engine: a check of the value, and a description of valid values.
_OPTIONS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "bind_host": (lambda value: value is None or _is_text(value), "a name or an address"),
    "call_timeout_s": (
        lambda value: value is None or _is_duration(value) or value == float("inf"),
        f"a positive number of seconds, at most {TIMEOUT_S_MAX:,}, or None for no limit",
    ),
    "heartbeat_timeout_s": (_is_duration, f"a positive number of seconds, at most {TIMEOUT_S_MAX:,}"),
    "links": (_is_text, '"auto", "tcp" or "shared-memory"'),
    "ports": (lambda value: value is None or _is_range(value), "the first and the last port, as (5000, 5010)"),
    "racks": (
        lambda value: value is None or isinstance(value, str | os.PathLike | Mapping),
        "a file or a dict of racks, or 'find'",
    ),
    "rendezvous_timeout_s": (_is_duration, f"a positive number of seconds, at most {TIMEOUT_S_MAX:,}"),
    "tls": (lambda value: value is None or isinstance(value, bool), "True, False or None"),
}
