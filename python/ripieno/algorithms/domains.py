"""Domains of parameters: their valid values, and the descriptions for errors and documentation."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np

from ripieno._checks import COUNT_MAX


class Domain:
    """The values of a parameter. This class accepts any value: the estimator itself checks it.

    Parameters
    ----------
    type
        Type for the documentation, such as "callable or None".
    expected
        Description of the valid values for errors, such as "a whole number >= 1".
    also
        Words, or None, that are valid in addition to the values that `_has` accepts.
    """

    def __init__(self, type: str, expected: str = "", also: tuple[str | None, ...] = ()) -> None:
        words = [each for each in also if each is not None]
        self.type = " or ".join([*(f'"{word}"' for word in words), type, *["None"] * (None in also)])
        self.expected = " or ".join([*map(repr, words), expected]) + ", or None" * (None in also)
        self.also = also

    def accepts(self, value: Any) -> bool:
        """Return whether a value is valid."""
        return self._is_word(value) or self._has(value)

    def plain(self, value: Any) -> Any:
        """Return a valid value in the Python type that workers and checkpoints use."""
        return value if self._is_word(value) else self._plain(value)

    def fact(self, value: Any) -> Any:
        """Return the part of a valid value that a checkpoint compares."""
        return self.plain(value)

    def _is_word(self, value: Any) -> bool:
        # A value may be an array, which has no truth value.
        return (value is None or isinstance(value, str)) and value in self.also

    def _has(self, value: Any) -> bool:
        return True

    def _plain(self, value: Any) -> Any:
        return value


class Integer(Domain):
    """Whole numbers from `minimum` to `maximum`. By default they are below 2**63, as in the native module."""

    def __init__(self, minimum: int, maximum: int | None = None, also: tuple[str | None, ...] = ()) -> None:
        expected = f"a whole number >= {minimum}" if maximum is None else f"a whole number, {minimum} … {maximum}"
        super().__init__("int", expected, also)
        self.minimum, self.maximum = minimum, maximum

    def _has(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, Integral):
            return False
        return self.minimum <= int(value) <= (COUNT_MAX if self.maximum is None else self.maximum)

    def _plain(self, value: Any) -> Any:
        return int(value)


class Number(Domain):
    """Real numbers >= `minimum`, or > `above`, and <= `maximum`, or < `below`; infinite numbers if `is_unbounded`."""

    def __init__(
        self,
        *,
        minimum: float | None = None,
        above: float | None = None,
        maximum: float | None = None,
        below: float | None = None,
        is_unbounded: bool = False,
        also: tuple[str | None, ...] = (),
    ) -> None:
        if minimum is not None and maximum is not None:
            expected = f"a number from {minimum:g} to {maximum:g}"
        elif above is not None and below is not None:
            expected = f"a number between {above:g} and {below:g}"
        else:
            bounds = {">=": minimum, ">": above, "<=": maximum, "<": below}
            expected = "a number " + " and ".join(f"{sign} {x:g}" for sign, x in bounds.items() if x is not None)
        super().__init__("float", expected, also)
        self.minimum, self.above, self.maximum, self.below = minimum, above, maximum, below
        self.is_unbounded = is_unbounded

    def _has(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, Real):
            return False
        x = float(value)
        return (
            (self.is_unbounded or math.isfinite(x))
            and (self.minimum is None or x >= self.minimum)
            and (self.above is None or x > self.above)
            and (self.maximum is None or x <= self.maximum)
            and (self.below is None or x < self.below)
        )

    def _plain(self, value: Any) -> Any:
        return float(value)


class OneOf(Domain):
    """One of several names; also values of the type `other`, which are not strings, if given."""

    def __init__(self, *names: str, other: str = "") -> None:
        if len(names) == 1:
            super().__init__(other, other, also=names)
        else:
            listed = "{" + ", ".join(f'"{name}"' for name in names) + "}"
            more = f", {other}" if other else ""
            super().__init__(listed + more, f"one of {', '.join(names)}{more}")
        self.names, self.other = names, other

    def _has(self, value: Any) -> bool:
        return value in self.names if isinstance(value, str) else bool(self.other)


class Flag(Domain):
    """True or False."""

    def __init__(self) -> None:
        super().__init__("bool", "True or False")

    def _has(self, value: Any) -> bool:
        return isinstance(value, bool | np.bool_) or (isinstance(value, Integral) and value in (0, 1))

    def _plain(self, value: Any) -> Any:
        return bool(value)


class Seed(Domain):
    """Whole numbers, a generator, or None for a seed of the operating system: scikit-learn's ``random_state``."""

    #: Seeds of `numpy.random.RandomState`.
    MAX = 2**32 - 1

    def __init__(self) -> None:
        super().__init__(
            "int, RandomState instance", f"a whole number from 0 to {self.MAX}, or a RandomState", also=(None,)
        )

    def _has(self, value: Any) -> bool:
        if isinstance(value, Integral) and not isinstance(value, bool):
            return 0 <= int(value) <= self.MAX
        return value is np.random or isinstance(value, np.random.RandomState)

    def fact(self, value: Any) -> int | None:
        """Return the seed if it is a number. A fit with another source of seeds resumes with any seed."""
        return int(value) if isinstance(value, Integral) else None


class Folder(Domain):
    """The path of a folder on this machine, or None."""

    def __init__(self) -> None:
        super().__init__("path", "a path", also=(None,))


#: Tolerances of convergence. An infinite tolerance ends a fit after its first iteration.
TOLERANCE = Number(minimum=0, is_unbounded=True)
COUNT = Integer(1)
#: Maximum number of starts of a fit: each has a seed.
STARTS_MAX = 1_000_000
FLAG = Flag()
