"""Checkpoints of fits: a folder with the state after an iteration and the facts that identify the fit.

A checkpoint belongs to one fit: to its data and parameters, its *facts*. Only one process at a time writes it. Saves to
memory and to a folder use the same state and schedule.
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
from ripieno.kernels.lookup import positions_of
from ripieno.mapreduce.checkpoint import CheckpointContents, Checkpoints

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: Minimum seconds between saves, because an iteration may be shorter than a disk write.
PERIOD_S = 1.0


@dataclass(frozen=True)
class CheckpointOptions:
    """Checkpoint settings: the folder and the interval.

    Parameters
    ----------
    folder
        Folder, accessible to rank 0; None to save to memory only, if the program restarts after failures.
    every
        Number of iterations between saves. None: at most one save a second to the folder, and one per iteration to
        memory.
    """

    folder: str | None = None
    every: int | None = None

    def check(self, comm: Communicator) -> None:
        """Raise InputError if `every` is set although nothing is saved."""
        if self.every is not None and self.folder is None and not comm.restarts_on_failure:
            raise InputError(
                f"every={self.every}: there is nowhere to save checkpoints: expected a folder, checkpoint=, or "
                "local workers with on_failure='shrink' or 'respawn'"
            )


NO_CHECKPOINTS = CheckpointOptions()


class WriteSchedule:
    """The iterations at which a fit saves its state to the folder.

    With `every`, the fit saves after each multiple of it, or after the next iteration that has a state to save. Without
    it, the fit saves at most once a second.
    """

    def __init__(self, every: int | None) -> None:
        self._every = every
        #: Iteration count at the last save.
        self.last_iteration = 0
        self._last_save_s = -np.inf

    def is_due(self, iteration: int) -> bool:
        """Return whether to save the state after this iteration."""
        if self._every is None:
            return time.monotonic() - self._last_save_s > PERIOD_S
        return iteration // self._every > self.last_iteration // self._every

    def record_save(self, iteration: int) -> None:
        """Record that the state after this iteration was saved."""
        self.last_iteration, self._last_save_s = iteration, time.monotonic()


class FitCheckpoint:
    """Saves the state of a fit to a folder; does nothing without one.

    Parameters
    ----------
    folder
        Folder to write to.
    name
        Name of the algorithm.
    facts
        Facts that identify the fit, by name.

    Raises
    ------
    CheckpointError
        The folder cannot be used, or another process uses it.
    """

    def __init__(self, folder: str | None, name: str, facts: Mapping[str, Any]) -> None:
        self._facts = dict(facts)
        self._checkpoints = None if folder is None else Checkpoints(Path(folder), name, name, objects=False)

    @property
    def folder(self) -> Path | None:
        """Return the folder that this process writes to, or None."""
        return None if self._checkpoints is None else self._checkpoints.folder

    def load(self) -> CheckpointContents | None:
        """Return the contents that an earlier fit saved, or None.

        Raises
        ------
        CheckpointError
            The contents are damaged or belong to another fit.
        """
        found = None if self._checkpoints is None else self._checkpoints.load()
        if found is None:
            return None
        for name, fact in self._facts.items():
            if found.state.get(name) != fact:
                raise self.other_fit(f"{name} was {found.state.get(name)!r} in the checkpoint and is {fact!r} now")
        log.note("ripieno.algorithms", f"resumes from iteration {found.iteration}, saved in {self.folder}")
        return found

    def save(self, iteration: int, result: Any) -> None:
        """Save the state after an iteration, replacing the earlier state."""
        if self._checkpoints is not None:
            self._checkpoints.save(CheckpointContents(iteration, result, self._facts, []))
            log.note("ripieno.algorithms", f"checkpoint of iteration {iteration} in {self.folder}")

    def close(self) -> None:
        """Release the folder for other processes."""
        if self._checkpoints is not None:
            self._checkpoints.close()

    def other_fit(self, reason: str) -> CheckpointError:
        """Return the error for a checkpoint of another fit."""
        return self.unusable(f"is the checkpoint of another fit: {reason}", "name another folder")

    def unusable(self, reason: str, remedy: str) -> CheckpointError:
        """Return the error for an unusable checkpoint, with a remedy."""
        assert self._checkpoints is not None, "a refused checkpoint was loaded from the folder"
        return CheckpointError(f"{self._checkpoints.folder} {reason}: delete it to start again, or {remedy}")


class FitStates:
    """Saves a fit's state to the memory of its ranks, if its program restarts after failures, and to a folder, if set.

    A program may run several fits one after the other. Memory holds the state of the latest fit only. A restarted
    program counts its fits from the beginning, so each fit finds only its own state. Rank 0 writes the folder.

    Parameters
    ----------
    comm
        The ranks. All of them make each call.
    name
        Name of the algorithm.
    shared
        Whether all ranks have the same state.
    checkpoint_options
        Checkpoint settings.
    facts
        As in `FitCheckpoint`; rank 0's facts are used.

    Raises
    ------
    InputError
        `every` is set although nothing would be saved.
    CheckpointError
        The folder cannot be used, or another process uses it.

    Attributes
    ----------
    used : bool
        Whether any state is saved.
    done : int
        Iteration count of the loaded states.
    """

    def __init__(
        self,
        comm: Communicator,
        name: str,
        *,
        shared: bool,
        checkpoint_options: CheckpointOptions,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        checkpoint_options.check(comm)
        self._comm = comm
        self._shared = shared
        self._in_memory = comm.restarts_on_failure
        self._checkpoint_options, self._schedule = checkpoint_options, WriteSchedule(checkpoint_options.every)
        self.used, self.done = self._in_memory or checkpoint_options.folder is not None, 0
        self._disk = FitCheckpoint(None if comm.rank else checkpoint_options.folder, name, facts or {})
        for name_of_earlier in comm._fits:
            comm._memory.pop(name_of_earlier, None)
        self._name = f"{name}, fit {len(comm._fits) + 1}"
        comm._fits.append(self._name)

    def load(self) -> list[Any]:
        """Return the last saved state of each rank, or one state if all ranks share it, or an empty list.

        Raises
        ------
        CheckpointError
            The folder's contents are damaged or belong to another fit.
        """
        found = self._from_memory() or self._from_folder()
        if found is None:
            return []
        self.done, states = found
        self._schedule.last_iteration = self.done
        return states

    def _from_memory(self) -> tuple[int, list[Any]] | None:
        found = self._comm.restore(self._name) if self._in_memory else None
        if found is None:
            return None
        if self._shared:
            iteration, state = found
            return iteration, [state]
        by_rank = {rank: state for states in self._comm.allgather(found) for rank, state in states.items()}
        iterations, states = zip(*(by_rank[rank] for rank in sorted(by_rank)), strict=True)
        return iterations[0], list(states)

    def _from_folder(self) -> tuple[int, list[Any]] | None:
        if self._checkpoint_options.folder is None:
            return None
        saved = self._disk.load()
        mine = None if saved is None else (saved.iteration, saved.result)
        found: tuple[int, list[Any]] | None = self._comm.broadcast(mine)
        return found

    def save(self, iteration: int, state: Any, *, last: bool = False) -> None:
        """Save the state after this iteration if the schedule requires it or if it is the `last`."""
        is_due, folder, every = (
            last or self._schedule.is_due(iteration),
            self._checkpoint_options.folder,
            self._checkpoint_options.every,
        )
        if self._in_memory and (is_due or every is None):
            self._comm.checkpoint(self._name, (iteration, state), shared=self._shared)
        if folder is not None and every is None and not self._shared:
            # Rank 0's clock decides.
            is_due = self._comm.broadcast(is_due)
        if not is_due:
            return
        if folder is not None:
            states = [state] if self._shared else self._comm.gather(state)
            if states is not None:
                self._disk.save(iteration, states)
        self._schedule.record_save(iteration)

    def saves_to_memory(self, iteration: int) -> bool:
        """Return whether `save` would save the state after this iteration to memory."""
        return self._in_memory and (self._checkpoint_options.every is None or self._schedule.is_due(iteration))

    def check_iteration_limit(self, done: int, maximum: int, limit: str) -> None:
        """Raise CheckpointError if the saved state has more than `maximum` iterations; `limit` names the parameter."""
        if done > maximum:
            raise CheckpointError(
                f"{self._checkpoint_options.folder} is a checkpoint after {done} iterations, and {limit} is "
                "lower: delete it to start again, or raise it"
            )

    def raise_other_fit(self, reason: str) -> None:
        """Raise CheckpointError on rank 0, because the loaded state belongs to another fit."""
        if self._comm.rank == 0:
            raise self._disk.other_fit(reason)

    def close(self) -> None:
        """Release the folder for other processes."""
        self._disk.close()


def columns_of_ids(requested: NDArray[np.int64], parts: Iterable[tuple[NDArray[Any], ...]]) -> list[NDArray[Any]]:
    """Return the columns that ranks saved, in the order of the requested ids; some part must contain each id.

    A part consists of a rank's ids, (m,) int64, disjoint from the ids of other ranks, and columns, (m, …).
    """
    ids, *columns = (np.concatenate(each) for each in zip(*parts, strict=True))
    positions = positions_of(requested, ids)
    return [column[positions] for column in columns]
