"""Numeric kernels of the algorithms on NumPy arrays: compiled and threaded, without communication.

Points are C-contiguous float32, float64 or uint8 rows; K-means also accepts `SparsePoints`. Centroids are float64 for
float64 points, else float32 (`centroid_dtype`). Sums are always float64, so results hardly depend on the order of
addition. Distances are Euclidean. Results do not depend on the number of threads. Except for the rounding of sums, they
do not depend on the division of rows among ranks either.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native
from ripieno._types import ThreadModel
from ripieno.kernels.sparse_points import SparsePoints as SparsePoints
from ripieno.kernels.sparse_points import SparseRows as SparseRows

Points = NDArray[Any]
#: Points that K-means accepts.
AnyPoints = Points | SparsePoints
Centroids = NDArray[Any]
Labels = NDArray[np.int32]

#: Distance bounds carried between K-means passes over the same points. The argument is the memory limit in bytes,
#: excluding four bytes per point. `bytes` is the memory used. `compared` is the share of all pairs that the last pass
#: compared.
PassBounds = _native.PassBounds

#: State carried between near passes over the same points: groups of centroids, and the centroid of each point.
NearIndex = _native.NearIndex

#: The groups that each point probes in a near pass over divided centroids. Arguments: points, means of all groups,
#: number of groups to probe, and number of threads. `bytes` is the memory used.
Probing = _native.Probing

THREAD_MODELS = get_args(ThreadModel)


@contextmanager
def threads_in_model(model: str, threads: int) -> Iterator[None]:
    """Execute the kernels that the calling thread calls in a thread model.

    Parameters
    ----------
    model
        One of `THREAD_MODELS`; the results are equal. With "fork-join" each phase of a kernel is a task of the threads,
        which sleep while there is none. With "bsp" the threads enter once and are busy until the end of the context:
        they spin between kernels. They run all phases of `assign_accumulate` without bounds and of the kernels in
        `ripieno.kernels.pairs` as one task with barriers. In other kernels each phase is a task.
    threads
        Number of threads, including the calling one.
    """
    if model == "fork-join":
        yield
        return
    _native.hold_threads(threads)
    try:
        yield
    finally:
        _native.release_threads()


def centroid_dtype(points_dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of centroids for a type of points."""
    return np.dtype(np.float64 if points_dtype == np.float64 else np.float32)


