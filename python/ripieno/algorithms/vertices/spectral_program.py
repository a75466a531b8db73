"""The worker program of spectral embedding: block Lanczos iteration with full orthogonalization.

A is the symmetric weight matrix without loops, D the degree matrix. The program finds the largest eigenvalues of ``M =
D**-1/2 A D**-1/2``. These are 1 minus the smallest eigenvalues of the normalized Laplacian. A vertex without edges is
treated as an eigenvector with the eigenvalue 1 of M. A step multiplies M with a block of vectors, which is one step
along all edges. A worker's vectors have the entries that its edges need, so the only other messages are small matrices.

Source: Golub and Van Loan, "Matrix computations", 4th edition, section 10.3.6; Zhao and Canny, "Kylix: a sparse
allreduce for commodity clusters", ICPP 2014, section I.A.2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ripieno.algorithms.data_facts import graph_facts
from ripieno.algorithms.vertices.values import VertexValues, check_weights
from ripieno.checkpoints.iterations import CheckpointOptions, IterationCheckpoint
from ripieno.comm.agreement import agreement
from ripieno.errors import InputError
from ripieno.graph import Graph, load
from ripieno.kernels.hashing import mixed
from ripieno.kernels.lookup import columns_of_ids

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

NAME = "spectral"
# A shorter direction of a block, absolutely or relative to the longest direction, is a rounding error.
MIN_LENGTH, MIN_RELATIVE_LENGTH = 1e-12, 1e-7


@dataclass(frozen=True)
class SpectralOptions:
    """Options of the workers. `count` is the number of eigenvectors."""

    count: int
    tol: float
    max_iter: int
    seed: int
    checkpoint_options: CheckpointOptions


@dataclass(frozen=True)
class SpectralPart:
    """One worker's part of the result, and the part that all workers share.

    Parameters
    ----------
    ids : (h,) int64
        Vertices that this worker owns.
    coordinates : (h, count) float64
        Their entries of the eigenvectors, divided by the square roots of their degrees.
    eigenvalues : (count,) float64
        Eigenvalues of the normalized Laplacian, ascending.
    residual
        Largest residual norm of an eigenvector.
    step_count
        Number of products with M.
    resumed_from
        Number of completed products in the resumed state, or None.
    """

    ids: NDArray[np.int64]
    coordinates: NDArray[np.float64]
    eigenvalues: NDArray[np.float64]
    residual: float
    step_count: int
    resumed_from: int | None


def fit(comm: Communicator, graph: Graph, options: SpectralOptions) -> SpectralPart:
    """Find the eigenvectors of the smallest eigenvalues. The initial vectors depend only on the vertices and the seed.

    Raises
    ------
    InputError
        On every rank: invalid input (see `ripieno.graph.load`), negative weights, or fewer vertices than vectors.
    """
    local = load(comm, graph, both_ways=True, loops=False)
    count = options.count
    if local.vertices.total < count:
        raise InputError(
            f"{count} eigenvectors of {local.vertices.total} vertices: expected at least as many vertices, or a lower "
            "n_components"
        )
    with agreement(comm):
        check_weights(local, "a Laplacian")
    values = VertexValues(comm, local)
    degrees = values.step(np.ones(len(values.vertices)), "sum")
    isolated = degrees == 0
    roots = np.where(isolated, 1.0, np.sqrt(degrees))[:, None]
    is_owned = values.is_owned

    def product(block: NDArray[np.float64]) -> NDArray[np.float64]:
        image: NDArray[np.float64] = values.step(block / roots, "sum") / roots + isolated[:, None] * block
        return image

    def inner(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
        products: NDArray[np.float64] = first[is_owned].T @ second[is_owned]
        return comm.allreduce(products)

    last = _orthonormal(_initial_vectors(values.vertices, count, options.seed), inner)
    basis, projected = last[:, :0], np.empty((0, 0))
    step_count, residual = 0, np.inf
    with IterationCheckpoint(
        comm, NAME, options.checkpoint_options, shared=False, data=lambda: graph_facts(comm, local)
    ) as checkpoint:
        saved = checkpoint.load()
        if saved:
            step_count = checkpoint.done
            residual, projected, vectors, eigenvalues, _ = saved[0]
            checkpoint.check_iteration_limit(step_count, options.max_iter, f"max_iter={options.max_iter}")
            basis, last = columns_of_ids(values.vertices, [part for *_, part in saved])
        resumed_from = step_count or None
        # An infinite tolerance ends the fit after its first step.
        while (residual > options.tol or not step_count) and last.shape[1] and step_count < options.max_iter:
            basis = np.hstack([basis, last])
            image = product(last)
            columns = inner(basis, image)
            projected = _extended(projected, columns)
            rest = image - basis @ columns
            eigenvalues, vectors = (each[..., ::-1][..., :count] for each in np.linalg.eigh(projected))
            last_rows = vectors[-last.shape[1] :]
            residual = float(np.sqrt(np.diagonal(last_rows.T @ inner(rest, rest) @ last_rows).max(initial=0.0)))
            # Orthogonalize twice: division by small lengths amplifies remaining components along the basis.
            for _ in range(2):
                rest = _orthonormal(rest - basis @ inner(basis, rest), inner)
            last, step_count = rest, step_count + 1
            if checkpoint.is_due(step_count):
                own = (values.vertices[is_owned], basis[is_owned], last[is_owned])
                checkpoint.save(step_count, (residual, projected, vectors, eigenvalues, own))
    coordinates = basis[is_owned] @ vectors / roots[is_owned]
    return SpectralPart(values.vertices[is_owned], coordinates, 1 - eigenvalues, residual, step_count, resumed_from)


def _extended(projected: NDArray[np.float64], columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a symmetric matrix extended by `columns` on the right and by their transpose below."""
    size = len(projected)
    corner = columns[size:]
    return np.block([[projected, columns[:size]], [columns[:size].T, (corner + corner.T) / 2]])


def _orthonormal(
    block: NDArray[np.float64], inner: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return orthonormal vectors that span the block's vectors, (m, b), without negligible directions."""
    squares, directions = np.linalg.eigh(inner(block, block))
    selected = squares > max(MIN_LENGTH**2, MIN_RELATIVE_LENGTH**2 * squares.max(initial=0.0))
    vectors: NDArray[np.float64] = block @ (directions[:, selected] / np.sqrt(squares[selected]))
    return vectors


def _initial_vectors(vertices: NDArray[np.int64], count: int, seed: int) -> NDArray[np.float64]:
    """Return random vectors, (m, count), with entries from -1 to 1."""
    streams = mixed(np.arange(count) + mixed(np.array([seed])).view(np.int64))
    bits = mixed((mixed(vertices)[:, None] ^ streams).view(np.int64))
    return bits / 2.0**63 - 1
