"""Accumulators: values that programs or tasks add to and that the caller or driver reads.

Amounts are combined task by task, in order of rank, so a sum has the same bits for any timing.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from numbers import Number
from typing import Any, NoReturn

import numpy as np

from ripieno._types import Op
from ripieno.errors import InputError
from ripieno.wire.operations import ARITHMETIC, PAIRWISE, named, text_of

Amounts = dict[int, Any]

_numbers = itertools.count()


class Accumulator:
    """A value that `map` and `reduce` add to through any reference, and that only the driver reads.

    Created by `MapReduce.accumulator`. In a task its only method is ``add(amount)``.

    Attributes
    ----------
    value : number or ndarray
        The initial value, combined with the amounts of all successful steps.
    """

    def __init__(self, number: int, initial: Any, op: Op) -> None:
        op = named(op)
        if op not in ARITHMETIC:
            raise InputError(f"op={text_of(op)}: expected one of {', '.join(ARITHMETIC)}")
        _check_number(initial)
        self.number = number
        self.op = op
        self.value = initial

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("an accumulator is known to the functions of its own job only")

    def __repr__(self) -> str:
        return f"<Accumulator {self.number}: {self.value}>"


class JobAccumulator(Accumulator):
    """A value that programs add to through any reference, and that the caller reads; created by `Job.accumulator`.

    Attributes
    ----------
    value : number or ndarray
        The initial value, combined with the amounts of all successful programs.
    """

    def __init__(self, initial: Any, op: Op) -> None:
        super().__init__(next(_numbers), initial, op)

    def add(self, amount: Any) -> None:
        """Combine, in a program, the value with `amount`, a number or an array of the shape of the initial value.

        Raises
        ------
        InputError
            If `amount` is no number or has another shape, or if the thread does not run a program.
        """
        PROGRAMS.adder(self.number, np.shape(self.value), self.op).add(amount)

    def __reduce__(self) -> tuple[Any, ...]:
        return _adder, (self.number, np.shape(self.value), self.op)


class Adder:
    """An accumulator as seen by a task."""

    def __init__(self, totals: AccumulatorTotals, number: int, shape: tuple[int, ...], op: str) -> None:
        self._totals = totals
        self._number = number
        self._shape = shape
        self._op = op

    def add(self, amount: Any) -> None:
        """Combine `amount`, a number or an array of the shape of the initial value, with the accumulator."""
        _check_number(amount)
        if np.shape(amount) != self._shape:
            raise InputError(f"accumulator.add: the shape is {np.shape(amount)}: expected {self._shape}")
        amounts = self._totals.amounts()
        before = amounts.get(self._number)
        # An array is copied, because the task may modify it later.
        amounts[self._number] = np.array(amount) if before is None and self._shape else amount
        if before is not None:
            amounts[self._number] = combined(self._op, before, amount)

    @property
    def value(self) -> NoReturn:
        """Raise `InputError`: a task cannot read the value."""
        raise InputError(f"{self._totals.rule}: read it where it was made, later")


class AccumulatorTotals:
    """Amounts that the tasks of one rank add. Each thread records them separately for the task that it runs.

    Parameters
    ----------
    where : str
        Names the code that adds to these accumulators.
    """

    def __init__(self, where: str = "map and reduce, by the thread that calls them") -> None:
        self._thread = threading.local()
        self.rule = f"an accumulator can only be added to in {where}"

    def adder(self, number: int, shape: tuple[int, ...], op: str) -> Adder:
        """Return the rank's side of an accumulator."""
        return Adder(self, number, shape, op)

    @contextmanager
    def collecting(self) -> Iterator[Amounts]:
        """Collect the amounts that this thread adds meanwhile, by the number of the accumulator."""
        amounts: Amounts = {}
        # A program that runs in the calling process may itself run other programs.
        before = getattr(self._thread, "amounts", None)
        self._thread.amounts = amounts
        try:
            yield amounts
        finally:
            self._thread.amounts = before

    def amounts(self) -> Amounts:
        """Return the amounts of the task that this thread runs."""
        amounts: Amounts | None = getattr(self._thread, "amounts", None)
        if amounts is None:
            raise InputError(self.rule)
        return amounts


#: Amounts of programs. If ranks are threads of a process, each has its own amounts.
PROGRAMS = AccumulatorTotals("programs, by the thread that runs them")


def _adder(number: int, shape: tuple[int, ...], op: str) -> Adder:
    return PROGRAMS.adder(number, shape, op)


def combined(op: str, left: Any, right: Any) -> Any:
    """Return the combination of two values of an accumulator."""
    scalar, elementwise = PAIRWISE[op]
    if isinstance(left, np.generic | np.ndarray) or isinstance(right, np.generic | np.ndarray):
        return elementwise(left, right)
    return scalar(left, right)


def fold(into: Amounts, amounts: Amounts, ops: Mapping[int, str]) -> None:
    """Combine the amounts of a later task or rank with `into`, in place."""
    for number, amount in amounts.items():
        into[number] = combined(ops[number], into[number], amount) if number in into else amount


def _check_number(value: Any) -> None:
    array = value.dtype.kind in "biufc" if isinstance(value, np.ndarray | np.generic) else isinstance(value, Number)
    if not array:
        raise InputError(f"accumulator: a {type(value).__name__}: expected a number or an array of numbers")
