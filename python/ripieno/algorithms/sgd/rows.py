"""The sparse rows of one worker, prepared for gradient descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack

from ripieno.comm.agreement import agreement
from ripieno.errors import InputError
from ripieno.input.matrix import InMemorySparse, LocalRows
from ripieno.input.matrix.sparse_files import LibsvmFiles
from ripieno.kernels.hashing import mixed

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: With at most this many columns, or columns per entry, a table counts the entries of each column. Otherwise they are
#: sorted.
MAX_TABLE_COLUMNS = 1 << 20
MAX_TABLE_COLUMNS_PER_ENTRY = 4
#: Different whole numbers from here on may be equal as float64.
EXACT_LIMIT = 1 << 53


@dataclass(frozen=True)
class SgdRows:
    """This worker's rows.

    Parameters
    ----------
    matrix : (n, m) csr_matrix
        Columns are the features that occur on this worker.
    features : (m,) int64
        Numbers of these features.
    penalties : (m,) float64
        Penalty's contribution to the gradient of a row that has the feature, per weight: `alpha` divided by the share
        of all rows that have it. Its mean over all rows is `alpha` (Niu et al., "Hogwild!", NIPS 2011, eq. 6).
    labels : (n,) int64
        Class numbers.
    classes : (c,) array
        The classes, ascending.
    total
        Number of rows of all workers.
    feature_count
        Number of features of all workers; the last one is the intercept.
    columns
        Column indices of the input.
    """

    matrix: csr_matrix
    features: NDArray[np.int64]
    penalties: NDArray[np.float64]
    labels: NDArray[np.int64]
    classes: NDArray[Any]
    total: int
    feature_count: int
    columns: range


def load(
    comm: Communicator,
    source: InMemorySparse | LibsvmFiles | LocalRows,
    *,
    columns: range | None,
    classes: NDArray[Any] | None,
    n_features: int | None,
    fit_intercept: bool,
    alpha: float,
) -> SgdRows:
    """Read this worker's share and number its features. If `columns` or `classes` is None, the ranks determine them.

    Raises
    ------
    InputError
        On every rank: a file is invalid, there are no rows, an index is outside of `columns`, or the labels have fewer
        than two classes or classes outside of `classes`.
    """
    with agreement(comm):
        share = source.read_share(comm.rank, comm.world_size)
    columns = columns_of(comm, share.points) if columns is None else columns
    with agreement(comm):
        matrix = of_columns(share.points, columns, source.name)
    if n_features is not None:
        matrix = hashed(matrix, n_features)
    classes = checked_classes(comm, share.labels, classes, source.name)
    total, column_count = comm.allreduce(matrix.shape[0]), matrix.shape[1]

    features, places, counts = _number_indices(matrix.indices, column_count)
    counts = comm.sparse_reduce(features, counts, features, size=column_count)
    penalties = alpha * total / counts
    matrix = csr_matrix((matrix.data, places, matrix.indptr), shape=(matrix.shape[0], len(features)))
    if fit_intercept:
        matrix = hstack([matrix, csr_matrix(np.ones((matrix.shape[0], 1)))], format="csr")
        features, penalties = np.append(features, column_count), np.append(penalties, 0.0)
    labels = np.searchsorted(classes, share.labels)
    return SgdRows(matrix, features, penalties, labels, classes, total, column_count + 1, columns)


def _number_indices(
    indices: NDArray[Any], column_count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct indices, ascending, the number of each index among them, and the count of each."""
    if column_count > max(MAX_TABLE_COLUMNS, MAX_TABLE_COLUMNS_PER_ENTRY * len(indices)):
        features, places, counts = np.unique(indices.astype(np.int64), return_inverse=True, return_counts=True)
        return features, places, counts
    counts = np.bincount(indices, minlength=column_count)
    features = np.flatnonzero(counts)
    numbers = np.cumsum(counts > 0) - 1
    return features, numbers[indices], counts[features]


def of_columns(matrix: csr_matrix, columns: range, name: str) -> csr_matrix:
    """Return the matrix with only these columns, which must contain all entries.

    Raises
    ------
    InputError
        An entry has an index outside of the columns.
    """
    for index in (int(matrix.indices.min()), int(matrix.indices.max())) if matrix.nnz else ():
        if index not in columns:
            known = f"{columns.start} … {columns.stop - 1}"
            raise InputError(f"{name}: index {index}: expected {known}, as in the fitted rows")
    parts = (matrix.data, matrix.indices - columns.start, matrix.indptr)
    return csr_matrix(parts, shape=(matrix.shape[0], len(columns)))


def columns_of(comm: Communicator, matrix: csr_matrix) -> range:
    """Return the column range: from 0, or 1 if no index is 0, to the largest index of all workers."""
    first = comm.allreduce(int(matrix.indices.min(initial=1)), op="min")
    return range(first, comm.allreduce(int(matrix.indices.max(initial=0)), op="max") + 1)


def hashed(matrix: csr_matrix, n_features: int) -> csr_matrix:
    """Hash columns to `n_features` columns. A further bit of the hash determines the sign of an entry.

    Source: Weinberger et al., "Feature hashing for large scale multitask learning", ICML 2009, section 2.
    """
    bits = mixed(matrix.indices)
    signs = np.where(bits >> np.uint64(63), -1.0, 1.0)
    places = ((bits & np.uint64(2**63 - 1)) % np.uint64(n_features)).astype(np.int64)
    found = csr_matrix((matrix.data * signs, places, matrix.indptr), shape=(matrix.shape[0], n_features))
    found.sum_duplicates()
    return found


def checked_classes(comm: Communicator, labels: NDArray[Any], classes: NDArray[Any] | None, name: str) -> NDArray[Any]:
    """Return `classes`, or the distinct labels of all rows, ascending, after checks."""
    found = np.unique(np.concatenate(comm.allgather(np.unique(labels))))
    if not len(found):
        raise InputError(f"{name} has no rows")
    if classes is None:
        inexact = found[np.abs(found) >= EXACT_LIMIT] if found.dtype.kind == "f" else found[:0]
        if len(inexact):
            raise InputError(
                f"{name} has the class {inexact[0]:.0f}, and numbers from 2^53 on are not exact in files: expected "
                "classes of strings"
            )
        classes = found
    unknown = np.setdiff1d(found, classes)
    if len(unknown):
        raise InputError(f"{name} has {unknown[0]!r}, which is not among the classes {classes}")
    if len(classes) < 2:
        raise InputError(f"{name} has {len(classes)} class: expected at least 2")
    return classes
