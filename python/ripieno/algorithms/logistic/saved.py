"""Where a fit keeps its checkpoint: the place that the descent has reached, on which all the rest depends.

Rank 0, which descends, writes it into a folder that it sees. A checkpoint is of one fit: of these rows and parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from ripieno.algorithms.logistic.solvers import Place
from ripieno.errors import CheckpointError
from ripieno.mapreduce.checkpoint import Checkpoints, Saved

NAME = "logistic"
#: Another number of workers adds up in another order: by so much of the value the same rows may differ.
SAME_ROWS = 1e-9


class Keeper:
    """Keeps the place of a descent in a folder; does nothing without one.

    Parameters
    ----------
    folder
        Where to keep it.
    facts
        What the fit is of, by name.

    Raises
    ------
    CheckpointError
        The folder cannot be used, or another process uses it.
    """

    def __init__(self, folder: str | None, facts: Mapping[str, Any]) -> None:
        self._facts = dict(facts)
        self._place = None if folder is None else Checkpoints(Path(folder), NAME, NAME)

    def load(self) -> Place | None:
        """Where an earlier fit had come, if one had.

        Raises
        ------
        CheckpointError
            What is there is torn, or of another fit.
        """
        found = None if self._place is None else self._place.load()
        if found is None:
            return None
        for name, fact in self._facts.items():
            if found.state.get(name) != fact:
                self._refuse(f"{name} was {found.state.get(name)!r} there and is {fact!r} here")
        return Place(**found.result)

    def check(self, kept: Place, here: Place) -> None:
        """Raise CheckpointError if the rows have another value at the place that was kept."""
        if not np.isclose(here.value, kept.value, rtol=SAME_ROWS, atol=0.0):
            self._refuse(f"its rows had a mean loss of {kept.value!r}, and these have {here.value!r}")

    def save(self, place: Place) -> None:
        """Keep a place instead of the last one."""
        if self._place is not None:
            parts = {each.name: getattr(place, each.name) for each in fields(place)}
            self._place.save(Saved(place.iteration_count, parts, self._facts, []))

    def close(self) -> None:
        """Let other processes have the folder."""
        if self._place is not None:
            self._place.close()

    def _refuse(self, reason: str) -> None:
        assert self._place is not None, "only what was read is refused"
        raise CheckpointError(
            f"{self._place.folder} is the checkpoint of another fit: {reason}: delete it to begin anew, or name "
            "another folder"
        )
