"""Where a fit keeps its checkpoint: the factors after an iteration, of which all that follows is made.

Rank 0 writes it, into a folder that it sees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.algorithms.als.ratings import Dealt, Side
from ripieno.algorithms.fit_checkpoint import FitCheckpoint, FitStates
from ripieno.kernels.hashing import mixed

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

NAME = "als"


@dataclass(frozen=True)
class Progress:
    """How far a fit has come: iterations, and the factors after them, of all users and items."""

    iteration: int
    users: NDArray[np.float32]
    items: NDArray[np.float32]

    def own(self, ratings: Dealt) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Those of a rank's users and items."""
        users, items = ratings.users.own, ratings.items.own
        return self.users[users.start : users.stop], self.items[items.start : items.stop]


class Keeper:
    """Keeps the progress of a fit in a folder, and in memory if it would begin again; does nothing without either.

    Parameters
    ----------
    comm
        The ranks, all of which make each call.
    folder
        Where rank 0 keeps it.
    facts
        What the fit is of, by name.

    Raises
    ------
    CheckpointError
        The folder cannot be used, or another process uses it.
    """

    def __init__(self, comm: Communicator, folder: str | None, facts: dict[str, Any]) -> None:
        self._comm = comm
        self._has_folder = folder is not None
        self._memory = FitStates(comm, NAME, shared=False)
        self._checkpoint = FitCheckpoint(None if comm.rank else folder, NAME, facts)

    def load(self, max_iter: int) -> Progress | None:
        """How far an earlier fit had come, if one had.

        Raises
        ------
        CheckpointError
            What is there is of another fit, or has come further than this one is to go.
        """
        in_memory = self._memory.load()
        if in_memory:
            iterations, users, items = zip(*in_memory, strict=True)
            return Progress(iterations[0], np.concatenate(users), np.concatenate(items))
        if not self._has_folder:
            return None
        found = self._checkpoint.load()
        if found is not None and found.iteration >= max_iter:
            raise self._checkpoint.unusable(
                f"is a checkpoint after {found.iteration} iterations, and max_iter={max_iter} ends before", "allow more"
            )
        came: Progress | None = self._comm.broadcast(
            None if found is None else Progress(found.iteration, *found.result)
        )
        return came

    def save(self, iteration: int, users: NDArray[np.float32], items: NDArray[np.float32]) -> None:
        """Keep the factors after an iteration, of which each rank has its own."""
        self._memory.save((iteration, users, items))
        if not self._has_folder:
            return
        parts = self._comm.gather((users, items))
        if parts is not None:
            of_users, of_items = zip(*parts, strict=True)
            self._checkpoint.save(iteration, (np.concatenate(of_users), np.concatenate(of_items)))

    def close(self) -> None:
        """Let other processes have the folder."""
        self._checkpoint.close()


def digest(comm: Communicator, users: Side) -> int:
    """A number that other ratings do not have, whoever has read them."""
    rows = np.repeat(np.arange(users.own.start, users.own.stop), np.diff(users.starts))
    pairs = mixed((rows << 32) | users.columns.astype(np.int64)).view(np.int64)
    own = mixed(pairs + users.values.view(np.int32)).view(np.int64).sum()
    return int(comm.allreduce(np.array([own]))[0])
