"""Provide the scale, the machine and the verdicts of figures that are measured here."""

from __future__ import annotations

import os

from ripieno.bench import figures
from ripieno.simulation.reproduction import Input

#: Alternating runs of each measurement.
REPETITIONS = 3


def verdict(holds: bool) -> str:
    """Return whether a claim holds, as the beginning of a sentence."""
    return "Holds" if holds else "Does not hold"


def machine_input(scale: str) -> Input:
    """Return the scale of a measurement, and this machine."""
    machine = figures.machine()
    is_preferred = os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR)
    load = f"load {machine['load']}{', at real-time priority' if is_preferred else ''}"
    return Input(scale, f"{machine['processor']}, {machine['cores']} cores, {load}")
