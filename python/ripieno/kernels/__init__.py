"""The numeric inner loops of the algorithms, on NumPy arrays: compiled, threaded, never communicating.

Points are C-contiguous float32, float64 or uint8 rows; for K-means also `SparsePoints`. Centroids are float64 for
float64 points, else float32 (`centroid_dtype`). Sums are float64 whatever the points are, so a result hardly depends on
who added what first. Distances are Euclidean. Results do not depend on the number of threads, nor, but for the rounding
of sums, on how rows are cut into shares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native
from ripieno.kernels.sparse_points import SparsePoints as SparsePoints
from ripieno.kernels.sparse_points import SparseRows as SparseRows

Points = NDArray[Any]
#: What K-means computes with.
AnyPoints = Points | SparsePoints
Centroids = NDArray[Any]
Labels = NDArray[np.int32]

#: What passes over the same points know of each other, made with the bytes that it may take, but four for each point;
#: `bytes` are those that it takes, `compared` is the part of all pairs that the last pass did not rule out.
PassBounds = _native.PassBounds

#: What near passes over the same points know of each other: groups of centroids, and the centroid of each point.
NearIndex = _native.NearIndex

#: Which groups of centroids each point probes in a near pass among centroids that come some after the others; made of
#: the points, the means of all groups, how many are probed, and the threads to compute with. `bytes` is its memory.
Probing = _native.Probing

#: How threads go through the phases of a kernel.
THREAD_MODELS = ("fork-join", "bsp")


def centroid_dtype(points_dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type of centroids for points of a type."""
    return np.dtype(np.float64 if points_dtype == np.float64 else np.float32)


