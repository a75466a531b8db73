"""Provide checkpoints of iterations: the state after an iteration, in the memory of the ranks and in a folder.

A checkpoint belongs to one job or fit: to its code, and to its data and parameters, its *facts*. Only one process at a
time writes a folder. Memory and folder have the same state and schedule.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from ripieno import log
from ripieno.checkpoints.folder import CheckpointContents, Checkpoints
from ripieno.comm.agreement import on_root
from ripieno.errors import CheckpointError, InputError

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

R = TypeVar("R")

#: Minimum seconds between writes to a folder, because an iteration may be shorter than a disk write.
PERIOD_S = 1.0


@dataclass(frozen=True)
class CheckpointOptions:
    """Settings of checkpoints: the folder, the interval and others.

    Parameters
    ----------
    folder
        Folder, accessible to rank 0; None to save to memory only, if the program restarts after failures.
    every
        Number of iterations between saves. None: at most one save a second to the folder, and one per iteration to
        memory.
    keep
        Number of checkpoints to keep in the folder.
    trusted
        Whether to load them even if other users own the folder or can write to it.
    facts
        Parameters that identify the fit, by name. A checkpoint with other values is refused.
    """

    folder: str | None = None
    every: int | None = None
    keep: int = 1
    trusted: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)


NO_CHECKPOINTS = CheckpointOptions()


class IterationCheckpoint:
    """The last saved state of iterations: in memory if their program restarts after failures, and in a folder.

    A program may run several fits one after the other. Memory holds the state of the latest fit only. A restarted
    program counts its fits from the beginning, so each fit finds only its own state. Rank 0 writes the folder. If it
    fails, all ranks raise its error. Use the checkpoint in a ``with`` statement, which releases the folder.

    Parameters
    ----------
    comm
        The ranks. All of them make each call. None if this process alone drives the iterations.
    name
        Name of the algorithm or job.
    options
        Checkpoint settings.
    shared
        Whether all ranks have the same state.
    data
        Called if there is a folder; returns the facts that identify the data, by name. Rank 0's facts are used.
    program
        Fingerprint of the code; by default the name.
    objects
        Whether states may contain pickled objects, which can run code when they are loaded.
    in_memory
        Whether to save to memory, too, if the program restarts after failures.

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
        Iteration count of the loaded state.
    folder : Path or None
        Folder of the checkpoint.
    """

    def __init__(
        self,
        comm: Communicator | None,
        name: str,
        options: CheckpointOptions,
        *,
        shared: bool,
        data: Callable[[], Mapping[str, Any]] = dict,
        program: str | None = None,
        objects: bool = False,
        in_memory: bool = True,
    ) -> None:
        self._comm, self._shared, self._every = comm, shared, options.every
        self._in_memory = in_memory and comm is not None and comm.restarts_on_failure
        self.used, self.done = self._in_memory or options.folder is not None, 0
        if self._every is not None and not self.used:
            raise InputError(
                f"every={self._every}: there is nowhere to save checkpoints: expected a folder, checkpoint=, or "
                "local workers with on_failure='shrink' or 'respawn'"
            )
        # Iteration count and time of the last save, and whether the next save writes the folder.
        self._last_iteration, self._last_save_s, self._is_due = 0, -np.inf, False
        if in_memory and comm is not None:
            for name_of_earlier in comm._fits:
                comm._memory.pop(name_of_earlier, None)
            self._name = f"{name}, fit {len(comm._fits) + 1}"
            comm._fits.append(self._name)
        self.folder = None if options.folder is None else Path(options.folder, name)
        self._disk: Checkpoints | None = None
        if self.folder is not None:
            self._facts = dict(options.facts) | dict(data())
            self._on_root(lambda: self._open(options, name, program or name, objects))

    def _open(self, options: CheckpointOptions, name: str, program: str, objects: bool) -> None:
        folder, keep, trusted = Path(options.folder or ""), options.keep, options.trusted
        self._disk = Checkpoints(folder, name, program, objects=objects, keep=keep, trusted=trusted)

    def _on_root(self, compute: Callable[[], R]) -> R:
        return compute() if self._comm is None else on_root(self._comm, compute)

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
        self._last_iteration = self.done
        return states

    def _from_memory(self) -> tuple[int, list[Any]] | None:
        if self._comm is None or not self._in_memory or (found := self._comm.restore(self._name)) is None:
            return None
        if self._shared:
            iteration, state = found
            return iteration, [state]
        by_rank = {rank: state for states in self._comm.allgather(found) for rank, state in states.items()}
        iterations, states = zip(*(by_rank[rank] for rank in sorted(by_rank)), strict=True)
        return iterations[0], list(states)

    def _from_folder(self) -> tuple[int, list[Any]] | None:
        if self.folder is None:
            return None
        states: list[Any] = []

        def read() -> int | None:
            assert self._disk is not None, "rank 0 has opened the folder"
            found = self._disk.load()
            if found is None:
                return None
            for name, fact in self._facts.items():
                if found.state.get(name) != fact:
                    raise self.other_fit(f"{name} was {found.state.get(name)!r} in the checkpoint and is {fact!r} now")
            log.note("ripieno.checkpoints", f"resumes from iteration {found.iteration}, saved in {self.folder}")
            states.extend(found.result)
            return found.iteration

        iteration = self._on_root(read)
        return None if iteration is None else (iteration, self._distributed(states))

    def _distributed(self, states: list[Any]) -> list[Any]:
        """Return the states that rank 0 has read, on all ranks."""
        return states if self._comm is None else list(self._comm.broadcast(states))

    def is_due(self, iteration: int, *, last: bool = False) -> bool:
        """Return whether to save the state after this iteration, equal on all ranks; the `last` is saved in any case.

        With `every`, a state is saved after each multiple of it, or after the next iteration that has a state to save.
        """
        if not self.used:
            return False
        if self._every is not None:
            is_due = iteration // self._every > self._last_iteration // self._every
        elif self.folder is not None:
            # Rank 0's clock decides.
            is_due = self._on_root(lambda: time.monotonic() - self._last_save_s > PERIOD_S)
        else:
            is_due = True
        self._is_due = is_due or last
        return self._is_due or (self._in_memory and self._every is None)

    def save(self, iteration: int, state: Any) -> None:
        """Replace the last saved state by the state after this iteration. `is_due` must have returned true for it."""
        if self._comm is not None and self._in_memory:
            self._comm.checkpoint(self._name, (iteration, state), shared=self._shared)
        if not self._is_due:
            return
        if self.folder is not None:
            with self._gathered(state) as states:
                self._on_root(lambda: self._write(iteration, states))
        self._last_iteration, self._last_save_s = iteration, time.monotonic()

    @contextmanager
    def _gathered(self, state: Any) -> Iterator[list[Any] | None]:
        """Provide the states to write, on rank 0."""
        yield [state] if self._comm is None or self._shared else self._comm.gather(state)

    def _write(self, iteration: int, states: list[Any] | None) -> None:
        assert self._disk is not None, "rank 0 has opened the folder"
        self._disk.save(CheckpointContents(iteration, states, self._facts))
        log.note("ripieno.checkpoints", f"checkpoint of iteration {iteration} in {self.folder}")

    def check_iteration_limit(self, done: int, maximum: int, limit: str) -> None:
        """Raise CheckpointError if the saved state has more than `maximum` iterations; `limit` names the parameter."""
        if done > maximum:
            raise CheckpointError(
                f"{self.folder} is a checkpoint after {done} iterations, and {limit} is lower: delete it to start "
                "again, or raise it"
            )

    def other_fit(self, reason: str) -> CheckpointError:
        """Return the error for a checkpoint of another fit."""
        return CheckpointError(
            f"{self.folder} is the checkpoint of another fit: {reason}: delete it to start again, or name another "
            "folder"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the folder for other processes."""
        if self._disk is not None:
            self._disk.close()
