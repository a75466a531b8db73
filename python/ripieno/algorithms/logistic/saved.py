"""Checkpoints of logistic regression fits: the solver's iterate, which determines all later iterations.

Rank 0 runs the solver and writes the iterate to a folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from ripieno.algorithms.fit_checkpoint import CheckpointOptions, FitCheckpoint, WriteSchedule
from ripieno.algorithms.logistic.solvers import Iterate

NAME = "logistic"
#: Largest relative difference in mean loss of the same rows. The summation order depends on the number of workers.
LOSS_RTOL = 1e-9


class LogisticCheckpointer:
    """Saves the iterate of a descent to a folder; does nothing without one.

    Parameters
    ----------
    checkpoint_options
        Checkpoint settings.
    facts
        Facts that identify the fit, by name.

    Raises
    ------
    CheckpointError
        The folder cannot be used, or another process uses it.
    """

    def __init__(self, checkpoint_options: CheckpointOptions, facts: Mapping[str, Any]) -> None:
        self._schedule = WriteSchedule(checkpoint_options.every)
        self._checkpoint = FitCheckpoint(checkpoint_options.folder, NAME, facts)

    def load(self) -> Iterate | None:
        """Return the iterate of an earlier fit, or None.

        Raises
        ------
        CheckpointError
            The saved iterate is damaged or belongs to another fit.
        """
        found = self._checkpoint.load()
        if found is None:
            return None
        self._schedule.last_iteration = found.iteration
        return Iterate(**found.result)

    def check(self, saved: Iterate, current: Iterate) -> None:
        """Raise CheckpointError if the rows have another value at the saved iterate."""
        if not np.isclose(current.value, saved.value, rtol=LOSS_RTOL, atol=0.0):
            raise self._checkpoint.other_fit(
                f"its rows had a mean loss of {saved.value!r}, and these have {current.value!r}"
            )

    def save(self, iterate: Iterate, *, last: bool = False) -> None:
        """Save an iterate if the schedule requires it or if it is the `last`; replace the saved iterate."""
        count = iterate.iteration_count
        if self._schedule.is_due(count) or (last and count != self._schedule.last_iteration):
            self._checkpoint.save(count, parts_of(iterate))
            self._schedule.record_save(count)

    def close(self) -> None:
        """Release the folder for other processes."""
        self._checkpoint.close()


def parts_of(iterate: Iterate) -> dict[str, Any]:
    """Return the components of an iterate, by name."""
    return {each.name: getattr(iterate, each.name) for each in fields(iterate)}
