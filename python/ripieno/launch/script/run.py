"""``ripieno run``: a script as several ranks of this machine, which live and die together."""

from __future__ import annotations

import errno
import os
import secrets
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from ripieno.host import cores, usable_cores
from ripieno.launch.binding import Binding, places
from ripieno.launch.encryption import TLS_VARIABLE
from ripieno.launch.job.replicas import replicas_environment, replicas_of
from ripieno.launch.job.watch import Watch
from ripieno.launch.process import processes as process
from ripieno.launch.process.channel import Channel, HungUp, pair
from ripieno.launch.process.interruption import interruptible
from ripieno.launch.process.output import LinePump
from ripieno.launch.process.report import FailureReport
from ripieno.launch.script import launchers

# After the first failure the other ranks have this long to report, tidy up and end by themselves.
LAST_WORDS_S = 1.5
# The one that they name as the first gets this long to end, for its exit code is that of the run.
CULPRIT_S = 5.0
# A rank that has begun to report, or closed its channel, gets this long to go on, or to end.
REPORT_S = 10.0
# Of ranks that are independent, those that stand still get this long to end once rank 0 has.
STRAGGLERS_S = 5.0
# A rank that is stopped while others wait to meet it is told to go on by nobody.
STOPPED_S = 5.0
# It is looked so often who is stopped.
LOOK_S = 0.5
# How often to start anew because somebody else took the port that rank 0 was to listen on.
PORT_ATTEMPT_COUNT = 3

INTERRUPTED = 130


