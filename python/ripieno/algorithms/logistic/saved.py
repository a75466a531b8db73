"""Where a fit keeps its checkpoint: the iterate that the descent has reached, on which all the rest depends.

Rank 0, which descends, writes it into a folder that it sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from ripieno.algorithms.fit_checkpoint import FitCheckpoint, Keeping, WriteSchedule
from ripieno.algorithms.logistic.solvers import Iterate

NAME = "logistic"
#: Another number of workers adds up in another order: by so much of the value the same rows may differ.
SAME_ROWS = 1e-9


class LogisticCheckpointer:
    """Keeps the iterate of a descent in a folder; does nothing without one.

    Parameters
    ----------
    keeping
        Where, and how often.
    facts
        What the fit is of, by name.

    Raises
    ------
    CheckpointError
        The folder cannot be used, or another process uses it.
    """

    def __init__(self, keeping: Keeping, facts: Mapping[str, Any]) -> None:
        self._turns = WriteSchedule(keeping.every)
        self._checkpoint = FitCheckpoint(keeping.folder, NAME, facts)

    def load(self) -> Iterate | None:
        """Where an earlier fit had come, if one had.

        Raises
        ------
        CheckpointError
            What is there is torn, or of another fit.
        """
        found = self._checkpoint.load()
        if found is None:
            return None
        self._turns.kept = found.iteration
        return Iterate(**found.result)

    def check(self, kept: Iterate, here: Iterate) -> None:
        """Raise CheckpointError if the rows have another value at the iterate that was kept."""
        if not np.isclose(here.value, kept.value, rtol=SAME_ROWS, atol=0.0):
            raise self._checkpoint.other_fit(
                f"its rows had a mean loss of {kept.value!r}, and these have {here.value!r}"
            )

    def save(self, iterate: Iterate, *, last: bool = False) -> None:
        """Keep an iterate instead of the last one, if it has its turn or is the `last`."""
        count = iterate.iteration_count
        if self._turns.has(count) or (last and count != self._turns.kept):
            self._checkpoint.save(count, parts_of(iterate))
            self._turns.note(count)

    def close(self) -> None:
        """Let other processes have the folder."""
        self._checkpoint.close()


def parts_of(iterate: Iterate) -> dict[str, Any]:
    """What an iterate is made of, by name."""
    return {each.name: getattr(iterate, each.name) for each in fields(iterate)}
