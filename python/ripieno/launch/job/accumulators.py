"""Accumulators: programs or tasks add, the caller or driver reads.

What is added is combined task by task, ranks in order, so a sum has the same bits whichever was faster.
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
    """A value that `map` and `reduce` add to, wherever they refer to it, and that only the driver reads.

    `MapReduce.accumulator` makes one. In a task it has but one method, ``add(amount)``.

    Attributes
    ----------
    value : number or ndarray
        The initial value, combined with the additions of all steps that have ended well.
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
    """A value that programs add to, wherever they refer to it, and that the caller reads; `Job.accumulator` makes it.

    Attributes
    ----------
    value : number or ndarray
        The initial value, combined with the additions of all programs that have ended well.
    """

    def __init__(self, initial: Any, op: Op) -> None:
        super().__init__(next(_numbers), initial, op)

    def add(self, amount: Any) -> None:
        """In a program: combine `amount`, a number or an array of the shape of the initial value, with it.

        Raises
        ------
        InputError
            Not a number, or of another shape; or not in the thread that runs a program.
        """
        PROGRAMS.adder(self.number, np.shape(self.value), self.op).add(amount)

    def __reduce__(self) -> tuple[Any, ...]:
        return _adder, (self.number, np.shape(self.value), self.op)


class Adder:
    """What a task sees of an accumulator."""

    def __init__(self, ledger: AccumulatorTotals, number: int, shape: tuple[int, ...], op: str) -> None:
        self._ledger = ledger
        self._number = number
        self._shape = shape
        self._op = op

    def add(self, amount: Any) -> None:
        """Combine `amount`, a number or an array of the shape of the initial value, with the accumulator."""
        _check_number(amount)
        if np.shape(amount) != self._shape:
            raise InputError(f"accumulator.add: the shape is {np.shape(amount)}: expected {self._shape}")
        amounts = self._ledger.amounts()
        before = amounts.get(self._number)
        # An array is copied, as the task may go on to change it.
        amounts[self._number] = np.array(amount) if before is None and self._shape else amount
        if before is not None:
            amounts[self._number] = combined(self._op, before, amount)

    @property
    def value(self) -> NoReturn:
        """Not here."""
        raise InputError(f"{self._ledger.rule}: read it where it was made, later")


class AccumulatorTotals:
    """What the tasks of one rank add: each thread writes on the page of the task that it is running.

    Parameters
    ----------
    where : str
        Which code adds to these accumulators.
    """

    def __init__(self, where: str = "map and reduce, by the thread that calls them") -> None:
        self._thread = threading.local()
        self.rule = f"an accumulator can only be added to in {where}"

    def adder(self, number: int, shape: tuple[int, ...], op: str) -> Adder:
        """The rank's end of an accumulator."""
        return Adder(self, number, shape, op)

    @contextmanager
    def page(self) -> Iterator[Amounts]:
        """Collects what this thread adds meanwhile, by the number of the accumulator."""
        amounts: Amounts = {}
        # A program that runs in the calling process may itself run others.
        before = getattr(self._thread, "amounts", None)
        self._thread.amounts = amounts
        try:
            yield amounts
        finally:
            self._thread.amounts = before

    def amounts(self) -> Amounts:
        """The page that this thread writes on."""
        amounts: Amounts | None = getattr(self._thread, "amounts", None)
        if amounts is None:
            raise InputError(self.rule)
        return amounts


#: Where ranks are threads of a process each has pages of its own.
PROGRAMS = AccumulatorTotals("programs, by the thread that runs them")


def _adder(number: int, shape: tuple[int, ...], op: str) -> Adder:
    return PROGRAMS.adder(number, shape, op)


def combined(op: str, left: Any, right: Any) -> Any:
    """Two values of an accumulator made one."""
    scalar, elementwise = PAIRWISE[op]
    if isinstance(left, np.generic | np.ndarray) or isinstance(right, np.generic | np.ndarray):
        return elementwise(left, right)
    return scalar(left, right)


def fold(into: Amounts, amounts: Amounts, ops: Mapping[int, str]) -> None:
    """Combine the amounts of a later task, or of a later rank, with those `into` which they go."""
    for number, amount in amounts.items():
        into[number] = combined(ops[number], into[number], amount) if number in into else amount


def _check_number(value: Any) -> None:
    array = value.dtype.kind in "biufc" if isinstance(value, np.ndarray | np.generic) else isinstance(value, Number)
    if not array:
        raise InputError(f"accumulator: a {type(value).__name__}: expected a number or an array of numbers")
