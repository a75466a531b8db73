"""A fit's checkpoint: a folder with the state after an iteration, and with what the fit is of.

A checkpoint is of one fit: of some data and parameters, its *facts*. One process writes it, and no other one at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ripieno.errors import CheckpointError
from ripieno.mapreduce.checkpoint import Checkpoints, Saved


class FitCheckpoint:
    """Keeps the state of a fit in a folder; does nothing without one.

    Parameters
    ----------
    folder
        Where to keep it.
    name
        Of the algorithm.
    facts
        What the fit is of, by name.

    Raises
    ------
    CheckpointError
        The folder cannot be used, or another process uses it.
    """

    def __init__(self, folder: str | None, name: str, facts: Mapping[str, Any]) -> None:
        self._facts = dict(facts)
        self._kept = None if folder is None else Checkpoints(Path(folder), name, name)

    def load(self) -> Saved | None:
        """What an earlier fit has kept, if one has.

        Raises
        ------
        CheckpointError
            What is there is torn, or of another fit.
        """
        found = None if self._kept is None else self._kept.load()
        if found is None:
            return None
        for name, fact in self._facts.items():
            if found.state.get(name) != fact:
                raise self.other_fit(f"{name} was {found.state.get(name)!r} there and is {fact!r} here")
        return found

    def save(self, iteration: int, result: Any) -> None:
        """Keep the state after an iteration instead of the last one."""
        if self._kept is not None:
            self._kept.save(Saved(iteration, result, self._facts, []))

    def close(self) -> None:
        """Let other processes have the folder."""
        if self._kept is not None:
            self._kept.close()

    def other_fit(self, reason: str) -> CheckpointError:
        """The error that what was kept is of another fit."""
        return self.unusable(f"is the checkpoint of another fit: {reason}", "name another folder")

    def unusable(self, reason: str, remedy: str) -> CheckpointError:
        """The error that what was kept is of no use, with what to do."""
        assert self._kept is not None, "only what was read is refused"
        return CheckpointError(f"{self._kept.folder} {reason}: delete it to begin anew, or {remedy}")
