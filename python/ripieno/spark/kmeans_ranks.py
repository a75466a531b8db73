"""Code of K-means that runs on executors: ranks for a fit, tasks for a transformation.

This module does not import pyspark.ml, which takes a while.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import ripieno.kernels as kernels
from ripieno.algorithms.kmeans import program
from ripieno.algorithms.kmeans.program import KMeansOptions, KMeansPart, to_kernel_types
from ripieno.comm.agreement import agreement
from ripieno.errors import InputError
from ripieno.input.matrix import LocalRows, RowsInMemory
from ripieno.launch.engine.batches import Batches

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

POINT_DTYPES = (np.float32, np.float64)


def points_of(batches: Batches, column: str) -> NDArray[np.float32] | NDArray[np.float64]:
    """Return a column as an (n, d) array, float32 if the column is float32, otherwise float64.

    Raises
    ------
    InputError
        If a row is null, contains a null, or differs in length.
    """
    points = batches.to_numpy(column)
    return points if points.dtype in POINT_DTYPES else points.astype(np.float64)


def labels_of(points: NDArray[np.floating[Any]], centers: NDArray[np.floating[Any]]) -> NDArray[np.int32]:
    """Return the nearest center of each point, shape (n,)."""
    if len(points) and points.shape[1] != centers.shape[1]:
        raise InputError(f"points have {points.shape[1]} values, but the model was fitted on {centers.shape[1]}")
    labels = np.empty(len(points), np.int32)
    if len(points):
        kernels.assign(*to_kernel_types(np.require(points, requirements=["C", "ALIGNED"]), centers), labels)
    return labels


def fit_rows(comm: Communicator, batches: Batches, options: KMeansOptions) -> KMeansPart:
    """Run a fit on every rank; the first column has the points, an optional second one their weights.

    The batches are cleared during the fit, so that a rank holds its rows only once.

    Raises
    ------
    InputError
        On every rank: if a column is invalid, if ranks have points of different lengths, or for the reasons of
        `ripieno.algorithms.kmeans.program.fit`.
    """
    name, *weight_names = batches.schema.names
    with agreement(comm):
        points = points_of(batches, name)
        weights = batches.to_numpy(weight_names[0]) if weight_names else None
        if weights is not None and not (np.isfinite(weights).all() and (weights >= 0).all()):
            raise InputError(f"weight_col={weight_names[0]!r}: expected finite numbers >= 0")
    # These ranks run no other program. Array views keep their memory.
    batches.clear()
    width = _agreed_width(comm, name, points)
    start = options.starts[0]
    if isinstance(start, np.ndarray) and start.shape[1] != width:
        raise InputError(f"initial_centers have {start.shape[1]} values each, the rows of {name!r} have {width}")
    if weights is not None and not comm.allreduce(float(weights.sum())):
        raise InputError(f"weight_col={weight_names[0]!r}: expected numbers >= 0, not all of them 0")
    rows = LocalRows(RowsInMemory(points.reshape(-1, width)), weights, f"partition {comm.rank} of {name!r}")
    part = program.fit(comm, rows, None, options)
    # Labels and distances are not returned: there is one per row. Centers are equal on all ranks.
    clustering = replace(part.clustering, labels=part.clustering.labels[:0], squared_distances=np.empty(0))
    if comm.rank > 0:
        clustering = replace(clustering, centroids=clustering.centroids[:0])
    return replace(part, clustering=clustering, drawn=None)


def _agreed_width(comm: Communicator, name: str, points: NDArray[np.floating[Any]]) -> int:
    """Return the number of values per row. Ranks without rows receive it from the others."""
    mine: int | None = points.shape[1] if len(points) else None
    widths = {width for width in comm.allgather(mine) if width is not None}
    if not widths:
        raise InputError(f"the DataFrame of {name!r} has no rows")
    if len(widths) > 1:
        raise InputError(f"features_col={name!r}: rows of different lengths, {', '.join(map(str, sorted(widths)))}")
    return widths.pop()
