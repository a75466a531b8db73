"""Provide all time limits of launchers in one table, each with its reason, and the limit of ranks per machine.

The first block contains defaults of options. The supervisor uses the second block to decide which rank failed.
"""

from __future__ import annotations

import resource

from ripieno.errors import InputError
from ripieno.host import memory_limit_bytes, usable_cores

# Maximum wait of ranks for each other, and of a launcher for a host or for the start of a worker. Importing the package
# from a network disk is slow.
RENDEZVOUS_TIMEOUT_S = 60
# A rank without heartbeats for this long has failed. It covers scheduling delays on an overloaded host.
HEARTBEAT_S = 10.0
# After this many heartbeat timeouts without an acknowledgement, the connection between launcher and rank is broken. TCP
# waits up to twice the length of an outage before it retransmits, and an outage may last nearly one timeout.
DELIVERY_HEARTBEATS = 3

# A rank that others have accused has this long to send its own report, which explains more. A process that has closed
# its connection has this long to end: the kernel needs some milliseconds, an engine up to two seconds to report it.
OWN_REPORT_S = 2.0
# After a failure, ranks have this long to report their last calls or their position. The caller waits meanwhile.
OTHER_REPORTS_S = 1.0
# A rank accused of missing heartbeats has this long to object. A live rank answers within milliseconds.
OBJECTION_S = 0.3
# Maximum time that a future rank's process may be stopped. Only a signal or a debugger stops a process.
STOPPED_S = 5.0
# A script that has announced its exit, or has reported its failure, has this long to run its exit handlers.
EXIT_S = 10.0
# A script that has succeeded has this long to join its threads and to free its memory.
END_S = 60.0
# Interval between two checks for stopped processes: no event reports them.
POLL_S = 0.5

# Shortest and longest pause between two queries for a change that no event reports.
PAUSE_S_MIN, PAUSE_S_MAX = 0.002, 0.2
# A running listener or scheduler answers within this time, and an accepted peer sends its first message.
CONNECT_S = 10.0
# A resource manager has this long to answer a query, to clean up after a job, or to let other jobs choose workers.
MANAGER_S = 30.0
# Tasks that an engine has not begun after this long wait for slots that others occupy.
SLOTS_S = 10.0
# At the end of a job, or after the required ranks of a script have ended, the other ranks have this long to exit, the
# last data to leave their processes, and an engine to cancel its tasks.
SHUTDOWN_S = 5.0
# Tasks of an engine that have not exited by themselves after this long are interrupted or cancelled, and killed after
# as long again.
LEAVE_S = 2.0
# If another thread's program is aborted, that thread has this long to end the workers, also workers of an engine.
CLOSING_S = 20.0
# Timeout within a message between a launcher and a rank of the same machine.
MESSAGE_S = 60.0

# Lower bound of the private memory of a process with Python, NumPy and this package.
WORKER_BYTES = 20 * 2**20


# Open files of a launcher: per local rank, the minimum for everything else, and with the files of the user's program.
FILES_PER_RANK, OTHER_FILES_MIN, OTHER_FILES = 5, 10, 64
# Processor time until a process has started and imported this package, on a slow core.
START_CPU_S = 0.5


def rendezvous_s(workers: int) -> float:
    """Return the time limit for local ranks to join: many ranks on few cores take long to start."""
    return RENDEZVOUS_TIMEOUT_S + START_CPU_S * workers // usable_cores()


def check_workers(workers: int, spares: int = 0) -> None:
    """Raise `InputError` if this machine lacks memory or open files for `workers` local ranks and `spares`."""
    check_memory(workers, spares)
    _raise_file_limit(workers, spares)


def _raise_file_limit(workers: int, spares: int) -> None:
    """Raise the limit of open files of this process for `workers` local ranks, or `InputError` if that is not allowed.

    For each rank, this process has a channel, two output pipes and a pipe that shows its end.
    """
    needed = FILES_PER_RANK * (workers + spares)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if needed + OTHER_FILES <= soft or soft == resource.RLIM_INFINITY:
        return
    limit = needed + OTHER_FILES if hard == resource.RLIM_INFINITY else hard
    if needed + OTHER_FILES_MIN > limit:
        raise InputError(
            f"workers={workers}: expected at most {max(0, (limit - OTHER_FILES_MIN) // FILES_PER_RANK - spares)} "
            f"processes, because the limit of open files is {limit}: raise the limit (ulimit -Hn)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(needed + OTHER_FILES, limit), hard))


def check_memory(workers: int, spares: int = 0) -> None:
    """Raise `InputError` if the processes of `workers` local ranks and `spares` exceed the memory of this machine."""
    memory_bytes, count = memory_limit_bytes(), workers + spares
    max_count = max(1, memory_bytes // WORKER_BYTES)
    if count > max_count:
        named = f"workers={workers}" + (f", spares={spares}" if spares else "")
        raise InputError(
            f"{named}: expected at most {max_count} processes on this machine, which has {usable_cores()} usable cores "
            f"and {memory_bytes / 2**30:.1f} GiB of memory: a process takes at least {WORKER_BYTES // 2**20} MiB"
        )