def assign_accumulate(
    points: AnyPoints,
    centroids: Centroids,
    weights: NDArray[np.float64] | None,
    labels: Labels,
    squared_distances: NDArray[np.float64] | None,
    *,
    threads: int = 1,
    thread_model: str = "fork-join",
    bounds: PassBounds | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Assign every point to its nearest centroid and add the points up by centroid, in one pass.

    Parameters
    ----------
    points : (n, d)
    centroids : (k, d)
    weights : (n,) float64, or None for ones
    labels : (n,) int32, written
        The nearest centroid of each point; of equally near ones the lowest.
    squared_distances : (n,) float64, or None, written
        The squared distance to it.
    threads
        Threads to compute with.
    thread_model
        One of `THREAD_MODELS`, of equal results: "fork-join" forks for the assignment, and again for the sums; with
        "bsp" the threads go through both, with a barrier between.

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
    is_bsp = thread_model == "bsp"
    return _native.assign_accumulate(points, centroids, weights, labels, threads, squared_distances, is_bsp, bounds)


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
    """As `assign_accumulate`, but a point meets the centroids of a few groups, and its one of the pass before, only.

    Parameters
    ----------
    points : (n, d)
    centroids : (k, d)
    weights : (n,) float64, or None for ones
    labels : (n,) int32, written
        The nearest of the centroids that each point has met; of equally near ones the lowest.
    squared_distances : (n,) float64, written
        The squared distance to it.
    index
        Of the pass before, over the same points; changed.
    probes
        Groups that a point meets, of `NearIndex.group_count(k)`; with all of them the labels are exact.
    threads
        Threads to compute with.

    Returns
    -------
    sums : (k, d) float64
    weight_sums : (k,) float64
    inertia : float
        As of `assign_accumulate`.
    """
    return _native.assign_accumulate_near(points, centroids, weights, labels, squared_distances, index, probes, threads)


@dataclass(frozen=True)
class SomeGroups:
    """Some groups of centroids that lie together.

    Parameters
    ----------
    first
        Which of the groups of a `Probing` the first one is.
    centroids : (m, d)
        Group by group.
    numbers : (m,) uint32
        The number of each, ascending in a group.
    starts : list of int
        Where each group begins, and where the last one ends.
    """

    first: int
    centroids: Centroids
    numbers: NDArray[np.uint32]
    starts: list[int]


@dataclass(frozen=True)
class PreviousCentroids:
    """The centroids of the pass before.

    Parameters
    ----------
    places : (k,) int32
        Where each of all centroids stands, in the order of all groups.
    labels : (n,) int32
        That of each point; negative without one.
    first
        Where those begin that are at hand.
    """

    places: NDArray[np.int32]
    labels: Labels
    first: int


def meet_groups(
    points: Points,
    probing: Probing,
    groups: SomeGroups,
    before: PreviousCentroids | None,
    labels: Labels,
    squared_distances: NDArray[np.float64],
    *,
    threads: int = 1,
) -> None:
    """Give points the centroids of groups that they probe, where these are nearer, or as near and of a lower number.

    Parameters
    ----------
    points : (n, d)
    probing
        Of the same points.
    groups
        Those that are at hand.
    before
        If given, points also meet their centroids of the pass before, where these are at hand.
    labels : (n,) int32, written
    squared_distances : (n,) float64, lowered in place
        Begin with infinity.
    threads
        Threads to compute with.
    """
    _native.meet_groups(points, probing, groups, before, labels, squared_distances, threads)


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
    """Add the points of some clusters up, those from `first` on.

    Parameters
    ----------
    points : (n, d)
    labels : (n,) int32
        Their clusters, of which others are passed over.
    weights : (n,) float64, or None for ones
    first
        The first cluster.
    sums : (m, d) float64, written
    weight_sums : (m,) float64, written
    threads
        Threads to compute with.
    """
    if isinstance(points, SparsePoints):
        points.accumulate(labels, weights, first, sums, weight_sums, threads)
        return
    _native.accumulate_run(points, labels, weights, first, sums, weight_sums, threads)


def inertia_of(squared_distances: NDArray[np.float64], weights: NDArray[np.float64] | None, columns: int) -> float:
    """The weighted sum of the squared distances of points of so many columns, as `assign_accumulate` adds it up."""
    return _native.inertia_of(squared_distances, weights, columns)


def assign(
    points: AnyPoints,
    centroids: Centroids,
    labels: Labels,
    squared_distances: NDArray[np.float64] | None = None,
    *,
    threads: int = 1,
) -> None:
    """Write the nearest centroid of every point, and if asked for its squared distance, without adding anything up.

    Parameters
    ----------
    points : (n, d)
    centroids : (k, d)
    labels : (n,) int32, written
        The nearest centroid of each point; of equally near ones the lowest.
    squared_distances : (n,) float64, or None, written
        The squared distance to it.
    threads
        Threads to compute with.
    """
    if isinstance(points, SparsePoints):
        distances = np.empty(len(points)) if squared_distances is None else squared_distances
        distances.fill(np.inf)
        points.lower(centroids, labels, distances, 0, threads)
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
    """Lower each point's squared distance to its nearest centre by some new centres; a step of seeding.

    Parameters
    ----------
    points : (n, d)
    new_centroids : (m, d)
    min_squared_distances : (n,) float64, lowered in place
        Begin with infinity.
    closest : (n,) int32, or None, written
        Where a new centre is nearer, or as near and of a lower number: `first_index` plus its row.
    first_index
        Number of the first new centre.
    threads
        Threads to compute with.
    """
    if isinstance(points, SparsePoints):
        labels = np.empty(len(points), np.int32) if closest is None else closest
        points.lower(new_centroids, labels, min_squared_distances, first_index, threads)
        return
    _native.update_min_distances(points, new_centroids, first_index, min_squared_distances, closest, threads)


@dataclass(frozen=True)
class Cells:
    """Cells of rows that lie together, and the centres that each cell has already.

    Parameters
    ----------
    row_weights : (n,) float64
        How much each row counts; rows without weight are never chosen.
    ends : (c,) int64
        The row behind the last one of each cell.
    chosen : (m,) int64
        The rows that are centres, cell by cell, in the order of their times.
    chosen_ends : (c,) int64
        The entry of `chosen` behind the last one of each cell.
    times : (c,) float64
        The time of the last centre of each cell; infinite where no more are wanted.
    streams : (c,) uint64
        The random numbers of each cell.
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
    centre_count: int,
    until: float,
    threads: int = 1,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Choose further centres of cells by greedy k-means++, each cell in a time of its own.

    Parameters
    ----------
    points : (n, d)
        The rows, cell by cell.
    cells
        What belongs to them.
    trial_count
        Rows that are tried for a centre.
    centre_count
        Centres of a cell, at most, those that it has included.
    until
        No centre is later.
    threads
        Threads to compute with.

    Returns
    -------
    counts : (c,) int64
        New centres of each cell.
    rows : (e,) int64
        Which rows they are, cell by cell, in the order of their times.
    times : (e,) float64
    """
    return _native.grow_cells(points, cells, trial_count, centre_count, until, threads)


def distances(points: AnyPoints, centroids: Centroids, *, threads: int = 1) -> NDArray[Any]:
    """All distances, not squared: (n, k), of the centroids' type."""
    if isinstance(points, SparsePoints):
        return points.distances(centroids)
    out = np.empty((len(points), len(centroids)), centroids.dtype)
    _native.distances(points, centroids, out, threads)
    return out


def recenter(centroids: Centroids, sums: NDArray[np.float64], weight_sums: NDArray[np.float64]) -> float:
    """Move each centroid, in place, to the mean of its points; one without points stays where it is.

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
    """Row and column of the first NaN or infinity, or None."""
    if isinstance(points, SparsePoints):
        return points.first_non_finite()
    return None if points.dtype == np.uint8 else _native.first_non_finite(points, threads)


def logistic_loss(
    rows: SparseRows,
    classes: NDArray[np.int32],
    coef: NDArray[np.float64],
    chances: NDArray[np.float64],
    gradient: NDArray[np.float64],
    *,
    threads: int = 1,
) -> float:
    """The weighted sum of the losses of rows under logistic regression, and its gradient.

    Parameters
    ----------
    rows
    classes : (n,) int32
        The number of each row's class.
    coef : (column_count + 1, k)
        Weights of the columns and of 1; a single column is that of the second of two classes.
    chances : (n, k), written
        The probabilities of the classes.
    gradient : (column_count + 1, k), written
    threads
        Threads to compute with.
    """
    return _native.logistic_loss(rows, classes, coef, chances, gradient, threads)


def logistic_curvature(
    rows: SparseRows,
    chances: NDArray[np.float64],
    direction: NDArray[np.float64],
    product: NDArray[np.float64],
    *,
    threads: int = 1,
) -> None:
    """The matrix of second derivatives of `logistic_loss` times a direction.

    Parameters
    ----------
    rows
    chances : (n, k)
        As `logistic_loss` wrote them.
    direction : (column_count + 1, k)
    product : (column_count + 1, k), written
    threads
        Threads to compute with.
    """
    _native.logistic_curvature(rows, chances, direction, product, threads)


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
    """A half step of alternating least squares.

    Parameters
    ----------
    starts : (n + 1,) int64
        Where the ratings of each row begin, and where the last ones end.
    columns : (e,) int32
    values : (e,) float32
    factors : (m, r) float32
        Of the columns.
    reg
        Factor of the squared factors: for each rating of a row, or, of implicit ratings, once.
    alpha
        By how much a rating raises the weight of its pair; None: the ratings themselves are to be met.
    gram : (r, r) float32
        The scatter matrix of the factors of all columns, with `alpha`.
    start : (n, r) float32
        From where conjugate gradients make `steps` steps; None: the normal equations are solved.
    threads
        Threads to compute with.

    Returns
    -------
    factors : (n, r) float32
        Of the rows; zeros without ratings.
    loss : float
        The weighted squared errors.
    penalty : float
        That of the rows' factors.
    """
    out = np.empty((len(starts) - 1, factors.shape[1]), np.float32) if start is None else start.copy()
    taken = None if start is None else steps
    loss, penalty = _native.solve_factors(starts, columns, values, factors, reg, alpha, gram, taken, out, threads)
    return out, loss, penalty


def scatter(factors: NDArray[np.float32], anchor: float, *, threads: int = 1) -> NDArray[np.float64]:
    """The scatter matrix of rows, (r, r): the sums of the products of their entries, the same bits in any order.

    Parameters
    ----------
    factors : (n, r) float32
    anchor
        1.5 times a power of two that no such sum exceeds, of these rows and of those that sums are added to. Products
        are rounded to what it resolves, so that sums are exact.
    threads
        Threads to compute with.

    References
    ----------
    Demmel and Nguyen, "Fast reproducible floating-point summation", ARITH 2013, section 4.
    """
    out = np.empty((factors.shape[1], factors.shape[1]))
    _native.scatter(factors, anchor, out, threads)
    return out


def add_products(
    rows: NDArray[Any],
    center: NDArray[np.float64],
    weights: NDArray[np.float64] | None,
    sums: NDArray[np.float64],
    *,
    threads: int = 1,
) -> None:
    """Add the products of the entries of each row with each other: to a scatter matrix, on and above its diagonal.

    Parameters
    ----------
    rows : (n, d) float32 or float64
        Products are made in this type.
    center : (d,) float64
        By which rows are moved.
    weights : (n,) float64, or None for ones
        How much each row counts.
    sums : (d, d) float64, added to
    threads
        Threads to compute with.
    """
    _native.add_products(rows, center, weights, sums, threads)
