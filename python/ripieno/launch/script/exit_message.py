"""Provide the choice of the ranks that print an error at exit, if the launcher collects the output of all ranks.

The failed rank prints its own error. If it was killed, one other rank reports it. The remaining ranks print nothing and
wait for the launcher to end them: its exit code is the exit code of the first rank that it sees fail.
"""

from __future__ import annotations

import signal
import sys
from contextlib import suppress

from ripieno.errors import RankFailed, RendezvousError
from ripieno.launch.limits import SHUTDOWN_S
from ripieno.launch.process import processes
from ripieno.launch.process.report import other_rank
from ripieno.launch.script import launchers


def is_reported_by_another(error: BaseException) -> bool:
    """Return whether another rank, which has failed, reports the `error` that ends this rank."""
    failed = other_rank(error)
    place = launchers.detect(launchers.own_variables())
    # A rank whose call exceeded its time limit was marked as failed by its own thread.
    if failed is None or place is None or not place.one_terminal or failed.rank == place.rank:
        return False
    if place.rank == (0 if failed.rank != 0 else 1):
        sentence = str(RankFailed(failed.rank, failed.host, failed.cause))
        print(f"ripieno: rank {place.rank} ends: {sentence}", file=sys.stderr, flush=True)
    _leave_to_launcher(processes.STEP_S)
    return True


def is_reported_by_first() -> bool:
    """Return whether the first rank of this host reports an error common to the host, after giving it time to do so."""
    if is_first_on_host():
        return False
    # The first rank may have started later.
    _leave_to_launcher(SHUTDOWN_S)
    return True


def is_first_on_host() -> bool:
    """Return whether this process is not a rank of a launcher, or is the first rank of this host."""
    with suppress(RendezvousError):
        place = launchers.detect(launchers.own_variables())
        return place is None or place.local_rank == 0
    return True


def _leave_to_launcher(wait_s: float) -> None:
    """Wait until the launcher ends this process, at most `wait_s` seconds."""
    if processes.on_main_thread():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        signal.sigtimedwait({signal.SIGTERM}, wait_s)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
