"""Checkpoints of ALS fits: the factors after an iteration, which determine all later iterations.

Rank 0 writes them to a folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.algorithms.als.ratings import PartitionedRatings, RatingSide
from ripieno.algorithms.fit_checkpoint import CheckpointOptions, FitStates
from ripieno.kernels.hashing import mixed

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

NAME = "als"


@dataclass(frozen=True)
class AlsFitState:
    """The progress of a fit: iteration count, and the factors of all users and items."""

    iteration: int
    users: NDArray[np.float32]
    items: NDArray[np.float32]

    def own(self, ratings: PartitionedRatings) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the factors of a rank's users and items."""
        users, items = ratings.users.own, ratings.items.own
        return self.users[users.start : users.stop], self.items[items.start : items.stop]


class AlsCheckpointer:
    """Saves the progress of a fit to a folder, and to memory if the program restarts after failures.

    Without a folder and without restarts, it does nothing.

    Parameters
    ----------
    comm
        The communicator. All ranks make each call.
    checkpoint_options
        Checkpoint settings.
    facts
        Facts that identify the fit, by name.

    Raises
    ------
    CheckpointError
        The folder cannot be used, or another process uses it.
    """

    def __init__(self, comm: Communicator, checkpoint_options: CheckpointOptions, facts: dict[str, Any]) -> None:
        self._states = FitStates(comm, NAME, shared=False, checkpoint_options=checkpoint_options, facts=facts)

    def load(self, max_iter: int) -> AlsFitState | None:
        """Return the progress of an earlier fit, or None.

        Raises
        ------
        CheckpointError
            The saved state belongs to another fit or is beyond `max_iter`.
        """
        found, done = self._states.load(), self._states.done
        if not found:
            return None
        self._states.check_iteration_limit(done, max_iter - 1, f"max_iter={max_iter}")
        users, items = zip(*found, strict=True)
        return AlsFitState(done, np.concatenate(users), np.concatenate(items))

    def save(self, iteration: int, users: NDArray[np.float32], items: NDArray[np.float32]) -> None:
        """Save the factors if the schedule requires it; each rank passes its own factors."""
        self._states.save(iteration, (users, items))

    def close(self) -> None:
        """Release the folder for other processes."""
        self._states.close()


def digest(comm: Communicator, users: RatingSide) -> int:
    """Return a digest of all ratings; it does not depend on their distribution among ranks."""
    rows = np.repeat(np.arange(users.own.start, users.own.stop), np.diff(users.starts))
    pairs = mixed((rows << 32) | users.columns.astype(np.int64)).view(np.int64)
    own = mixed(pairs + users.values.view(np.int32)).view(np.int64).sum()
    return int(comm.allreduce(np.array([own]))[0])
