"""How long ranks may take, however they are started, and how many there may be on a machine."""

from __future__ import annotations

from ripieno.errors import InputError
from ripieno.host import memory_limit_bytes, usable_cores

# How long ranks wait for each other, unless told otherwise.
MEETING_S = 60
# How long the others of a rank wait for a sign of life, unless told otherwise.
HEARTBEAT_S = 10.0
# A process that is to become a rank may be stopped for so long.
STILL_S = 5.0
# A process with Python, NumPy and this package has at least so much memory of its own.
WORKER_BYTES = 20 * 2**20


def check_room(workers: int, spares: int = 0) -> None:
    """Raise `InputError` if the processes of so many local ranks cannot fit into the memory of this machine."""
    memory_bytes, count = memory_limit_bytes(), workers + spares
    most = max(1, memory_bytes // WORKER_BYTES)
    if count > most:
        named = f"workers={workers}" + (f", spares={spares}" if spares else "")
        raise InputError(
            f"{named}: expected at most {most} processes on this machine, which has {usable_cores()} usable cores and "
            f"{memory_bytes / 2**30:.1f} GiB of memory: a process takes {WORKER_BYTES // 2**20} MiB at least"
        )
