"""Provide `StepProgress`: the state of a job between iterations, and its resumption."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ripieno import log
from ripieno._types import Op
from ripieno.launch.job.accumulators import Accumulator, AddFunction, Addition, Amounts
from ripieno.mapreduce.checkpoint import CheckpointContents, Checkpoints

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator


class StepProgress:
    """The driver's side of a loop of steps; see `MapReduce`.

    Parameters
    ----------
    name : str
        Name of the job.
    every : int
        Number of iterations between checkpoints.
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
        """Yield the number of completed iterations before each remaining iteration: 0 … count - 1 without resumption.

        Displays count the running iteration, so they begin with iteration 1.

        A checkpoint is written after every `every`-th iteration, and after the last, at the end of the loop's body. So
        it includes the changes of `state` in the body. A step outside such a loop is an iteration of its own; its
        checkpoint is written before it returns. After a ``break``, only `save` writes one.
        """
        while self.iteration < count:
            self._in_iterations = True
            try:
                yield self.iteration
            finally:
                self._in_iterations = False
            self._finish_iteration(is_last=self.iteration == count - 1)

    def resume(self, start: Any) -> Any:
        """Return the last result of the checkpoint from which this job has resumed, otherwise `start`."""
        return start if self.resumed_from is None else self.result

    def accumulator(self, initial: Any, op: Op = "sum", *, add: AddFunction | None = None) -> Accumulator:
        """Return a value to which `map` and `reduce` add with ``.add(amount)``, and which the driver reads.

        Amounts of a step are added once it has succeeded. After a resumption the value is the checkpoint's.

        Parameters
        ----------
        initial : object
            The initial value: a number or an array, or any object with `add`. Amounts have the same shape or type.
        op : {"sum", "prod", "min", "max"}, or a function that means one, such as ``max``
            The operation that combines amounts.
        add : callable, optional
            ``add(left, right)`` combines values of any type, instead of `op`, as for `Job.accumulator`.
        """
        accumulator = Accumulator(len(self._accumulators), initial, op, add)
        if accumulator.number < len(self._restored):
            accumulator.value = self._restored[accumulator.number]
        self._accumulators.append(accumulator)
        return accumulator

    def save(self) -> None:
        """Write a checkpoint now. Without ``checkpoint=`` this does nothing.

        Raises
        ------
        CheckpointError
            It cannot be written. The last checkpoint remains, if one exists.
        SerializationError
            Part of it cannot be pickled. The last checkpoint remains, if one exists.
        """
        if self._checkpoints is not None:
            values = [each.value for each in self._accumulators]
            self._checkpoints.save(CheckpointContents(self.iteration, self.result, self.state, values))
            log.note("ripieno.mapreduce", f"checkpoint of iteration {self.iteration} in {self._checkpoints.folder}")

    def _open(self, folder: Path, program: str, comm: Communicator | None, *, keep: int, trusted: bool) -> None:
        """Resume from the checkpoint in `folder`, if one exists. The first of several drivers reads and writes it."""
        saved = None
        if comm is None or comm.rank == 0:
            self._checkpoints = Checkpoints(folder, self.name, program, keep=keep, trusted=trusted)
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
            message = f"{self.name} resumes after {done}, from {self._checkpoints.folder}"
            print(f"ripieno: {message}", file=sys.stderr)
            log.note("ripieno.mapreduce", message)

    @property
    def _additions(self) -> dict[int, Addition]:
        return {each.number: each.addition for each in self._accumulators}

    def _values_with(self, amounts: Amounts) -> list[Any]:
        """Return the values of all accumulators, combined with the amounts of a step."""
        return [
            each.with_amount(amounts[each.number]) if each.number in amounts else each.value
            for each in self._accumulators
        ]

    def _finish_iteration(self, *, is_last: bool = False) -> None:
        self.iteration += 1
        if is_last or self.iteration % self._every == 0:
            self.save()
