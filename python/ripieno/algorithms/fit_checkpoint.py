"""A fit's checkpoint: a folder with the state after an iteration, and with what the fit is of.

A checkpoint is of one fit: of some data and parameters, its *facts*. One process writes it, and no other one at a time.
What is kept, and when, a fit that goes on from memory and one that goes on from a folder have in common.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno import log
from ripieno.errors import CheckpointError, InputError
from ripieno.kernels.lookup import places_of
from ripieno.mapreduce.checkpoint import CheckpointContents, Checkpoints

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: An iteration may be shorter than a write to a disk.
PERIOD_S = 1.0


@dataclass(frozen=True)
class Keeping:
    """Where a fit is kept, and how often.

    Parameters
    ----------
    folder
        That rank 0 sees; None for memory alone, if that.
    every
        After every so many iterations; None for a folder once a second at most, and for memory after each.
    """

    folder: str | None = None
    every: int | None = None

    def check(self, comm: Communicator) -> None:
        """Raise InputError if it says how often, and there is nothing to keep."""
        if self.every is not None and self.folder is None and not comm.begins_again:
            raise InputError(
                f"every={self.every}: nothing is kept: expected a folder, checkpoint=, or local workers and "
                "on_failure='shrink' or 'respawn'"
            )


NOTHING_TOLD = Keeping()


class WriteSchedule:
    """Of which iterations the state is kept in a folder.

    With `every` it is that after each multiple of it, or after the first iteration behind that has a state to keep;
    otherwise one a second at most.
    """

    def __init__(self, every: int | None) -> None:
        self._every = every
        #: After how many iterations the last was kept.
        self.kept = 0
        self._kept_s = -np.inf

    def has(self, iteration: int) -> bool:
        """Whether the state after so many iterations is one of them."""
        if self._every is None:
            return time.monotonic() - self._kept_s > PERIOD_S
        return iteration // self._every > self.kept // self._every

    def note(self, iteration: int) -> None:
        """The state after so many iterations was kept."""
        self.kept, self._kept_s = iteration, time.monotonic()


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
        self._kept = None if folder is None else Checkpoints(Path(folder), name, name, objects=False)

    @property
    def folder(self) -> Path | None:
        """Where this process keeps it, if it does."""
        return None if self._kept is None else self._kept.folder

    def load(self) -> CheckpointContents | None:
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
        log.note("ripieno.algorithms", f"goes on from iteration {found.iteration}, kept in {self.folder}")
        return found

    def save(self, iteration: int, result: Any) -> None:
        """Keep the state after an iteration instead of the last one."""
        if self._kept is not None:
            self._kept.save(CheckpointContents(iteration, result, self._facts, []))
            log.note("ripieno.algorithms", f"checkpoint of iteration {iteration} in {self.folder}")

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
    folder.

    Parameters
    ----------
    comm
        The ranks, all of which make each call.
    name
        Of the algorithm.
    shared
        Whether all ranks have the same state.
    keeping
        Where, and how often.
    facts
        As of `FitCheckpoint`; those of rank 0 count.

    Raises
    ------
    InputError
        It is said how often, and nothing would be kept.
    CheckpointError
        The folder cannot be used, or another process uses it.

    Attributes
    ----------
    used : bool
        Whether anything is kept.
    done : int
        How many iterations the states had that were loaded.
    """

    def __init__(
        self,
        comm: Communicator,
        name: str,
        *,
        shared: bool,
        keeping: Keeping,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        keeping.check(comm)
        self._comm = comm
        self._shared = shared
        self._in_memory = comm.begins_again
        self._keeping, self._turns = keeping, WriteSchedule(keeping.every)
        self.used, self.done = self._in_memory or keeping.folder is not None, 0
        self._disk = FitCheckpoint(None if comm.rank else keeping.folder, name, facts or {})
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
        found = self._from_memory() or self._from_folder()
        if found is None:
            return []
        self.done, states = found
        self._turns.kept = self.done
        return states

    def _from_memory(self) -> tuple[int, list[Any]] | None:
        found = self._comm.restore(self._name) if self._in_memory else None
        if found is None:
            return None
        if self._shared:
            iteration, state = found
            return iteration, [state]
        by_rank = {rank: kept for states in self._comm.allgather(found) for rank, kept in states.items()}
        iterations, states = zip(*(by_rank[rank] for rank in sorted(by_rank)), strict=True)
        return iterations[0], list(states)

    def _from_folder(self) -> tuple[int, list[Any]] | None:
        if self._keeping.folder is None:
            return None
        saved = self._disk.load()
        mine = None if saved is None else (saved.iteration, saved.result)
        found: tuple[int, list[Any]] | None = self._comm.broadcast(mine)
        return found

    def save(self, iteration: int, state: Any, *, last: bool = False) -> None:
        """Keep the state after so many iterations instead of the last one, if it has its turn or is the `last`."""
        is_turn, folder, every = last or self._turns.has(iteration), self._keeping.folder, self._keeping.every
        if self._in_memory and (is_turn or every is None):
            self._comm.checkpoint(self._name, (iteration, state), shared=self._shared)
        if folder is not None and every is None and not self._shared:
            # By the clock of rank 0.
            is_turn = self._comm.broadcast(is_turn)
        if not is_turn:
            return
        if folder is not None:
            states = [state] if self._shared else self._comm.gather(state)
            if states is not None:
                self._disk.save(iteration, states)
        self._turns.note(iteration)

    def is_kept_in_memory(self, iteration: int) -> bool:
        """Whether `save` would keep the state after so many iterations in memory."""
        return self._in_memory and (self._keeping.every is None or self._turns.has(iteration))

    def refuse_beyond(self, done: int, most: int, limit: str) -> None:
        """Raise CheckpointError if `done` iterations were kept, and `limit` leaves this fit none after `most`."""
        if done > most:
            raise CheckpointError(
                f"{self._keeping.folder} is a checkpoint after {done} iterations, and {limit} ends before: delete it "
                "to begin anew, or allow more"
            )

    def refuse_other(self, reason: str) -> None:
        """Rank 0 raises CheckpointError: what was loaded is of another fit."""
        if self._comm.rank == 0:
            raise self._disk.other_fit(reason)

    def close(self) -> None:
        """Let other processes have the folder."""
        self._disk.close()


def of_ids(wanted: NDArray[np.int64], parts: Iterable[tuple[NDArray[Any], ...]]) -> list[NDArray[Any]]:
    """Columns that ranks have kept, in the order of the ids that are wanted, all of which some rank has.

    A part is the ids of a rank, (m,) int64, each of which no other one has, and columns, (m, …).
    """
    ids, *columns = (np.concatenate(each) for each in zip(*parts, strict=True))
    at = places_of(wanted, ids)
    return [column[at] for column in columns]
