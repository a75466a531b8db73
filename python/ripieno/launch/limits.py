"""Default timeouts of ranks for all launchers, and the limit of ranks per machine."""

from __future__ import annotations

from ripieno.errors import InputError
from ripieno.host import memory_limit_bytes, usable_cores

# Default time that ranks wait for each other to join.
MEETING_S = 60
# Default timeout for heartbeats of a rank, in seconds.
HEARTBEAT_S = 10.0
# How long a process that is to become a rank may be stopped.
STILL_S = 5.0
# Lower bound of the private memory of a process with Python, NumPy and this package.
WORKER_BYTES = 20 * 2**20


def check_room(workers: int, spares: int = 0) -> None:
    """Raise `InputError` if the processes of `workers` local ranks and `spares` exceed the memory of this machine."""
    memory_bytes, count = memory_limit_bytes(), workers + spares
    most = max(1, memory_bytes // WORKER_BYTES)
    if count > most:
        named = f"workers={workers}" + (f", spares={spares}" if spares else "")
        raise InputError(
            f"{named}: expected at most {most} processes on this machine, which has {usable_cores()} usable cores and "
            f"{memory_bytes / 2**30:.1f} GiB of memory: a process takes {WORKER_BYTES // 2**20} MiB at least"
        )
