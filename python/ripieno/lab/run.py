"""Run a program on hosts of a lab, as ranks that end together.

All ranks of a run share a PID namespace. Its first process waits for the end of a pipe that this process holds. When
the pipe closes, the kernel ends all processes in the namespace. So no descendant of a rank outlives the run, for any
kind of end.
"""

from __future__ import annotations

import os
import secrets
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ripieno.errors import LabError
from ripieno.host import usable_cores
from ripieno.lab import kernel
from ripieno.lab.cluster_spec import LabHost
from ripieno.launch import limits
from ripieno.launch.process import processes as process
from ripieno.launch.process.interruption import deferred_signals, interruptible
from ripieno.launch.process.output import LinePump

TIMED_OUT = 124
# The kernel reaps orphans that become children of this process.
_FIRST_PROCESS = ["sh", "-c", "trap '' CHLD; exec cat"]


@dataclass(frozen=True)
class LabProgram:
    """A program, and the options of its run on a lab.

    Attributes
    ----------
    command
        Program and arguments.
    hosts
        Hosts in the order of the ranks.
    ranks_per_host
        Number of ranks per host. Ranks of one host have consecutive numbers.
    environment
        Variables to set in addition to this process's own.
    prefix
        Whether to mark lines of output with their host.
    timeout_s
        Time limit in seconds. All ranks are ended when it expires.
    keep_going
        Whether the other ranks continue when one fails.
    """

    command: Sequence[str]
    hosts: Sequence[LabHost]
    ranks_per_host: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    prefix: bool = True
    timeout_s: float | None = None
    keep_going: bool = False

    @property
    def world_size(self) -> int:
        """Return the number of ranks."""
        return len(self.hosts) * self.ranks_per_host


@dataclass
class _LabRank:
    rank: int
    host: LabHost
    process: subprocess.Popen[bytes]


def run(
    program: LabProgram, namespace: Callable[[LabHost], str], enter: Callable[[LabHost, Sequence[str]], list[str]]
) -> int:
    """Run `program` to its end and return the exit code.

    `namespace` returns a host's network namespace, `enter` the command line that runs a command there.
    """
    ranks: list[_LabRank] = []
    pump = LinePump() if program.prefix else None
    namespace_init: subprocess.Popen[bytes] | None = None
    # Bound but not listening, this socket reserves the port for rank 0.
    with kernel.inside(namespace(program.hosts[0])):
        reservation = socket.socket()
    try:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reservation.bind((program.hosts[0].address, 0))
        common = _variables(program, reservation.getsockname()[1])
        # The namespace ends only after this process has reaped all processes that it has started there.
        with kernel.new_pid_namespace():
            with deferred_signals():
                namespace_init = subprocess.Popen(
                    _FIRST_PROCESS, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
                )
            for rank in range(program.world_size):
                with deferred_signals():
                    ranks.append(_start(program, rank, common, enter, pump))
        if pump is not None:
            pump.start()
        failed, unfinished = _wait(ranks, program)
    finally:
        process.end([each.process for each in ranks], grace_s=0.0)
        _end_namespace(namespace_init)
        reservation.close()
        if pump is not None:
            pump.close()
    return _explain(failed, unfinished, program)


def _start(
    program: LabProgram,
    rank: int,
    common: Mapping[str, str],
    enter: Callable[[LabHost, Sequence[str]], list[str]],
    pump: LinePump | None,
) -> _LabRank:
    node, local_rank = divmod(rank, program.ranks_per_host)
    host = program.hosts[node]
    pipe = None if pump is None else subprocess.PIPE
    child = subprocess.Popen(
        enter(host, program.command),
        env={**common, "RANK": str(rank), "LOCAL_RANK": str(local_rank), **program.environment},
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        # This process handles Ctrl-C and then ends the ranks.
        start_new_session=True,
    )
    if pump is not None:
        pump.add(host.name if program.ranks_per_host == 1 else f"{host.name} rank {rank}", child)
    return _LabRank(rank, host, child)


def _variables(program: LabProgram, port: int) -> dict[str, str]:
    # All hosts share the cores of this machine.
    threads = max(1, usable_cores() // program.world_size)
    variables = {**process.thread_environment(threads), **os.environ}
    # It would take precedence over MASTER_ADDR.
    variables.pop("RIPIENO_DIRECTORY", None)
    if program.prefix:
        variables["PYTHONUNBUFFERED"] = "1"
    return {
        **variables,
        "WORLD_SIZE": str(program.world_size),
        "LOCAL_WORLD_SIZE": str(program.ranks_per_host),
        "MASTER_ADDR": program.hosts[0].address,
        "MASTER_PORT": str(port),
        "RIPIENO_TOKEN": secrets.token_hex(32),
    }


def _wait(ranks: list[_LabRank], program: LabProgram) -> tuple[_LabRank | None, list[_LabRank]]:
    """Wait for the end of all ranks, and return the failed rank and the unfinished ranks.

    The wait ends early at the timeout, and some time after the first failure.
    """
    failed: _LabRank | None = None
    unfinished = list(ranks)
    deadline = None if program.timeout_s is None else time.monotonic() + program.timeout_s
    with selectors.DefaultSelector() as selector, interruptible(selector) as ready:
        try:
            for each in ranks:
                selector.register(os.pidfd_open(each.process.pid), selectors.EVENT_READ, each)
            while unfinished:
                left_s = None if deadline is None else deadline - time.monotonic()
                if left_s is not None and left_s <= 0:
                    break
                for key, _ in ready(left_s):
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    unfinished.remove(key.data)
                    if not key.data.process.wait():
                        continue
                    if failed is None and not program.keep_going:
                        deadline = min(deadline or float("inf"), time.monotonic() + limits.OTHER_REPORTS_S)
                    if failed is None or (_may_be_victim(failed) and not _may_be_victim(key.data)):
                        failed = key.data
        finally:
            for key in list(selector.get_map().values()):
                os.close(key.fd)
    return failed, unfinished


def _may_be_victim(rank: _LabRank) -> bool:
    """Return whether a rank ended with an exception, as ranks do after another's failure. It may have ended first."""
    return rank.process.returncode == 1


def _end_namespace(namespace_init: subprocess.Popen[bytes] | None) -> None:
    if namespace_init is None:
        return
    assert namespace_init.stdin is not None, "the first process is started with a pipe"
    namespace_init.stdin.close()
    try:
        namespace_init.wait(kernel.KILL_S)
    except subprocess.TimeoutExpired:
        raise LabError(f"processes of the run do not end, {kernel.KILL_S:g} s after they were killed") from None


def _explain(failed: _LabRank | None, unfinished: list[_LabRank], program: LabProgram) -> int:
    """Print the cause of a failure and return the exit code."""
    if failed is None and not unfinished:
        return 0
    if failed is None:
        names = ", ".join(f"{each.rank} on {each.host.name}" for each in unfinished[:8])
        more = f" and {len(unfinished) - 8} more" if len(unfinished) > 8 else ""
        print(f"ripieno: after {program.timeout_s:g} s these ranks still ran: {names}{more}", file=sys.stderr)
        return TIMED_OUT
    status = failed.process.returncode
    first = "was the first to fail" if _may_be_victim(failed) else "failed"
    print(f"ripieno: rank {failed.rank} on {failed.host.name} {first}: {process.ending(status)}", file=sys.stderr)
    return status if status > 0 else 128 - status
