"""Provide ``ripieno run``, which runs a script as several ranks on this machine. All ranks end with the run."""

from __future__ import annotations

import errno
import os
import secrets
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from ripieno.host import cores, usable_cores
from ripieno.launch import limits
from ripieno.launch.binding import Binding, cpus_of_ranks
from ripieno.launch.encryption import TLS_VARIABLE
from ripieno.launch.job.watch import JobWatch
from ripieno.launch.process import processes as process
from ripieno.launch.process.channel import pair
from ripieno.launch.process.forked import fork
from ripieno.launch.process.output import LinePump
from ripieno.launch.replicas import replicas_environment
from ripieno.launch.script import launchers
from ripieno.launch.script.addresses import reserved_port
from ripieno.launch.script.driver import ScriptDriver, ScriptRank, name_of_rank

# Number of attempts if another process takes the reserved port of rank 0.
PORT_ATTEMPT_COUNT = 3

INTERRUPTED = 130


@dataclass(frozen=True)
class Script:
    """A script and the options of its run.

    Attributes
    ----------
    target, arguments
        A file, or with `module` the name of a module, and its arguments.
    flags
        Options of the interpreter.
    prefix
        Whether to prefix lines of output with the rank.
    threads
        Threads of NumPy's libraries, and `Communicator.threads`; None divides the cores evenly.
    racks
        Path of a file with the racks of hosts, see `ripieno.launch.racks`.
    replicas
        Number of replicas of each logical rank, see `ripieno.launch.replicas`.
    binding
        Cores of ranks and their threads, see `ripieno.launch.binding`.
    independent
        Whether ranks continue when another one fails. If rank 0 exits, the run ends.
    tls
        Whether to encrypt all TCP connections of ranks (True) or none (False). None follows RIPIENO_TLS; without it,
        connections between hosts are encrypted.
    on_failure
        With "shrink" the run continues without lost ranks, as long as one rank continues.
    """

    target: str
    arguments: Sequence[str] = ()
    module: bool = False
    flags: Sequence[str] = ()
    prefix: bool = True
    threads: int | None = None
    racks: str | None = None
    replicas: int = 1
    binding: Binding = field(default_factory=Binding)
    independent: bool = False
    tls: bool | None = None
    on_failure: Literal["raise", "shrink"] = "raise"

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables for the ranks, independent of their launcher."""
        # RACK is cleared because it takes precedence over the file.
        racks = {} if self.racks is None else {"RIPIENO_RACKS": os.path.abspath(self.racks), "RACK": ""}
        replicas = {} if self.replicas == 1 else {"RIPIENO_REPLICAS": str(self.replicas)}
        threads = {} if self.threads is None else threads_environment(self.threads)
        tls = {} if self.tls is None else {TLS_VARIABLE: str(int(self.tls))}
        return {
            **racks,
            **tls,
            **replicas,
            **replicas_environment(self.replicas),
            **threads,
            **self.binding.environment,
        }


def under_launcher(asks_for_workers: bool = False) -> bool:
    """Return whether a launcher has started this process as a rank.

    The only task of a launcher, such as an interactive shell of srun, is not a rank if the user requests workers.
    """
    place = launchers.detect(launchers.own_variables())
    return place is not None and not (asks_for_workers and place.is_alone)


def run_here(script: Script) -> None:
    """Replace this process, which is already a rank, by the script."""
    sys.stdout.flush()
    target = ["-m", script.target] if script.module else [script.target]
    place = launchers.detect(launchers.own_variables())
    share = usable_cores() if place is None else place.threads(usable_cores())
    # Thread variables that the launcher or the user has set take precedence.
    environment = {**process.thread_environment(share), **os.environ, **script.environment}
    os.execve(sys.executable, [sys.executable, *script.flags, *target, *script.arguments], environment)


def run(script: Script, world_size: int, watch: JobWatch | None = None) -> int:
    """Run `script` as `world_size` ranks; return the exit code.

    It is 0 if all ranks succeed, else the exit code of the rank that failed first (128 + signal if it was killed). With
    replicas a rank may die without a report as long as one of its replicas lives. No rank outlives the call, even if an
    exception ends it.

    Raises
    ------
    InputError
        If there are too few cores for the binding, or too little memory or too few descriptors for the ranks.
    """
    limits.check_workers(world_size)
    cpus_of_ranks(script.binding, [script.threads or max(1, usable_cores() // world_size)] * world_size, cores())
    watch = watch or JobWatch()
    try:
        for _ in range(PORT_ATTEMPT_COUNT):
            ranks: list[ScriptRank] = []
            failed = _run_once(script, world_size, ranks, watch)
            if failed is None or not _port_was_taken(failed):
                break
    finally:
        watch.close()
    return 0 if failed is None else _explain(failed, ranks, script)


def threads_environment(threads: int) -> dict[str, str]:
    """Return the variables for a rank with `threads` threads."""
    return {**process.thread_environment(threads), "RIPIENO_THREADS": str(threads)}


def _run_once(script: Script, world_size: int, ranks: list[ScriptRank], watch: JobWatch) -> ScriptRank | None:
    """Run all ranks to their end and append them to `ranks`; return the rank that failed first, if any."""
    pump = LinePump(watch.output) if script.prefix else None
    with reserved_port("127.0.0.1") as port:
        common = {
            "WORLD_SIZE": str(world_size),
            "LOCAL_WORLD_SIZE": str(world_size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "RIPIENO_TOKEN": secrets.token_hex(32),
            "RIPIENO_RENDEZVOUS_TIMEOUT_S": os.environ.get("RIPIENO_RENDEZVOUS_TIMEOUT_S")
            or f"{limits.rendezvous_s(world_size):.0f}",
            **threads_environment(max(1, usable_cores() // world_size)),
            **watch.environment(world_size),
            **script.environment,
        }
        try:
            for rank in range(world_size):
                ranks.append(_start(script, rank, common, pump))
            if pump is not None:
                pump.start()
            watch.begins(script.target, f"processes of {socket.gethostname()}", 0, [socket.gethostname()] * world_size)
            with watch.program(script.target):
                return ScriptDriver(ranks, script, watch).wait()
        finally:
            process.end([each.process for each in ranks], grace_s=0.0)
            for each in ranks:
                each.channel.close()
            if pump is not None:
                pump.close()


def _start(script: Script, rank: int, common: dict[str, str], pump: LinePump | None) -> ScriptRank:
    channel, theirs = pair(limits.EXIT_S)
    unbuffered = {} if pump is None else {"PYTHONUNBUFFERED": "1"}
    with theirs:
        child = fork(
            theirs.fileno(),
            "ripieno.launch.script.script",
            ["module" if script.module else "file", script.target, *script.arguments],
            environment={**process.package_path(), **common, **unbuffered, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            piped=pump is not None,
            # As with mpirun, rank 0 reads standard input.
            reads=rank == 0,
            flags=script.flags,
        )
    if pump is not None:
        pump.add(f"rank {rank}", child)
    return ScriptRank(rank, child, channel)


def _port_was_taken(failed: ScriptRank) -> bool:
    return failed.rank == 0 and failed.report is not None and os.strerror(errno.EADDRINUSE) in failed.report.cause


def _explain(failed: ScriptRank, ranks: list[ScriptRank], script: Script) -> int:
    """Print the first failure and the last operations of the ranks; return the exit code."""
    report, status = failed.report, failed.status
    if report is None:
        assert status, "a rank that failed without a report has ended with a status"
        text, end = "", f"{name_of_rank(failed.rank, script)} failed: {process.ending(status)}"
    elif report.victim is None:
        text, end = report.traceback.rstrip(), f"{name_of_rank(failed.rank, script)} failed: {report.cause}"
    else:
        victim = report.victim
        cause = f"{victim.cause or 'cause unknown'}, as rank {failed.rank} reports"
        text, end = victim.traceback.rstrip(), f"{name_of_rank(victim.rank, script)} failed: {cause}"
    flight = [line for each in ranks if each.report is not None for line in each.report.flight if line not in text]
    print("\n".join([text, *flight, end]).lstrip(), file=sys.stderr)
    if status and status < 0 and report is None:
        return 128 - status
    return status if status and 0 < status < process.UNKNOWN_STATUS else 1
