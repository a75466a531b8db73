"""Faults in a running program: signals that reach a rank after all ranks have arrived at a point."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import ripieno as rp
from watching import comes_true

#: Maximum time for a rank to arrive.
ARRIVAL_TIMEOUT_S = 60.0


def kill_once(comm: rp.Communicator, folder: Path, victims: Sequence[int], signal_number: int = signal.SIGKILL) -> None:
    """Send each victim a signal on its first arrival here, after all ranks of its world have arrived.

    Ranks still in the previous call when the first victim dies might fail there and never arrive.
    """
    (folder / f"arrived-{comm.rank}").touch()
    signaled = folder / f"signaled-{comm.rank}"
    if comm.rank in victims and not signaled.exists():
        assert comes_true(lambda: len(list(folder.glob("arrived-*"))) >= comm.world_size, ARRIVAL_TIMEOUT_S)
        signaled.touch()
        os.kill(os.getpid(), signal_number)
