"""Provide `StepProgress`: the state of a job between iterations, and its resumption."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ripieno._types import Op
from ripieno.checkpoints.iterations import CheckpointOptions, IterationCheckpoint
from ripieno.launch.job.accumulators import Accumulator, AddFunction, Addition, Amounts

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator


class StepProgress:
    """The driver's side of a loop of steps; see `MapReduce`.

    Parameters
    ----------
    name : str
        Name of the job.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.iteration = 0
        self.result: Any = None
        self.state: dict[Any, Any] = {}
        self.resumed_from: int | None = None
        self._accumulators: list[Accumulator] = []
        self._restored: list[Any] = []
        self._checkpoint: IterationCheckpoint | None = None
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
        """Return the last result of the resumed checkpoint, or `start` without one."""
        return start if self.resumed_from is None else self.result

    def accumulator(self, initial: Any, op: Op = "sum", *, add: AddFunction | None = None) -> Accumulator:
        """Return an accumulator: `map` and `reduce` add with ``.add(amount)``, and the driver reads the sum.

        Amounts of a step are added once it has succeeded. After a resumption the value is the checkpoint's.

        Parameters
        ----------
        initial : object
            The initial value: a number or an array, or any object with `add`. Amounts have the same shape or type.
        op : {"sum", "prod", "min", "max"}, or an equivalent function, such as ``max``
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
        if self._checkpoint is not None and self._checkpoint.is_due(self.iteration, last=True):
            values = [each.value for each in self._accumulators]
            self._checkpoint.save(self.iteration, (self.result, self.state, values))

    def _open(self, options: CheckpointOptions, program: str, comm: Communicator | None) -> None:
        """Resume from the checkpoint, if one exists. The first of several drivers reads and writes it."""
        self._checkpoint = IterationCheckpoint(
            comm, self.name, options, shared=True, program=program, objects=True, in_memory=False
        )
        try:
            saved = self._checkpoint.load()
        except BaseException:
            self._checkpoint.close()
            raise
        for self.result, self.state, self._restored in saved:
            self.iteration = self.resumed_from = self._checkpoint.done
            if comm is None or comm.rank == 0:
                done = f"{self.iteration} iteration{'' if self.iteration == 1 else 's'}"
                print(f"ripieno: {self.name} resumes after {done}, from {self._checkpoint.folder}", file=sys.stderr)

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
        if self._checkpoint is not None and self._checkpoint.is_due(self.iteration, last=is_last):
            self.save()
