"""Provide the main function of one rank of ``ripieno run``, forked by `ripieno.launch.job.fork_server`.

It runs the target as ``__main__``. It reports an uncaught exception to the other ranks and to the launcher, which
prints only the exception of the first failed rank: exceptions of other ranks are consequences and would hide it.
"""

from __future__ import annotations

import os
import runpy
import socket
import sys
from contextlib import suppress
from types import TracebackType
from typing import Any

from ripieno import host, log
from ripieno.launch import binding
from ripieno.launch.binding import Binding
from ripieno.launch.process import processes
from ripieno.launch.process.channel import Channel, ConnectionClosed, inherited
from ripieno.launch.process.report import FailureReport
from ripieno.launch.process.telemetry import TELEMETRY_VARIABLE
from ripieno.launch.script import environment

# Modules of frames that precede the frames of the script.
_STARTING = ("runpy", "importlib", "importlib._bootstrap", "importlib._bootstrap_external", "pkgutil")


# The end of the channel means the end of this process, so it stays open while threads of the target run.
_channels: list[Channel] = []


def main(fd: int, kind: str, target: str, *arguments: str) -> None:
    """Run `target`, a "file" or "module", and report a failure over the channel of descriptor `fd`."""
    channel = inherited(fd)
    _channels.append(channel)
    # The command of a forked process in lists of processes is the server's.
    processes.set_name(f"rank {os.environ['RANK']}")
    log.show_if_set()
    _bind()
    environment.report_to(channel.send, os.environ.pop(TELEMETRY_VARIABLE, None))
    sys.argv = [target, *arguments]
    try:
        if kind == "module":
            sys.path.insert(0, os.getcwd())
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, os.path.dirname(os.path.abspath(target)))
            runpy.run_path(target, run_name="__main__")
    except SystemExit as error:
        if error.code:
            report = FailureReport.of(error, *_rank_and_host()).announce(environment.current())
            with suppress(ConnectionClosed):
                # The exit status describes the failure of this process better than the report.
                channel.send(*(("exiting",) if report.victim is None else ("error", report)))
        else:
            channel.send("done")
        raise
    except BaseException as error:
        report = FailureReport.of(error.with_traceback(_from_target(error.__traceback__)), *_rank_and_host())
        _send_report(channel, report.announce(environment.current()))
        sys.exit(1)
    finally:
        _warn_of_separate_worlds(kind, target)
    channel.send("done")


def _bind() -> None:
    """Bind this rank to its cores, before threads or arrays exist. The launcher has checked the number of cores."""
    requested = Binding.take_from(os.environ)
    if requested.is_requested:
        threads = [int(os.environ["RIPIENO_THREADS"])] * int(os.environ["LOCAL_WORLD_SIZE"])
        binding.cpus_of_ranks(requested, threads, host.cores())[int(os.environ["LOCAL_RANK"])].take()


def _warn_of_separate_worlds(kind: str, target: str) -> None:
    """Print a warning on rank 0 if the script used mpi4py, where each process is a world of its own."""
    count = os.environ["WORLD_SIZE"]
    is_first_of_several = os.environ["RANK"] == "0" and count != "1"
    if is_first_of_several and "mpi4py.MPI" in sys.modules and not environment.was_initialized():
        instead = f"-m ripieno.mpi {target}" if kind == "file" else f"a script by -m ripieno.mpi, not -m {target}"
        print(
            f"ripieno: warning: the script imported mpi4py, and no rank called rp.init: mpi4py saw {count} worlds of "
            f"one rank each. To run it on the ranks of Ripieno: ripieno run -n {count} {instead}",
            file=sys.stderr,
        )


def _rank_and_host() -> tuple[int, str]:
    return int(os.environ["RANK"]), socket.gethostname()


def _send_report(channel: Channel, report: FailureReport) -> None:
    processes.flush_output()
    try:
        channel.send("error", report)
    except ConnectionClosed:
        print(report.traceback, file=sys.stderr)


def _from_target(trace: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that starts in the script; None if the script has not started."""
    while trace is not None and _precedes_target(trace.tb_frame.f_globals):
        trace = trace.tb_next
    return trace


def _precedes_target(variables: dict[str, Any]) -> bool:
    return variables is globals() or variables.get("__name__") in _STARTING