def assign_accumulate(
    points: AnyPoints,
    centroids: Centroids,
    weights: NDArray[np.float64] | None,
    labels: Labels,
    squared_distances: NDArray[np.float64] | None,
    *,
    threads: int = 1,
    bounds: PassBounds | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Assign every point to its nearest centroid and sum the points per centroid, in one pass.

    Parameters
    ----------
    points : (n, d)
    centroids : (k, d)
    weights : (n,) float64, or None for ones
    labels : (n,) int32, written
        Nearest centroid of each point; ties go to the lowest number.
    squared_distances : (n,) float64, or None, written
        Squared distance to that centroid.
    threads
        Number of threads.

    Returns
    -------
    sums : (k, d) float64
        Weighted sum of the points of each centroid.
    weight_sums : (k,) float64
        Weight of the points of each centroid.
    inertia : float
        Weighted sum of the squared distances.
    """
    if isinstance(points, SparsePoints):
        distances = np.empty(len(points)) if squared_distances is None else squared_distances
        assign(points, centroids, labels, distances, threads=threads)
        sums, weight_sums = np.empty(centroids.shape), np.empty(len(centroids))
        points.accumulate(labels, weights, 0, sums, weight_sums, threads)
        return sums, weight_sums, _native.inertia_of(distances, weights, points.shape[1])
    return _native.assign_accumulate(points, centroids, weights, labels, threads, squared_distances, bounds)


def assign_accumulate_near(
    points: Points,
    centroids: Centroids,
    weights: NDArray[np.float64] | None,
    labels: Labels,
    squared_distances: NDArray[np.float64],
    index: NearIndex,
    *,
    probes: int,
    threads: int = 1,
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Run `assign_accumulate`, but compare each point only with a few groups and its previous centroid.

    Parameters
    ----------
    points : (n, d)
    centroids : (k, d)
    weights : (n,) float64, or None for ones
    labels : (n,) int32, written
        Nearest of the compared centroids of each point; ties go to the lowest number.
    squared_distances : (n,) float64, written
        Squared distance to that centroid.
    index
        Index of the previous pass over the same points; updated.
    probes
        Number of groups compared per point, out of `NearIndex.group_count(k)`. With all groups, labels are exact.
    threads
        Number of threads.

    Returns
    -------
    sums : (k, d) float64
    weight_sums : (k,) float64
    inertia : float
        As in `assign_accumulate`.
    """
    return _native.assign_accumulate_near(points, centroids, weights, labels, squared_distances, index, probes, threads)


@dataclass(frozen=True)
class CentroidGroups:
    """Consecutive groups of nearby centroids.

    Parameters
    ----------
    first
        Position of the first group among the groups of a `Probing`.
    centroids : (m, d)
        Centroids, group by group.
    numbers : (m,) uint32
        Number of each centroid, ascending within a group.
    starts : list of int
        Start of each group, and the end of the last group.
    """

    first: int
    centroids: Centroids
    numbers: NDArray[np.uint32]
    starts: list[int]


@dataclass(frozen=True)
class PreviousCentroids:
    """The centroids of the previous pass.

    Parameters
    ----------
    places : (k,) int32
        Position of each centroid in the order of all groups.
    labels : (n,) int32
        Centroid of each point; negative if none.
    first
        Position of the first centroid in memory.
    """

    places: NDArray[np.int32]
    labels: Labels
    first: int


def compare_groups(
    points: Points,
    probing: Probing,
    groups: CentroidGroups,
    previous: PreviousCentroids | None,
    labels: Labels,
    squared_distances: NDArray[np.float64],
    *,
    threads: int = 1,
) -> None:
    """Update points with the nearest centroids of the groups that they probe; ties go to the lower number.

    Parameters
    ----------
    points : (n, d)
    probing
        The probed groups of the same points.
    groups
        Groups in memory.
    previous
        If not None, points are also compared with their previous centroids, where these are in memory.
    labels : (n,) int32, written
    squared_distances : (n,) float64, lowered in place
        Initialize with infinity.
    threads
        Number of threads.
    """
    _native.compare_groups(points, probing, groups, previous, labels, squared_distances, threads)


def accumulate_run(
    points: AnyPoints,
    labels: Labels,
    weights: NDArray[np.float64] | None,
    first: int,
    sums: NDArray[np.float64],
    weight_sums: NDArray[np.float64],
    *,
    threads: int = 1,
) -> None:
    """Sum the points of consecutive clusters, starting at `first`.

    Parameters
    ----------
    points : (n, d)
    labels : (n,) int32
        Clusters of the points; points of other clusters are skipped.
    weights : (n,) float64, or None for ones
    first
        First cluster.
    sums : (m, d) float64, written
    weight_sums : (m,) float64, written
    threads
        Number of threads.
    """
    if isinstance(points, SparsePoints):
        points.accumulate(labels, weights, first, sums, weight_sums, threads)
        return
    _native.accumulate_run(points, labels, weights, first, sums, weight_sums, threads)


def inertia_of(squared_distances: NDArray[np.float64], weights: NDArray[np.float64] | None, columns: int) -> float:
    """Return the weighted sum of squared distances, rounded as in `assign_accumulate`, for this number of columns."""
    return _native.inertia_of(squared_distances, weights, columns)


def assign(
    points: AnyPoints,
    centroids: Centroids,
    labels: Labels,
    squared_distances: NDArray[np.float64] | None = None,
    *,
    threads: int = 1,
) -> None:
    """Write the nearest centroid of every point and, if requested, its squared distance, without summing.

    Parameters
    ----------
    points : (n, d)
    centroids : (k, d)
    labels : (n,) int32, written
        Nearest centroid of each point; ties go to the lowest number.
    squared_distances : (n,) float64, or None, written
        Squared distance to that centroid.
    threads
        Number of threads.
    """
    if isinstance(points, SparsePoints):
        distances = np.empty(len(points)) if squared_distances is None else squared_distances
        distances.fill(np.inf)
        points.update_nearest(centroids, labels, distances, 0, threads)
        return
    _native.assign(points, centroids, labels, squared_distances, threads)


def update_min_distances(
    points: AnyPoints,
    new_centroids: Centroids,
    min_squared_distances: NDArray[np.float64],
    closest: Labels | None = None,
    *,
    first_index: int = 0,
    threads: int = 1,
) -> None:
    """Update each point's squared distance to its nearest center with new centers, as a step of seeding.

    Parameters
    ----------
    points : (n, d)
    new_centroids : (m, d)
    min_squared_distances : (n,) float64, lowered in place
        Initialize with infinity.
    closest : (n,) int32, or None, written
        `first_index` plus the row of the new center, where it is nearer or ties with a higher number.
    first_index
        Number of the first new center.
    threads
        Number of threads.
    """
    if isinstance(points, SparsePoints):
        labels = np.empty(len(points), np.int32) if closest is None else closest
        points.update_nearest(new_centroids, labels, min_squared_distances, first_index, threads)
        return
    _native.update_min_distances(points, new_centroids, first_index, min_squared_distances, closest, threads)


@dataclass(frozen=True)
class Cells:
    """Cells of nearby rows, and the centers already chosen in each cell.

    Parameters
    ----------
    row_weights : (n,) float64
        Weight of each row. Rows of weight zero are never chosen.
    ends : (c,) int64
        End of each cell's rows (exclusive).
    chosen : (m,) int64
        Rows that are centers, cell by cell, in the order of their times.
    chosen_ends : (c,) int64
        End of each cell's entries in `chosen` (exclusive).
    times : (c,) float64
        Time of the last center of each cell; infinite if the cell needs no more centers.
    streams : (c,) uint64
        Random stream of each cell.
    """

    row_weights: NDArray[np.float64]
    ends: NDArray[np.int64]
    chosen: NDArray[np.int64]
    chosen_ends: NDArray[np.int64]
    times: NDArray[np.float64]
    streams: NDArray[np.uint64]


def grow_cells(
    points: Points,
    cells: Cells,
    *,
    trial_count: int,
    center_count: int,
    until: float,
    threads: int = 1,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Choose further centers of cells by greedy k-means++. Each center has a time that increases within its cell.

    Parameters
    ----------
    points : (n, d)
        The rows, cell by cell.
    cells
        Weights, bounds and centers of the cells.
    trial_count
        Number of candidate rows per center.
    center_count
        Maximum number of centers of a cell, including existing centers.
    until
        Latest time of a center.
    threads
        Number of threads.

    Returns
    -------
    counts : (c,) int64
        Number of new centers of each cell.
    rows : (e,) int64
        Rows of the new centers, cell by cell, in the order of their times.
    times : (e,) float64
    """
    return _native.grow_cells(points, cells, trial_count, center_count, until, threads)


def distances(points: AnyPoints, centroids: Centroids, *, threads: int = 1) -> NDArray[Any]:
    """Return all distances, not squared: (n, k), in the type of the centroids."""
    if isinstance(points, SparsePoints):
        return points.distances(centroids)
    out = np.empty((len(points), len(centroids)), centroids.dtype)
    _native.distances(points, centroids, out, threads)
    return out


def recenter(centroids: Centroids, sums: NDArray[np.float64], weight_sums: NDArray[np.float64]) -> float:
    """Move each centroid, in place, to the mean of its points; a centroid without points does not move.

    Parameters
    ----------
    centroids : (k, d), written
    sums : (k, d) float64
        Weighted sum of the points of each centroid.
    weight_sums : (k,) float64
        Weight of the points of each centroid.

    Returns
    -------
    float
        The sum of the squared lengths of all moves (the square of the Frobenius norm of the shift).
    """
    return _native.recenter(centroids, sums, weight_sums)


def first_non_finite(points: AnyPoints, *, threads: int = 1) -> tuple[int, int] | None:
    """Return row and column of the first NaN or infinity, or None."""
    if isinstance(points, SparsePoints):
        return points.first_non_finite()
    return None if points.dtype == np.uint8 else _native.first_non_finite(points, threads)


def logistic_loss(
    rows: SparseRows,
    classes: NDArray[np.int32],
    coef: NDArray[np.float64],
    probabilities: NDArray[np.float64],
    gradient: NDArray[np.float64],
    *,
    threads: int = 1,
) -> float:
    """Compute the weighted sum of the logistic losses of rows, and its gradient.

    Parameters
    ----------
    rows
    classes : (n,) int32
        Class number of each row.
    coef : (column_count + 1, k)
        Weights of the columns and the intercept. With two classes, the single column belongs to the second class.
    probabilities : (n, k), written
        Class probabilities.
    gradient : (column_count + 1, k), written
    threads
        Number of threads.
    """
    return _native.logistic_loss(rows, classes, coef, probabilities, gradient, threads)


def logistic_curvature(
    rows: SparseRows,
    probabilities: NDArray[np.float64],
    direction: NDArray[np.float64],
    product: NDArray[np.float64],
    *,
    threads: int = 1,
) -> None:
    """Multiply the Hessian of `logistic_loss` with a direction.

    Parameters
    ----------
    rows
    probabilities : (n, k)
        As from `logistic_loss`.
    direction : (column_count + 1, k)
    product : (column_count + 1, k), written
    threads
        Number of threads.
    """
    _native.logistic_curvature(rows, probabilities, direction, product, threads)


def solve_factors(
    starts: NDArray[np.int64],
    columns: NDArray[np.int32],
    values: NDArray[np.float32],
    factors: NDArray[np.float32],
    *,
    reg: float,
    alpha: float | None = None,
    gram: NDArray[np.float32] | None = None,
    start: NDArray[np.float32] | None = None,
    steps: int = 0,
    threads: int = 1,
) -> tuple[NDArray[np.float32], float, float]:
    """Run a half step of alternating least squares.

    Parameters
    ----------
    starts : (n + 1,) int64
        Start of each row's ratings, and the end of the last row's ratings.
    columns : (e,) int32
    values : (e,) float32
    factors : (m, r) float32
        Factors of the columns.
    reg
        Factor of the squared factors: once per rating of a row, or once per row for implicit ratings.
    alpha
        Weight of an implicit rating, as a factor of its value; None for explicit ratings.
    gram : (r, r) float32
        Scatter matrix of the factors of all columns, with `alpha`.
    start : (n, r) float32
        Start of `steps` conjugate gradient steps; None: solve the normal equations.
    threads
        Number of threads.

    Returns
    -------
    factors : (n, r) float32
        Factors of the rows; zeros for rows without ratings.
    loss : float
        Weighted sum of squared errors.
    penalty : float
        Penalty of the rows' factors.
    """
    out = np.empty((len(starts) - 1, factors.shape[1]), np.float32) if start is None else start.copy()
    step_count = None if start is None else steps
    loss, penalty = _native.solve_factors(starts, columns, values, factors, reg, alpha, gram, step_count, out, threads)
    return out, loss, penalty


def scatter(factors: NDArray[np.float32], anchor: float, *, threads: int = 1) -> NDArray[np.float64]:
    """Return the scatter matrix of rows, (r, r), bitwise independent of the order of summation.

    Parameters
    ----------
    factors : (n, r) float32
    anchor
        1.5 times a power of two above the magnitude of every sum, over these rows and all rows added later. Products
        are rounded to its resolution, so that sums are exact.
    threads
        Number of threads.

    References
    ----------
    Demmel and Nguyen, "Fast reproducible floating-point summation", ARITH 2013, section 4.
    """
    out = np.empty((factors.shape[1], factors.shape[1]))
    _native.scatter(factors, anchor, out, threads)
    return out


def column_sums(
    points: NDArray[Any],
    weights: NDArray[np.float64] | None,
    sums: NDArray[np.float64],
    *,
    threads: int = 1,
) -> float:
    """Add the weighted sums of the columns to `sums`, and return the largest magnitude of an entry.

    Parameters
    ----------
    points : (n, d) float64, float32 or uint8
    weights : (n,) float64, or None for ones
    sums : (d,) float64, added to
    threads
        Number of threads.
    """
    return _native.column_sums(points, weights, sums, threads)


def add_products(
    points: NDArray[Any],
    targets: NDArray[np.float64] | None,
    weights: NDArray[np.float64] | None,
    center: NDArray[np.float64],
    sums: NDArray[np.float64],
    *,
    dtype: np.dtype[Any],
    threads: int = 1,
) -> None:
    """Add the products of each row's entries to the upper triangle (with diagonal) of a scatter matrix.

    A row has the columns of its point followed by its targets.

    Parameters
    ----------
    points : (n, d) float64, float32 or uint8
    targets : (n, t) float64, or None for none
    weights : (n,) float64, or None for ones
        Weight of each row.
    center : (d + t,) float64
        The point to subtract from the rows.
    sums : (d + t, d + t) float64, added to
    dtype
        Type of the products, float32 or float64. 256 products are added up in this type, and their sums in float64.
    threads
        Number of threads.
    """
    _native.add_products(points, (targets, weights), center, sums, dtype == np.float32, threads)


def add_gradients(
    points: NDArray[Any],
    targets: NDArray[np.float64],
    weights: NDArray[np.float64] | None,
    center: NDArray[np.float64],
    coef: NDArray[np.float64],
    sums: NDArray[np.float64],
    *,
    threads: int = 1,
) -> None:
    """Add the sums of the weighted residuals of each target times the centered points, in float64.

    Parameters
    ----------
    points : (n, d) float64, float32 or uint8
    targets : (n, t) float64
    weights : (n,) float64, or None for ones
    center : (d + t,) float64
        The point to subtract from points and targets.
    coef : (t, d) float64
        Weights of the columns.
    sums : (t, d) float64, added to
    threads
        Number of threads.
    """
    _native.add_gradients(points, (targets, weights), center, coef, sums, threads)
