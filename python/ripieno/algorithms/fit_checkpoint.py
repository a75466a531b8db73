"""A fit's checkpoint: a folder with the state after an iteration, and with what the fit is of.

A checkpoint is of one fit: of some data and parameters, its *facts*. One process writes it, and no other one at a time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno import log
from ripieno.errors import CheckpointError
from ripieno.kernels.lookup import places_of
from ripieno.mapreduce.checkpoint import Checkpoints, Saved

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: An iteration may be shorter than a write to a disk.
PERIOD_S = 1.0


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
    unit
        What is counted to tell states apart.

    Raises
    ------
    CheckpointError
        The folder cannot be used, or another process uses it.
    """

    def __init__(self, folder: str | None, name: str, facts: Mapping[str, Any], *, unit: str = "iteration") -> None:
        self._facts, self._unit = dict(facts), unit
        self._kept = None if folder is None else Checkpoints(Path(folder), name, name)

    @property
    def folder(self) -> Path | None:
        """Where this process keeps it, if it does."""
        return None if self._kept is None else self._kept.folder

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
        log.note("ripieno.algorithms", f"goes on from {self._unit} {found.iteration}, kept in {self.folder}")
        return found

    def save(self, iteration: int, result: Any) -> None:
        """Keep the state after an iteration instead of the last one."""
        if self._kept is not None:
            self._kept.save(Saved(iteration, result, self._facts, []))
            log.note("ripieno.algorithms", f"checkpoint of {self._unit} {iteration} in {self.folder}")

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


class FitStates:
    """Keeps a fit in the memory of its ranks, if its program would begin again, and in a folder, if it has one.

    A program may have several fits, one after the other. What is in memory is of the last that has begun. A program
    that begins again counts its fits anew, so that each finds its own state and none that of another. Rank 0 writes the
    folder, once a second at most.

    Parameters
    ----------
    comm
        The ranks, all of which make each call.
    name
        Of the algorithm.
    shared
        Whether all ranks have the same state.
    folder, facts
        As of `FitCheckpoint`; the facts of rank 0 count.

    Raises
    ------
    CheckpointError
        The folder cannot be used, or another process uses it.

    Attributes
    ----------
    used : bool
        Whether anything is kept.
    """

    def __init__(
        self,
        comm: Communicator,
        name: str,
        *,
        shared: bool,
        folder: str | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        self.used = comm.begins_again or folder is not None
        self._comm = comm
        self._shared = shared
        self._in_memory = comm.begins_again
        self._folder = folder
        self._disk = FitCheckpoint(None if comm.rank else folder, name, facts or {}, unit="state")
        self._saved_s, self._saved_count = -np.inf, 0
        for before in comm._fits:
            comm._memory.pop(before, None)
        self._name = f"{name}, fit {len(comm._fits) + 1}"
        comm._fits.append(self._name)

    def load(self) -> list[Any]:
        """The states that ranks have kept last, in the order of these, one if all have the same; none at first.

        Raises
        ------
        CheckpointError
            What is in the folder is torn, or of another fit.
        """
        found = self._comm.restore(self._name) if self._in_memory else None
        if found is not None:
            if self._shared:
                return [found]
            by_rank = {rank: state for states in self._comm.allgather(found) for rank, state in states.items()}
            return [by_rank[rank] for rank in sorted(by_rank)]
        if self._folder is None:
            return []
        saved = self._disk.load()
        states: list[Any] = self._comm.broadcast([] if saved is None else saved.result)
        return states

    def save(self, state: Any) -> None:
        """Keep the state after an iteration instead of the last one."""
        if self._in_memory:
            self._comm.checkpoint(self._name, state, shared=self._shared)
        if self._folder is None or not self._comm.broadcast(time.monotonic() - self._saved_s > PERIOD_S):
            return
        states = [state] if self._shared else self._comm.gather(state)
        if states is not None:
            self._saved_count += 1
            self._disk.save(self._saved_count, states)
        self._saved_s = time.monotonic()

    def refuse_beyond(self, done: int, most: int, limit: str) -> None:
        """Raise CheckpointError if `done` iterations were kept, and `limit` leaves this fit none after `most`."""
        if done > most:
            raise CheckpointError(
                f"{self._folder} is a checkpoint after {done} iterations, and {limit} ends before: delete it to begin "
                "anew, or allow more"
            )

    def close(self) -> None:
        """Let other processes have the folder."""
        self._disk.close()


def folder_of(checkpoint: str | os.PathLike[str] | None) -> str | None:
    """What an estimator was told, as workers get it."""
    return None if checkpoint is None else os.fspath(checkpoint)


def of_ids(wanted: NDArray[np.int64], parts: Iterable[tuple[NDArray[Any], ...]]) -> list[NDArray[Any]]:
    """Columns that ranks have kept, in the order of the ids that are wanted, all of which some rank has.

    A part is the ids of a rank, (m,) int64, each of which no other one has, and columns, (m, …).
    """
    ids, *columns = (np.concatenate(each) for each in zip(*parts, strict=True))
    at = places_of(wanted, ids)
    return [column[at] for column in columns]


class SharedCheckpoint(FitCheckpoint):
    """The checkpoint of a fit whose state all ranks have, and who all make each call; rank 0 keeps it in the folder.

    If the fit begins again when ranks are lost, all ranks keep each state in memory, too.

    Parameters
    ----------
    comm
        The ranks.
    folder, name, facts
        As of `FitCheckpoint`; the facts of rank 0 count.

    Raises
    ------
    CheckpointError
        The folder cannot be used, or another process uses it.

    Attributes
    ----------
    used : bool
        Whether anything is kept.
    """

    def __init__(self, comm: Communicator, folder: str | None, name: str, facts: Mapping[str, Any]) -> None:
        super().__init__(None if comm.rank else folder, name, facts)
        self._comm = comm
        self._memory = FitStates(comm, name, shared=True)
        self._has_folder = folder is not None
        self.used = self._has_folder or self._memory.used
        self._saved_s = -np.inf

    def load(self) -> Saved | None:
        """As of `FitCheckpoint`; all ranks get it."""
        for iteration, result in self._memory.load():
            return Saved(iteration, result, self._facts, [])
        if not self._has_folder:
            return None
        found: Saved | None = self._comm.broadcast(super().load())
        return found

    def save(self, iteration: int, result: Any, *, last: bool = False) -> None:
        """Keep the state after an iteration instead of the last one, unless that was kept a moment ago."""
        self._memory.save((iteration, result))
        if self._kept is None or not (last or time.monotonic() - self._saved_s > PERIOD_S):
            return
        super().save(iteration, result)
        self._saved_s = time.monotonic()
