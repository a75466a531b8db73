"""External observations of processes for tests: ended processes, open descriptors, and awaited conditions."""

from __future__ import annotations

import os
import select
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

from ripieno.launch.process import forked

#: Maximum time until an error reaches the user.
PROMPT_S = 2.0
#: Additional time for starting processes.
SLACK_S = 2.0
#: Maximum time for an expected event, however busy the machine is.
EVENT_TIMEOUT_S = 60.0
#: Folder of the installed packages.
PACKAGES = os.path.realpath(sysconfig.get_path("platlib")) + os.sep


def under_load(seconds: float) -> float:
    """Return the duration, at the machine's current load, of work that takes `seconds` on an idle machine."""
    average, _, _, tasks, _ = Path("/proc/loadavg").read_text().split()
    running = max(float(average), float(tasks.partition("/")[0]))
    return seconds * max(1.0, running / len(os.sched_getaffinity(0)))


def is_prompt(seconds: float) -> bool:
    """Return whether an error after this many seconds was in time, at the machine's current load."""
    return seconds < under_load(PROMPT_S + SLACK_S)


def is_running(pid: int) -> bool:
    """Return whether the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone_within(seconds: float, pids: list[int]) -> bool:
    """Return whether all processes end before the timeout, which is longer on a busy machine."""
    deadline = time.monotonic() + under_load(seconds)
    return all(_ends(pid, deadline) for pid in pids)


def _ends(pid: int, deadline: float) -> bool:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        end = select.poll()
        end.register(process, select.POLLIN)
        return bool(end.poll(max(0.0, deadline - time.monotonic()) * 1000))
    finally:
        os.close(process)


def comes_true(condition: Callable[[], object], within_s: float) -> bool:
    """Return whether a polled condition becomes true before the timeout, which grows with the load."""
    return comes_true_within(under_load(within_s), condition)


def comes_true_within(seconds: float, condition: Callable[[], object]) -> bool:
    """Return whether a polled condition becomes true within this time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def open_descriptors() -> list[str]:
    """Return everything that this process has open, except files of packages and connections to fork servers.

    Matplotlib opens font files when it draws, and closes them when its cache drops them, in any later test. Connections
    to fork servers serve later jobs, or ranks of earlier jobs that still run.
    """
    names = []
    servers = {str(server._control.fileno()) for server in list(forked._servers)}
    for entry in os.scandir("/proc/self/fd"):
        if entry.name in servers:
            continue
        try:
            names.append(os.readlink(entry.path))
        except FileNotFoundError:
            continue
    return sorted(name for name in names if not name.startswith(PACKAGES))


def shared_files() -> list[str]:
    """Return the names of Ripieno in the folder of shared memory, which other programs and tests also use."""
    return sorted(name for name in os.listdir("/dev/shm") if "ripieno" in name)
