"""What a descent by stochastic gradients looks for in its rows, before its epochs, which are native calls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native

#: What a descent makes small.
LOSSES = ("log_loss", "hinge", "squared_error")


@dataclass(frozen=True)
class OrderedColumns:
    """The columns of rows of few entries, in the order in which steps take the rows.

    Parameters
    ----------
    starts : (n + 1,) int64
        Where the entries of each row begin, and where the last ones end.
    columns : (e,) int32
        The feature of each entry, of m.
    step_count
        How many steps share the rows evenly.
    """

    starts: NDArray[np.int64]
    columns: NDArray[np.int32]
    step_count: int


@dataclass(frozen=True)
class StepNumbers:
    """Numbers that each rank has in each step.

    Parameters
    ----------
    numbers : (sum of counts,) int32
        Those of the first rank, step by step, then those of the others.
    counts : (ranks, steps) int64
    """

    numbers: NDArray[np.int32]
    counts: NDArray[np.int64]


def occurrences(rows: OrderedColumns, homes: NDArray[np.int32], home_count: int) -> StepNumbers:
    """Find the features that occur in each step, by their homes, each once.

    Parameters
    ----------
    rows
    homes : (m,) int32
        The home of each feature, less than `home_count`.
    """
    return StepNumbers(*_native.sgd_occurrences(rows, homes, home_count))


def places(
    rows: OrderedColumns, occurring: StepNumbers, chunk_lens: NDArray[np.int64], penalties: NDArray[np.float64]
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Number the entries of each step by their features.

    Parameters
    ----------
    rows
    occurring
        What `occurrences` finds.
    chunk_lens : (steps,) int64
        Places that each home has in a step, no fewer than features.
    penalties : (m,) float64
        What the penalty adds to the gradient of a row that has the feature, per weight.

    Returns
    -------
    places : (e,) int32
        Where the feature of each entry stands in the vector of its step.
    penalties : (sum of counts,) float64
        What the penalty adds to the gradients of the features of the step, per weight.
    """
    return _native.sgd_places(rows, occurring, chunk_lens, penalties)


def meetings(asked: StepNumbers, feature_count: int, step_count: int) -> tuple[StepNumbers, StepNumbers]:
    """Find the features at home here that occur in each step on any rank.

    Parameters
    ----------
    asked
        Which of the features at home here occur in the rows of each rank, in the order in which that rank has them.
    feature_count
        Features at home here.

    Returns
    -------
    met
        The features of each step, each once.
    asked
        Those of each rank again, by where they stand among these.
    """
    features, counts, places = _native.sgd_meetings(asked, feature_count, step_count)
    return StepNumbers(features, counts[None]), StepNumbers(places, asked.counts)


@dataclass(frozen=True)
class StepRows:
    """The rows of a rank, in the order of steps, and where their features are at home.

    Parameters
    ----------
    starts : (n + 1,) int64
        Where the entries of each row begin, and where the last ones end.
    places : (e,) int32
        Where the feature of each entry stands in the vector of its step.
    values : (e,) float64
    classes : (n,) int32
        The number of each row's class.
    counts : (ranks, steps) int64
        How many features of each home occur in each step.
    penalties : (sum of counts,) float64
        What the penalty adds to the gradient of each of them, per weight.
    met, asked
        The features at home here, of each step and of each rank, as of `meetings`.
    chunk_lens : (steps,) int64
        As many features as any rank has of any home, or more; the same on every rank.
    """

    starts: NDArray[np.int64]
    places: NDArray[np.int32]
    values: NDArray[np.float64]
    classes: NDArray[np.int32]
    counts: NDArray[np.int64]
    penalties: NDArray[np.float64]
    met: StepNumbers
    asked: StepNumbers
    chunk_lens: NDArray[np.int64]


@dataclass(frozen=True)
class DescentOptions:
    """How to descend.

    Parameters
    ----------
    loss
        One of `LOSSES`.
    eta0
        The length of a feature's first step.
    rows_per_step
        Rows of a step on all ranks, in the mean.
    """

    loss: str
    eta0: float
    rows_per_step: float
