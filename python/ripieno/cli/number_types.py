"""Types of options for numbers. Each has a bound."""

from __future__ import annotations

from typing import Any

import click

from ripieno._checks import COUNT_MAX, SECONDS_MAX
from ripieno.errors import InputError
from ripieno.units import seconds_of

#: Type of an option for a number of repeated runs.
REPETITIONS = click.IntRange(1, 1_000_000)


class Count(click.IntRange):
    """A whole number >= `minimum` that 63 bits hold."""

    def __init__(self, minimum: int = 1) -> None:
        super().__init__(min=minimum)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        number = super().convert(value, param, ctx)
        if number > COUNT_MAX:
            self.fail(f"{number}: expected a whole number >= {self.min}, and below 2**63", param, ctx)
        return number


class LargeCount(click.ParamType):  # type: ignore[type-arg]  # click is generic from 8.5 on only
    """A whole number, also written as 7.42e6."""

    name = "count"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        try:
            number = float(value)
            if number.is_integer() and 1 <= number <= 1e15:
                return int(number)
        except ValueError:
            pass
        self.fail(f"{value!r}: expected a whole number of 1 to 1e15, such as 7.42e6", param, ctx)


class Seconds(click.FloatRange):
    """A duration of at least `minimum` seconds, or more than that: a number of seconds, or one with a unit (500ms)."""

    name = "seconds"

    def __init__(self, minimum: float = 0.0, *, above: bool = False) -> None:
        super().__init__(minimum, SECONDS_MAX, min_open=above)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number of seconds."""
        try:
            number = seconds_of("", value) if isinstance(value, str) else value
        except InputError:
            try:
                number = float(value)
            except ValueError:
                self.fail(f"{value!r}: expected seconds, such as 30, 500ms or 2min", param, ctx)
        return super().convert(number, param, ctx)
