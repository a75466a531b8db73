"""Combine rows with equal keys: by an operation of the native module, or by a function on blocks of rows.

A function takes two blocks of rows, left and right, and returns one: row i of the result combines row i of both. A
group of m rows is folded in ceil(log2 m) rounds. In each round one call combines all pairs of neighbors of all groups.
The order is fixed, so the bits are the same in every run. The function should be associative.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ripieno._types import Combining, OpName
from ripieno.errors import InputError
from ripieno.wire.operations import OPS, PAIRWISE, check_rows, description_of, name_of, named

Combine = OpName | Literal["mul", "concat"] | Combining

CONCAT = "concat"


class Combiner(NamedTuple):
    """An operation or function, with a name that all ranks share.

    Attributes
    ----------
    name : str
        An operation, "concat", or the name of the function.
    function : callable or None
        The caller's function, or None for an operation.
    """

    name: str
    function: Callable[[Any, Any], Any] | None

    @property
    def text(self) -> str:
        """The combiner in texts that ranks compare."""
        return self.name if self.function is None else description_of(self.function)

    @property
    def combine(self) -> Combine:
        """The combiner as the argument of another call."""
        return self.function or self.name  # type: ignore[return-value]  # without a function it names an operation

    @property
    def blockwise(self) -> Callable[[Any, Any], Any]:
        """The combiner as a function on blocks or arrays."""
        if self.function is not None:
            return self.function
        return _joined if self.name == CONCAT else self.ufunc

    @property
    def ufunc(self) -> np.ufunc:
        """The NumPy function of an operation. It supports reductions, too."""
        return PAIRWISE[self.name].on_arrays


def combiner_of(combine: Any) -> Combiner:
    """Return the combiner for the caller's ``combine=``."""
    op = named("prod" if combine == "mul" else combine)
    if callable(op):
        return Combiner(name_of(op), op)
    if op not in (*OPS, CONCAT):
        raise InputError(
            f"combine={combine!r}: expected one of {', '.join(OPS)}, {CONCAT}, or a function of two blocks"
        )
    return Combiner(op, None)


def combine_blocks(combiner: Combiner, left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """Return the combination of two blocks, checked to be a block of the same shape and dtype."""
    return check_rows("combine", combiner.blockwise, combiner.blockwise(left, right), left)


def fold(combiner: Combiner, values: NDArray[Any], counts: NDArray[Any]) -> NDArray[Any]:
    """Combine the rows of each group to one row. Groups of `counts` rows are consecutive in `values`.

    Each round combines rows 2i and 2i + 1 of every group; an odd last row waits for the next round. Groups with a
    single row take no further part, so the total cost is about twice the number of rows.
    """
    counts = counts.astype(np.int64)
    result = np.empty((len(counts), *values.shape[1:]), values.dtype)
    groups = np.arange(len(counts))
    while len(groups):
        starts = np.cumsum(counts) - counts
        single = counts == 1
        result[groups[single]] = values[starts[single]]
        groups, counts, starts = groups[~single], counts[~single], starts[~single]
        if len(groups) == 0:
            break
        pairs, odd = counts // 2, counts % 2 == 1
        within = np.arange(pairs.sum()) - np.repeat(np.cumsum(pairs) - pairs, pairs)
        left = np.repeat(starts, pairs) + 2 * within
        rows = combine_blocks(combiner, values[left], values[left + 1])
        next_counts = pairs + odd
        next_starts = np.cumsum(next_counts) - next_counts
        next_values = np.empty((int(next_counts.sum()), *values.shape[1:]), values.dtype)
        next_values[np.repeat(next_starts, pairs) + within] = rows
        next_values[(next_starts + pairs)[odd]] = values[(starts + counts - 1)[odd]]
        values, counts = next_values, next_counts
    return result


def _joined(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([left, right])
