"""What a rank says when it ends because another one has failed, where a launcher brings the words of all to one place.

The culprit's own error is told once, by the culprit; if it was killed, one other rank names it. The rest end without a
word, and leave it to the launcher to end them first: its exit code is that of the rank that it has seen fail first.
"""

from __future__ import annotations

import signal
import sys
from contextlib import suppress

from ripieno.errors import RankFailed, RendezvousError
from ripieno.launch.process import processes
from ripieno.launch.process.report import other_rank
from ripieno.launch.script import launchers

# How long a rank that ends because of another one waits for the launcher to end it.
LAUNCHER_S = 1.0
# How long one that ends over what all find waits for the one that says it, which may have started later.
SPEAKER_S = 5.0


def said_by(error: BaseException) -> bool:
    """Whether all has been said about an `error` that ends this rank, because it is another rank's failure."""
    failed = other_rank(error)
    place = launchers.detect(launchers.own_variables())
    if failed is None or place is None or not place.one_terminal:
        return False
    if place.rank == (0 if failed.rank != 0 else 1):
        sentence = str(RankFailed(failed.rank, failed.host, failed.cause))
        print(f"ripieno: rank {place.rank} ends: {sentence}", file=sys.stderr, flush=True)
    _leave_to_launcher(LAUNCHER_S)
    return True


def said_by_first() -> bool:
    """Whether another rank, the first of this host, says what all of this host find, and has had the time to."""
    if is_first_here():
        return False
    _leave_to_launcher(SPEAKER_S)
    return True


def is_first_here() -> bool:
    """Whether this is no rank of a launcher, or the first one of this host."""
    with suppress(RendezvousError):
        place = launchers.detect(launchers.own_variables())
        return place is None or place.local_rank == 0
    return True


def _leave_to_launcher(wait_s: float) -> None:
    """Wait until the launcher ends this process, or until the time is up."""
    if processes.on_main_thread():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        signal.sigtimedwait({signal.SIGTERM}, wait_s)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
