"""Preparation of rows for stochastic gradient descent. The epochs themselves are native calls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native

#: Loss functions of a descent.
LOSSES = ("log_loss", "hinge", "squared_error")


@dataclass(frozen=True)
class OrderedColumns:
    """The column indices of sparse rows, in the order of the steps.

    Parameters
    ----------
    starts : (n + 1,) int64
        Start of each row's entries, and the end of the last.
    columns : (e,) int32
        Feature of each entry, one of m.
    step_count
        Number of steps that share the rows evenly.
    """

    starts: NDArray[np.int64]
    columns: NDArray[np.int32]
    step_count: int


@dataclass(frozen=True)
class StepNumbers:
    """Numbers that belong to each rank in each step.

    Parameters
    ----------
    numbers : (sum of counts,) int32
        Numbers of the first rank, step by step, followed by the other ranks' numbers.
    counts : (ranks, steps) int64
    """

    numbers: NDArray[np.int32]
    counts: NDArray[np.int64]


def occurrences(rows: OrderedColumns, owners: NDArray[np.int32], owner_count: int) -> StepNumbers:
    """Return the distinct features of each step, by owner.

    Parameters
    ----------
    rows
    owners : (m,) int32
        Owner of each feature, less than `owner_count`.
    """
    return StepNumbers(*_native.sgd_occurrences(rows, owners, owner_count))


def places(
    rows: OrderedColumns, occurring: StepNumbers, chunk_lens: NDArray[np.int64], penalties: NDArray[np.float64]
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Number the entries of each step by their features.

    Parameters
    ----------
    rows
    occurring
        Result of `occurrences`.
    chunk_lens : (steps,) int64
        Number of slots that each owner has in a step, at least its number of features.
    penalties : (m,) float64
        Penalty's contribution to the gradient of a row with the feature, per weight.

    Returns
    -------
    places : (e,) int32
        Position of each entry's feature in the vector of its step.
    penalties : (sum of counts,) float64
        Penalty's contribution to the gradients of the step's features, per weight.
    """
    return _native.sgd_places(rows, occurring, chunk_lens, penalties)


def needed_features(requested: StepNumbers, feature_count: int, step_count: int) -> tuple[StepNumbers, StepNumbers]:
    """Return the features that this rank owns and that occur in each step on any rank.

    Parameters
    ----------
    requested
        Owned features that occur in the rows of each rank, in that rank's order.
    feature_count
        Number of features that this rank owns.

    Returns
    -------
    needed
        Distinct features of each step.
    requested
        Features of each rank as positions in `needed`.
    """
    features, counts, places = _native.sgd_needed_features(requested, feature_count, step_count)
    return StepNumbers(features, counts[None]), StepNumbers(places, requested.counts)


@dataclass(frozen=True)
class StepRows:
    """The rows of a rank, in the order of steps, and the owners of their features.

    Parameters
    ----------
    starts : (n + 1,) int64
        Start of each row's entries, and the end of the last.
    places : (e,) int32
        Position of each entry's feature in the vector of its step.
    values : (e,) float64
    classes : (n,) int32
        Class number of each row.
    counts : (ranks, steps) int64
        Number of features of each owner that occur in each step.
    penalties : (sum of counts,) float64
        Penalty's contribution to the gradient of each of these features, per weight.
    needed, requested
        Features that this rank owns, per step and per rank, as returned by `needed_features`.
    chunk_lens : (steps,) int64
        Number of slots per owner: the maximum number of features of one owner on any rank, or more; equal on every
        rank.
    """

    starts: NDArray[np.int64]
    places: NDArray[np.int32]
    values: NDArray[np.float64]
    classes: NDArray[np.int32]
    counts: NDArray[np.int64]
    penalties: NDArray[np.float64]
    needed: StepNumbers
    requested: StepNumbers
    chunk_lens: NDArray[np.int64]


@dataclass(frozen=True)
class DescentOptions:
    """Parameters of a descent.

    Parameters
    ----------
    loss
        One of `LOSSES`.
    eta0
        Length of a feature's first step.
    rows_per_step
        Average number of rows of a step over all ranks.
    """

    loss: str
    eta0: float
    rows_per_step: float
