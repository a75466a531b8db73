"""Checkpoints of fits with divided centroids: rank 0 writes centroids and labels as they arrive.

Rank 0 needs no memory for all centroids, because it collects them in a temporary file next to the checkpoint. With the
saved labels, a resumed fit does not need to repeat the last assignment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.algorithms.clock import IterationClock
from ripieno.algorithms.fit_checkpoint import CheckpointOptions, FitCheckpoint, WriteSchedule
from ripieno.algorithms.kmeans.divided import DividedCentroids
from ripieno.algorithms.kmeans.rows import WeightedRows
from ripieno.algorithms.kmeans.saved import NAME, History
from ripieno.errors import InputError
from ripieno.files import disk

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator


@dataclass(frozen=True)
class DividedState:
    """The progress of a run: iteration count, history, centroids, and the labels of this worker's rows."""

    iteration: int
    history: History
    centroids: DividedCentroids
    labels: NDArray[np.int32]


class DividedCheckpointer:
    """Saves the state of a fit to a folder; does nothing without one.

    Parameters
    ----------
    comm
        The ranks. All of them make each call.
    checkpoint_options
        Checkpoint settings; rank 0 writes.
    facts
        Facts that identify the fit, by name.
    rows
        This worker's rows.

    Raises
    ------
    InputError
        `every` is set although nothing would be saved.
    CheckpointError
        The folder cannot be used, or another process uses it.
    """

    def __init__(
        self, comm: Communicator, checkpoint_options: CheckpointOptions, facts: dict[str, Any], rows: WeightedRows
    ) -> None:
        if checkpoint_options.every is not None and checkpoint_options.folder is None:
            raise InputError(
                f"every={checkpoint_options.every}: divided centroids are saved only in a folder: expected checkpoint="
            )
        self._comm, self._rows, self.used = comm, rows, checkpoint_options.folder is not None
        self._schedule = WriteSchedule(checkpoint_options.every)
        self._checkpoint = FitCheckpoint(None if comm.rank else checkpoint_options.folder, NAME, facts)

    def load(self, max_iter: int) -> DividedState | None:
        """Return the progress of an earlier fit, or None.

        Raises
        ------
        CheckpointError
            The saved state is damaged, belongs to another fit, or is beyond `max_iter`.
        """
        comm, rows = self._comm, self._rows
        found = self._checkpoint.load()
        if found is not None and found.iteration >= max_iter:
            raise self._checkpoint.unusable(
                f"is a checkpoint after {found.iteration} iterations, and max_iter={max_iter} is lower", "raise it"
            )
        saved: dict[str, Any] = {} if found is None else found.result
        summary = comm.broadcast(
            None if found is None else (found.iteration, saved["history"], saved["centroids"].shape)
        )
        if summary is None:
            return None
        iteration, history, (count, columns) = summary
        self._schedule.last_iteration = iteration
        spans = comm.allgather(rows.spans)

        def centroids_of(first: int, end: int) -> NDArray[Any]:
            centroids: NDArray[Any] = comm.broadcast(saved["centroids"][first:end] if saved else None)
            return centroids

        dtype = comm.broadcast(saved["centroids"].dtype.str if saved else None)
        centroids = DividedCentroids.by_number(comm, count, centroids_of, columns, np.dtype(dtype))
        parts = [_rows_of_spans(saved["labels"], each) for each in spans] if saved else None
        return DividedState(iteration, history, centroids, np.array(comm.scatter(parts)))

    def save(self, state: DividedState) -> None:
        """Save the state after an iteration if the schedule requires it, replacing the earlier state."""
        if not self._comm.broadcast(self._schedule.is_due(state.iteration)):
            return
        self._write(state)
        self._schedule.record_save(state.iteration)

    def close(self) -> None:
        """Release the folder for other processes."""
        self._checkpoint.close()

    def _write(self, state: DividedState) -> None:
        labels, centroids = self._comm.gather((self._rows.spans, state.labels)), state.centroids
        folder = self._checkpoint.folder

        def collect(target: NDArray[Any] | None) -> None:
            for block in centroids.blocks(IterationClock()):
                if target is not None:
                    target[block.numbers] = block.centroids

        if folder is None or labels is None:
            collect(None)
            return
        shape = (centroids.count, centroids.own.shape[1])
        with disk.scratch_array(folder, shape, centroids.own.dtype) as whole:
            collect(whole)
            saved = {"history": state.history, "centroids": whole, "labels": _in_order(labels)}
            self._checkpoint.save(state.iteration, saved)


def _rows_of_spans(labels: NDArray[np.int32], spans: Sequence[tuple[int, int]]) -> NDArray[np.int32]:
    """Return the labels of a rank's rows, taken from the labels of all rows."""
    parts = [labels[first : first + count] for first, count in spans]
    return np.concatenate([labels[:0], *parts])


def _in_order(parts: Sequence[tuple[Sequence[tuple[int, int]], NDArray[np.int32]]]) -> NDArray[np.int32]:
    """Assemble the labels of all rows from each rank's labels and row spans."""
    whole = np.empty(sum(len(labels) for _, labels in parts), np.int32)
    for spans, labels in parts:
        begin = 0
        for first, count in spans:
            whole[first : first + count] = labels[begin : begin + count]
            begin += count
    return whole
