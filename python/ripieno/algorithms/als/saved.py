"""Where a fit keeps its checkpoint: the factors after an iteration, of which all that follows is made.

Rank 0 writes it, into a folder that it sees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.algorithms.als.ratings import Dealt, RatingSide
from ripieno.algorithms.fit_checkpoint import FitStates, Keeping
from ripieno.kernels.hashing import mixed

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

NAME = "als"


@dataclass(frozen=True)
class AlsFitState:
    """How far a fit has come: iterations, and the factors after them, of all users and items."""

    iteration: int
    users: NDArray[np.float32]
    items: NDArray[np.float32]

    def own(self, ratings: Dealt) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Those of a rank's users and items."""
        users, items = ratings.users.own, ratings.items.own
        return self.users[users.start : users.stop], self.items[items.start : items.stop]


class AlsCheckpointer:
    """Keeps the progress of a fit in a folder, and in memory if it would begin again; does nothing without either.

    Parameters
    ----------
    comm
        The ranks, all of which make each call.
    keeping
        Where, and how often.
    facts
        What the fit is of, by name.

    Raises
    ------
    CheckpointError
        The folder cannot be used, or another process uses it.
    """

    def __init__(self, comm: Communicator, keeping: Keeping, facts: dict[str, Any]) -> None:
        self._states = FitStates(comm, NAME, shared=False, keeping=keeping, facts=facts)

    def load(self, max_iter: int) -> AlsFitState | None:
        """How far an earlier fit had come, if one had.

        Raises
        ------
        CheckpointError
            What is there is of another fit, or has come further than this one is to go.
        """
        found, done = self._states.load(), self._states.done
        if not found:
            return None
        self._states.refuse_beyond(done, max_iter - 1, f"max_iter={max_iter}")
        users, items = zip(*found, strict=True)
        return AlsFitState(done, np.concatenate(users), np.concatenate(items))

    def save(self, iteration: int, users: NDArray[np.float32], items: NDArray[np.float32]) -> None:
        """Keep the factors after an iteration, of which each rank has its own, if it has its turn."""
        self._states.save(iteration, (users, items))

    def close(self) -> None:
        """Let other processes have the folder."""
        self._states.close()


def digest(comm: Communicator, users: RatingSide) -> int:
    """A number that other ratings do not have, whoever has read them."""
    rows = np.repeat(np.arange(users.own.start, users.own.stop), np.diff(users.starts))
    pairs = mixed((rows << 32) | users.columns.astype(np.int64)).view(np.int64)
    own = mixed(pairs + users.values.view(np.int32)).view(np.int64).sum()
    return int(comm.allreduce(np.array([own]))[0])
