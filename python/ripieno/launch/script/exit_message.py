"""What a rank says when it ends because another one has failed, where a launcher brings the words of all to one place.

The culprit's own error is told once, by the culprit; if it was killed, one other rank names it. The rest end without a
word, and leave it to the launcher to end them first: its exit code is that of the rank that it has seen fail first.
"""

from __future__ import annotations

import os
import signal
import sys

from ripieno.errors import RankFailed
from ripieno.launch.process import processes
from ripieno.launch.process.report import other_rank
from ripieno.launch.script import launchers

# How long a rank that ends because of another one waits for the launcher to end it.
LAUNCHER_S = 1.0


def said_by(error: BaseException) -> bool:
    """Whether all has been said about an `error` that ends this rank, because it is another rank's failure."""
    failed = other_rank(error)
    place = launchers.detect(os.environ)
    if failed is None or place is None or not place.one_terminal:
        return False
    if place.rank == (0 if failed.rank != 0 else 1):
        sentence = str(RankFailed(failed.rank, failed.host, failed.cause))
        print(f"ripieno: rank {place.rank} ends: {sentence}", file=sys.stderr, flush=True)
    if processes.on_main_thread():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        signal.sigtimedwait({signal.SIGTERM}, LAUNCHER_S)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return True