@dataclass(frozen=True)
class Script:
    """What to run, and how.

    Attributes
    ----------
    target, arguments
        A file, or with `module` the name of a module, and its arguments.
    flags
        Options of the interpreter.
    prefix
        Whether to mark lines of output with their rank.
    threads
        For the libraries under NumPy, and `Communicator.threads`; None is an even share of the cores.
    racks
        A file that says which hosts stand in which rack, see `ripieno.launch.racks`.
    replicas
        How many replicas there are of each logical rank, see `ripieno.launch.job.replicas`.
    binding
        On which cores ranks and their threads are, see `ripieno.launch.binding`.
    independent
        Whether ranks go on when another one fails. When rank 0 ends by itself, it knows that all is over.
    tls
        Whether all TCP connections of ranks are encrypted, or none; None is what RIPIENO_TLS says, else those between
        hosts.
    on_failure
        With "shrink" ranks that die, or are left behind, are done without as long as one goes on.
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
        """What its ranks find in the environment, whoever starts them."""
        # Without a name in RACK, which would be stronger than the file.
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


@dataclass
class _Rank:
    rank: int
    process: subprocess.Popen[bytes]
    channel: Channel
    is_meeting: bool = False
    has_met: bool = False
    stopped_at: float | None = None
    report: FailureReport | None = None
    status: int | None = None

    @property
    def failed(self) -> bool:
        return bool(self.status) or self.report is not None

    @property
    def victim(self) -> bool:
        return self.report is not None and self.report.victim is not None


def under_launcher(asks_for_workers: bool = False) -> bool:
    """Whether a launcher has started this process as a rank.

    The only task of a launcher, such as an interactive shell of srun, is no rank to one who asks for workers.
    """
    place = launchers.detect(launchers.own_variables())
    return place is not None and not (asks_for_workers and place.is_alone)


def run_here(script: Script) -> None:
    """Become the script: this process is a rank already."""
    sys.stdout.flush()
    target = ["-m", script.target] if script.module else [script.target]
    place = launchers.detect(launchers.own_variables())
    share = usable_cores() if place is None else place.threads(usable_cores())
    # What a launcher or user has said of threads is left as it is.
    environment = {**process.thread_environment(share), **os.environ, **script.environment}
    os.execve(sys.executable, [sys.executable, *script.flags, *target, *script.arguments], environment)


def run(script: Script, world_size: int, watch: Watch | None = None) -> int:
    """Run `script` as `world_size` ranks; returns the exit code.

    It is 0 if all ranks end well, else that of the rank that failed first (128 + signal if it was killed). With
    replicas a rank may die without a word as long as one of its replicas does not. No rank outlives the call, whatever
    ends it.

    Raises
    ------
    InputError
        The cores are not enough for what the ranks are to be bound to.
    """
    places(script.binding, [script.threads or max(1, usable_cores() // world_size)] * world_size, cores())
    watch = watch or Watch()
    try:
        for _ in range(PORT_ATTEMPT_COUNT):
            ranks: list[_Rank] = []
            failed = _run_once(script, world_size, ranks, watch)
            if failed is None or not _port_was_taken(failed):
                break
    finally:
        watch.close()
    return 0 if failed is None else _explain(failed, ranks, script)


def threads_environment(threads: int) -> dict[str, str]:
    """Variables for a rank that computes with so many threads."""
    return {**process.thread_environment(threads), "RIPIENO_THREADS": str(threads)}


def _run_once(script: Script, world_size: int, ranks: list[_Rank], watch: Watch) -> _Rank | None:
    """Run all ranks, which are added to `ranks`, to their end; the one that failed first, if any."""
    pump = LinePump(watch.output) if script.prefix else None
    # Bound but not listening, this socket keeps the port from everyone but rank 0.
    with socket.socket() as reservation:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reservation.bind(("127.0.0.1", 0))
        common = {
            "WORLD_SIZE": str(world_size),
            "LOCAL_WORLD_SIZE": str(world_size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(reservation.getsockname()[1]),
            "RIPIENO_TOKEN": secrets.token_hex(32),
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
                return _wait(ranks, script, watch)
        finally:
            process.end([each.process for each in ranks], patience_s=0.0)
            for each in ranks:
                each.channel.close()
            if pump is not None:
                pump.close()


def _start(script: Script, rank: int, common: dict[str, str], pump: LinePump | None) -> _Rank:
    channel, theirs = pair(REPORT_S)
    pipes = {} if pump is None else {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    unbuffered = {} if pump is None else {"PYTHONUNBUFFERED": "1"}
    kind = "module" if script.module else "file"
    with theirs:
        child = process.start(
            "ripieno.launch.script.script",
            [str(theirs.fileno()), str(os.getpid()), kind, script.target, *script.arguments],
            environment={**common, **unbuffered, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            flags=script.flags,
            pass_fds=[theirs.fileno()],
            # As under mpirun, what is typed goes to rank 0.
            stdin=None if rank == 0 else subprocess.DEVNULL,
            **pipes,
        )
    if pump is not None:
        pump.add(f"rank {rank}", child)
    return _Rank(rank, child, channel)


def _wait(ranks: list[_Rank], script: Script, watch: Watch) -> _Rank | None:
    """Until all have ended, or some time after the first has failed; that one, unless a copy goes on in its place."""
    lost: set[int] = set()
    first: _Rank | None = None
    failed_at: float | None = None
    over_at: float | None = None
    stopped_at: float | None = None
    said_at: float | None = None
    with selectors.DefaultSelector() as selector, interruptible(selector) as ready:
        for each in ranks:
            selector.register(each.channel, selectors.EVENT_READ, each)
        while selector.get_map():
            left_s = None if failed_at is None else failed_at + _patience_s(first, ranks) - time.monotonic()
            if over_at is not None:
                left_s = over_at + STRAGGLERS_S - time.monotonic()
            if left_s is None:
                stopped_at = _all_stopped_since(ranks, stopped_at)
                if stopped_at is not None and time.monotonic() > stopped_at + STRAGGLERS_S:
                    if _have_ended_without(ranks, script):
                        break
                    # As when somebody suspends the job: they may be told to go on. Each time it is said once.
                    if said_at != stopped_at:
                        _say_stopped(ranks, script)
                        said_at = stopped_at
            elif left_s <= 0:
                break
            heard: list[_Rank] = []
            for key, _ in ready(LOOK_S if left_s is None else left_s):
                heard.append(key.data)
                if _hear(key.data, watch):
                    selector.unregister(key.fileobj)
                    if script.independent and key.data.rank == 0 and key.data.status in range(256):
                        over_at = time.monotonic()
            for each in [*heard, *_missed_while_stopped(ranks)]:
                if not each.failed or each.rank in lost:
                    continue
                if not each.victim:
                    watch.lost(each.rank, _cause(each))
                if failed_at is None and _goes_on_without(each, ranks, script):
                    lost.add(each.rank)
                    continue
                if failed_at is None and _is_left_behind(each, script):
                    lost.add(each.rank)
                    if any(not other.failed for other in ranks):
                        _say_lost(each, script)
                        continue
                if failed_at is None and not script.independent:
                    failed_at = time.monotonic()
                # A victim gives way to whoever failed on its own account.
                if first is None or (first.victim and not each.victim):
                    first = each
    if first is not None and first.report is not None and first.report.victim is not None:
        # Its replicas could go on without it, but somebody could not.
        culprit = first.report.victim.rank
        return ranks[culprit] if culprit in lost else first
    return first


def _is_left_behind(rank: _Rank, script: Script) -> bool:
    """Whether those that are left may go on without `rank`: it has died, or others have failed before it.

    Before they have met they cannot.
    """
    return script.on_failure == "shrink" and rank.has_met and (rank.report is None or rank.victim)


def _say_lost(rank: _Rank, script: Script) -> None:
    print(f"{_named(rank.rank, script)}: {_cause(rank)}; the others go on without it", file=sys.stderr, flush=True)


def _named(rank: int, script: Script) -> str:
    return f"ripieno: rank {rank} of {script.target} on {socket.gethostname()}"


def _cause(rank: _Rank) -> str:
    """Why a rank that has failed has."""
    return rank.report.cause if rank.report is not None else process.ending(rank.status or 0)


def _all_stopped_since(ranks: list[_Rank], since: float | None) -> float | None:
    """Since when all ranks that have not ended are stopped; None if that is not so."""
    awaited = [each for each in ranks if each.status is None]
    if awaited and all(process.is_stopped(each.process.pid) for each in awaited):
        return since or time.monotonic()
    return None


def _missed_while_stopped(ranks: list[_Rank]) -> list[_Rank]:
    """Those that have just failed because they are stopped, and have been for a while, as others wait to meet them."""
    missed = []
    early = [each for each in ranks if each.status is None and not each.has_met]
    meeting = [each for each in early if each.is_meeting and not each.failed]
    stopped = [each.rank for each in early if process.is_stopped(each.process.pid)] if meeting else []
    are_awaited = any(each.rank not in stopped for each in meeting)
    for each in ranks:
        is_stopped = each.rank in stopped
        each.stopped_at = (each.stopped_at or time.monotonic()) if is_stopped and are_awaited else None
        if each.stopped_at is not None and time.monotonic() > each.stopped_at + STOPPED_S and not each.failed:
            cause = f"its process has been stopped for {STOPPED_S:g} s, and others wait to meet it"
            each.report = FailureReport(each.rank, socket.gethostname(), cause, "")
            missed.append(each)
    return missed


def _have_ended_without(ranks: list[_Rank], script: Script) -> bool:
    """Whether those that have not ended need not, as others have ended well in their place; says so."""
    left = [each for each in ranks if each.status is None]
    if script.on_failure == "shrink":
        has_ended = any(each.status == 0 for each in ranks)
    else:
        replicas = [replicas_of(each.rank, len(ranks), script.replicas) for each in left]
        has_ended = all(any(ranks[replica].status == 0 for replica in those) for those in replicas)
    for each in left if has_ended else []:
        print(
            f"{_named(each.rank, script)}: it is stopped; the others have ended without it", file=sys.stderr, flush=True
        )
    return has_ended


def _say_stopped(ranks: list[_Rank], script: Script) -> None:
    pids = " ".join(str(each.process.pid) for each in ranks if each.status is None)
    what = f"all ranks of {script.target} that have not ended are stopped"
    print(f"ripieno: {what}: let them go on by kill -CONT {pids}, or interrupt this", file=sys.stderr, flush=True)


def _patience_s(first: _Rank | None, ranks: list[_Rank]) -> float:
    """How long to wait for the other ranks once `first` has failed."""
    named = None if first is None or first.report is None else first.report.victim
    culprit = None if named is None else ranks[named.rank]
    # Who is stopped does not end by itself.
    is_awaited = culprit is not None and not culprit.failed and not process.is_stopped(culprit.process.pid)
    return CULPRIT_S if is_awaited else LAST_WORDS_S


def _goes_on_without(rank: _Rank, ranks: list[_Rank], script: Script) -> bool:
    """Whether `rank` has ended without a word while a replica of it has not failed; says so."""
    spares = [replica for replica in replicas_of(rank.rank, len(ranks), script.replicas) if not ranks[replica].failed]
    if not rank.status or rank.report is not None or not spares:
        return False
    ended = f"{_named(rank.rank, script)}: {process.ending(rank.status)}"
    print(f"{ended}; its replica, rank {spares[0]}, goes on", file=sys.stderr, flush=True)
    return True


def _hear(rank: _Rank, watch: Watch) -> bool:
    """Take what `rank` says; True if that was its end."""
    try:
        kind, value = rank.channel.receive()
        if kind == "pulse":
            watch.pulse(rank.rank, value)
        elif kind == "meeting":
            rank.is_meeting = True
        elif kind == "met":
            rank.has_met = True
        else:
            rank.report = value
        return False
    except HungUp:
        # Its descriptor is closed when it ends, so there is next to nothing to wait for.
        try:
            rank.status = rank.process.wait(REPORT_S)
        except subprocess.TimeoutExpired:
            rank.report = FailureReport(
                rank.rank, socket.gethostname(), "its process closed the connection to its launcher", ""
            )
        return True


def _port_was_taken(failed: _Rank) -> bool:
    return failed.rank == 0 and failed.report is not None and os.strerror(errno.EADDRINUSE) in failed.report.cause


def _explain(failed: _Rank, ranks: list[_Rank], script: Script) -> int:
    """Say once what went wrong, and what the ranks were at; returns the exit code."""
    report, status = failed.report, failed.status
    if report is None:
        assert status, "a rank that failed without a report has ended with a status"
        text, end = "", f"{_named(failed.rank, script)} failed: {process.ending(status)}"
    elif report.victim is None:
        text, end = report.traceback.rstrip(), f"{_named(failed.rank, script)} failed: {report.cause}"
    else:
        victim = report.victim
        cause = f"{victim.cause or 'cause unknown'}, as rank {failed.rank} has noticed"
        text, end = victim.traceback.rstrip(), f"{_named(victim.rank, script)} failed: {cause}"
    flight = [line for each in ranks if each.report is not None for line in each.report.flight if line not in text]
    print("\n".join([text, *flight, end]).lstrip(), file=sys.stderr)
    if status and status < 0 and report is None:
        return 128 - status
    return status if status and status > 0 else 1
