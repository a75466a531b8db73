"""`StepProgress`: what a job knows from iteration to iteration, and what it resumes from."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ripieno import log
from ripieno._types import Op
from ripieno.launch.job.accumulators import Accumulator, Amounts, combined
from ripieno.mapreduce.checkpoint import CheckpointContents, Checkpoints

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator


class StepProgress:
    """The driver's side of a loop of steps, see `MapReduce`.

    Parameters
    ----------
    name : str
        The job's.
    every : int
        Iterations from one checkpoint to the next.
    """

    def __init__(self, name: str, every: int) -> None:
        self.name = name
        self.iteration = 0
        self.result: Any = None
        self.state: dict[Any, Any] = {}
        self.resumed_from: int | None = None
        self._every = every
        self._accumulators: list[Accumulator] = []
        self._restored: list[Any] = []
        self._checkpoints: Checkpoints | None = None
        self._in_iterations = False

    def iterations(self, count: int) -> Iterator[int]:
        """How many iterations are done before each one that is left of `count`: 0 … count - 1 without a resumption.

        What is shown counts the iteration itself, too, so that the first one is iteration 1.

        After every `every`-th of them, and after the last, a checkpoint is written: when the loop's body has ended, so
        that it holds what the body has done to `state`. A step outside such a loop is an iteration of its own, whose
        checkpoint is written before it returns. After a ``break`` there is none, but by `save`.
        """
        while self.iteration < count:
            self._in_iterations = True
            try:
                yield self.iteration
            finally:
                self._in_iterations = False
            self._finish_iteration(is_last=self.iteration == count - 1)

    def resume(self, start: Any) -> Any:
        """The result of the last step of the checkpoint from which this job has resumed; otherwise `start`."""
        return start if self.resumed_from is None else self.result

    def accumulator(self, initial: Any, op: Op = "sum") -> Accumulator:
        """A value that `map` and `reduce` add to by ``.add(amount)``, wherever they refer to it, and the driver reads.

        What was added in a step counts once it has ended well. After a resumption the value is the checkpoint's.

        Parameters
        ----------
        initial : number or array
            Amounts have the same shape.
        op : {"sum", "prod", "min", "max"}, or a function that means one, such as ``max``
            How amounts are combined.
        """
        made = Accumulator(len(self._accumulators), initial, op)
        if made.number < len(self._restored):
            made.value = self._restored[made.number]
        self._accumulators.append(made)
        return made

    def save(self) -> None:
        """Write a checkpoint now; without ``checkpoint=`` nothing.

        Raises
        ------
        CheckpointError
            It cannot be written. The last one, if there is one, is still there.
        SerializationError
            Something in it cannot be pickled; likewise.
        """
        if self._checkpoints is not None:
            values = [each.value for each in self._accumulators]
            self._checkpoints.save(CheckpointContents(self.iteration, self.result, self.state, values))
            log.note("ripieno.mapreduce", f"checkpoint of iteration {self.iteration} in {self._checkpoints.folder}")

    def _open(self, folder: Path, program: str, comm: Communicator | None, *, trusted: bool) -> None:
        """Resume from the checkpoint in `folder`, if there is one; the first of several drivers reads and writes it."""
        saved = None
        if comm is None or comm.rank == 0:
            self._checkpoints = Checkpoints(folder, self.name, program, trusted=trusted)
            try:
                saved = self._checkpoints.load()
            except BaseException:
                self._checkpoints.close()
                raise
        if comm is not None:
            saved = comm.broadcast(saved)
        if saved is None:
            return
        self.result, self.state, self._restored = saved.result, saved.state, saved.accumulators
        self.iteration = self.resumed_from = saved.iteration
        if self._checkpoints is not None:
            done = f"{saved.iteration} iteration{'' if saved.iteration == 1 else 's'}"
            words = f"{self.name} resumes after {done}, from {self._checkpoints.folder}"
            print(f"ripieno: {words}", file=sys.stderr)
            log.note("ripieno.mapreduce", words)

    @property
    def _ops(self) -> dict[int, str]:
        return {each.number: each.op for each in self._accumulators}

    def _add(self, amounts: Amounts) -> None:
        for each in self._accumulators:
            if each.number in amounts:
                each.value = combined(each.op, each.value, amounts[each.number])

    def _finish_iteration(self, *, is_last: bool = False) -> None:
        self.iteration += 1
        if is_last or self.iteration % self._every == 0:
            self.save()
