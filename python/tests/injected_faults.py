"""Faults that hit during the work: a rank is struck after all have arrived and before any finishes."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import ripieno as rp
from watching import comes_true

#: Maximum time for a rank to arrive.
COMES_S = 60.0


def strike_once(
    comm: rp.Communicator, folder: Path, victims: Sequence[int], signal_number: int = signal.SIGKILL
) -> None:
    """Send each victim a signal on its first arrival here, after all ranks of its world have arrived.

    Ranks still in the previous call when the first victim dies might fail there and never arrive.
    """
    (folder / f"came-{comm.rank}").touch()
    struck = folder / f"struck-{comm.rank}"
    if comm.rank in victims and not struck.exists():
        assert comes_true(lambda: len(list(folder.glob("came-*"))) >= comm.world_size, COMES_S)
        struck.touch()
        os.kill(os.getpid(), signal_number)
