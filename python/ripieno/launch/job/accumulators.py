"""Provide accumulators: programs or tasks add to them, and the caller or driver reads them.

Amounts are combined task by task, in order of rank, so a sum has the same bits for any timing.
"""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Number
from typing import Any, NoReturn

import numpy as np

from ripieno._types import Op
from ripieno.errors import InputError
from ripieno.wire.operations import ARITHMETIC, PAIRWISE, check_object, description_of, named, text_of

Amounts = dict[int, Any]
AddFunction = Callable[[Any, Any], Any]

_numbers = itertools.count()


@dataclass(frozen=True)
class Addition:
    """The rule of an accumulator for combining two amounts.

    Attributes
    ----------
    op
        An operation of numbers and arrays, or a function of any two amounts.
    shape
        Shape of the numbers or arrays; unused for a function.
    """

    op: str | AddFunction
    shape: tuple[int, ...] = ()

    @classmethod
    def of(cls, initial: Any, op: Op, add: AddFunction | None) -> Addition:
        """Return the rule for the arguments of `Job.accumulator`, or raise `InputError`."""
        op = named(op)
        if add is not None:
            if op != "sum":
                raise InputError(f"op={text_of(op)} and add={text_of(add)}: expected one of them")
            if not callable(add):
                raise InputError(f"add: a {type(add).__name__}: expected a function of two values")
            return cls(add)
        if op not in ARITHMETIC:
            hint = "; pass any other function as add=" if callable(op) else ""
            raise InputError(f"op={text_of(op)}: expected one of {', '.join(ARITHMETIC)}{hint}")
        _check_number(initial)
        return cls(op, np.shape(initial))

    def check(self, amount: Any) -> None:
        """Raise `InputError` unless `amount` can be added. A function checks its own operands."""
        if isinstance(self.op, str):
            _check_number(amount)
            if np.shape(amount) != self.shape:
                raise InputError(f"accumulator.add: the shape is {np.shape(amount)}: expected {self.shape}")

    def copied(self, amount: Any) -> Any:
        """Return a copy that neither the owner of `amount` nor a function that modifies its operands can change."""
        if isinstance(self.op, str):
            return np.array(amount) if isinstance(amount, np.ndarray) else amount
        try:
            return copy.deepcopy(amount)
        except TypeError as error:
            raise InputError(f"accumulator: a {type(amount).__name__} cannot be copied: {error}") from error

    def combined(self, left: Any, right: Any) -> Any:
        """Return the combination of two amounts. It may take over `left`, but never refers to `right`."""
        if isinstance(self.op, str):
            scalar, elementwise = PAIRWISE[self.op]
            are_arrays = isinstance(left, np.generic | np.ndarray) or isinstance(right, np.generic | np.ndarray)
            return elementwise(left, right) if are_arrays else scalar(left, right)
        return check_object(self.op, self.op(left, self.copied(right)), left, right, parameter="add")

    def __str__(self) -> str:
        return self.op if isinstance(self.op, str) else description_of(self.op)


class Accumulator:
    """A value that `map` and `reduce` add to through any reference, and that only the driver reads.

    Created by `MapReduce.accumulator`. In a task its only method is ``add(amount)``.

    Attributes
    ----------
    value : object
        The initial value, combined with the amounts of all successful steps.
    """

    def __init__(self, number: int, initial: Any, op: Op, add: AddFunction | None) -> None:
        self.number = number
        self.addition = Addition.of(initial, op, add)
        self.value = self.addition.copied(initial)

    def with_amount(self, amount: Any) -> Any:
        """Return the value combined with `amount`. The value itself stays as it is."""
        return self.addition.combined(self.addition.copied(self.value), amount)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("an accumulator is known to the functions of its own job only")

    def __repr__(self) -> str:
        return f"<Accumulator {self.number}: {self.value}>"


class JobAccumulator(Accumulator):
    """A value that programs add to through any reference, and that the caller reads; created by `Job.accumulator`.

    Attributes
    ----------
    value : object
        The initial value, combined with the amounts of all successful programs.
    """

    def __init__(self, initial: Any, op: Op, add: AddFunction | None) -> None:
        super().__init__(next(_numbers), initial, op, add)

    def add(self, amount: Any) -> None:
        """Combine, in a program, the value with a copy of `amount`.

        Without a function, `amount` is a number, or an array of the shape of the initial value.

        Raises
        ------
        InputError
            If `amount` is not a number or has another shape, or if the thread does not run a program.
        """
        PROGRAMS.adder(self.number, self.addition).add(amount)

    def __reduce__(self) -> tuple[Any, ...]:
        return _adder, (self.number, self.addition)


class Adder:
    """An accumulator as seen by a task."""

    def __init__(self, totals: AccumulatorTotals, number: int, addition: Addition) -> None:
        self._totals = totals
        self._number = number
        self._addition = addition

    def add(self, amount: Any) -> None:
        """Combine a copy of `amount` with the accumulator."""
        self._addition.check(amount)
        fold(self._totals.amounts(), {self._number: amount}, {self._number: self._addition})

    @property
    def value(self) -> NoReturn:
        """Raise `InputError`: a task cannot read the value."""
        raise InputError(f"{self._totals.rule}: its value can be read by the code that created it")


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

    def adder(self, number: int, addition: Addition) -> Adder:
        """Return the rank's side of an accumulator."""
        return Adder(self, number, addition)

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


def _adder(number: int, addition: Addition) -> Adder:
    return PROGRAMS.adder(number, addition)


def fold(into: Amounts, amounts: Amounts, additions: Mapping[int, Addition]) -> None:
    """Combine the amounts of a later task or rank with `into`, in place."""
    for number, amount in amounts.items():
        addition = additions[number]
        into[number] = addition.combined(into[number], amount) if number in into else addition.copied(amount)


def _check_number(value: Any) -> None:
    array = value.dtype.kind in "biufc" if isinstance(value, np.ndarray | np.generic) else isinstance(value, Number)
    if not array:
        raise InputError(
            f"accumulator: a {type(value).__name__}: expected a number or an array of numbers, or a function as add="
        )
