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
#: Largest relative difference in value of equal rows, because other worker counts add in another order.
SAME_ROWS = 1e-9


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
        self._turns = WriteSchedule(checkpoint_options.every)
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
        self._turns.kept = found.iteration
        return Iterate(**found.result)

    def check(self, kept: Iterate, here: Iterate) -> None:
        """Raise CheckpointError if the rows have another value at the saved iterate."""
        if not np.isclose(here.value, kept.value, rtol=SAME_ROWS, atol=0.0):
            raise self._checkpoint.other_fit(
                f"its rows had a mean loss of {kept.value!r}, and these have {here.value!r}"
            )

    def save(self, iterate: Iterate, *, last: bool = False) -> None:
        """Save an iterate if the schedule requires it or if it is the `last`, replacing the earlier one."""
        count = iterate.iteration_count
        if self._turns.has(count) or (last and count != self._turns.kept):
            self._checkpoint.save(count, parts_of(iterate))
            self._turns.note(count)

    def close(self) -> None:
        """Release the folder for other processes."""
        self._checkpoint.close()


def parts_of(iterate: Iterate) -> dict[str, Any]:
    """Return the components of an iterate, by name."""
    return {each.name: getattr(iterate, each.name) for each in fields(iterate)}
