"""Checkpoints of K-means fits: the centroids after an iteration, and data that determine the labels of the rows.

Whole centroids are saved with the centroids before the iteration. Each rank computes its labels from the latter.
Divided centroids are saved with the labels of all rows. Rank 0 needs no memory for all centroids: it collects them in a
temporary file next to the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.algorithms.clock import IterationClock
from ripieno.algorithms.kmeans.divided import DividedCentroids
from ripieno.algorithms.kmeans.rows import WeightedRows
from ripieno.checkpoints.iterations import IterationCheckpoint
from ripieno.comm.agreement import on_root
from ripieno.errors import CheckpointError
from ripieno.files import disk
from ripieno.files.results import explain

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: Per iteration: inertia, squared shift, part compared, recall and gap.
History = list[tuple[float, float, float, float, float]]


@dataclass(frozen=True)
class BestRun:
    """The best completed run: its number, from 0, its centroids and inertia, and the history of its iterations."""

    run: int
    centroids: NDArray[Any]
    inertia: float
    history: History


@dataclass(frozen=True)
class KMeansFitState:
    """The progress of a fit.

    Parameters
    ----------
    run, iteration
        Number of the current run, from 0, and its number of completed iterations.
    centroids : (k, d)
        Centroids after the last iteration.
    before : (k, d)
        Whole centroids before it.
    labels : (n,) int32
        Labels of this worker's rows in it, for divided centroids.
    history
        Measures of each iteration.
    best
        Best of the earlier runs.
    """

    run: int
    iteration: int
    centroids: NDArray[Any] | DividedCentroids
    before: NDArray[Any] | None
    labels: NDArray[np.int32] | None
    history: History
    best: BestRun | None = None


class KMeansCheckpoint(IterationCheckpoint):
    """The checkpoint of a fit with whole centroids, which all ranks have."""

    # Saved iterations of all runs. The last iteration of a run is not saved.
    _iterations = 0

    def progress(self, max_iter: int) -> KMeansFitState | None:
        """Return the progress of an earlier fit, or None.

        Raises
        ------
        CheckpointError
            The saved state is damaged, belongs to another fit, or is beyond `max_iter`.
        """
        for found in self.load():
            best = found["best"]
            state = KMeansFitState(**(found | {"best": None if best is None else BestRun(**best)}))
            self.check_iteration_limit(state.iteration, max_iter - 1, f"max_iter={max_iter}")
            self._iterations = self.done
            return state
        return None

    def save_progress(self, state: KMeansFitState) -> None:
        """Save the state after an iteration if it is due."""
        self._iterations += 1
        if self.is_due(self._iterations):
            self.save(self._iterations, vars(state) | {"best": state.best and vars(state.best)})


class DividedCheckpoint(KMeansCheckpoint):
    """The checkpoint of a fit with divided centroids, in a folder only; `rows` are this worker's rows."""

    def __init__(self, comm: Communicator, *args: Any, rows: WeightedRows, **options: Any) -> None:
        super().__init__(comm, *args, **options, in_memory=False)
        self._rows, self._workers = rows, comm

    def _distributed(self, states: list[Any]) -> list[Any]:
        """Send the ranks their centroids and labels block by block."""
        comm, saved = self._workers, states[0] if states else {}
        whole: NDArray[Any] = saved.pop("centroids", np.empty((0, 0)))
        labels = saved.pop("labels", None)
        progress, (count, columns), dtype = comm.broadcast((saved, whole.shape, whole.dtype.str))

        def centroids_of(first: int, end: int) -> NDArray[Any]:
            centroids: NDArray[Any] = comm.broadcast(whole[first:end])
            return centroids

        spans = comm.allgather(self._rows.spans)
        parts = [_rows_of_spans(labels, each) for each in spans] if comm.rank == 0 else None
        centroids = DividedCentroids.by_number(comm, count, centroids_of, columns, np.dtype(dtype))
        return [progress | {"centroids": centroids, "labels": np.array(comm.scatter(parts))}]

    @contextmanager
    def _gathered(self, state: Any) -> Iterator[list[Any] | None]:
        """Collect the centroids of all ranks in a temporary file of rank 0, and the labels of all rows."""
        comm, centroids, whole = self._workers, state["centroids"], None
        with ExitStack() as files:

            def open_file() -> None:
                nonlocal whole
                shape = (centroids.count, centroids.own.shape[1])
                assert self.folder is not None, "divided centroids are saved only in a folder"
                try:
                    whole = files.enter_context(disk.scratch_array(self.folder, shape, centroids.own.dtype))
                except OSError as error:
                    raise CheckpointError(f"the checkpoint {self.folder}: {explain(error)}") from error

            on_root(comm, open_file)
            labels = comm.gather((self._rows.spans, state["labels"]))
            for block in centroids.blocks(IterationClock()):
                if whole is not None:
                    whole[block.numbers] = block.centroids
            yield None if labels is None else [state | {"centroids": whole, "labels": _in_order(labels)}]


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
