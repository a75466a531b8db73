"""Values that identify the data of a fit in its checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, csr_matrix

import ripieno.kernels as kernels
from ripieno.graph import LocalGraph, PartitionedGraph
from ripieno.graph.edges import matrix_edges
from ripieno.kernels.hashing import mixed

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: Values per block of a digest.
BLOCK_VALUES = 1 << 16


def data_facts(comm: Communicator, name: str, rows: Any, *columns: NDArray[Any] | None) -> dict[str, Any]:
    """Return the number, the type and a digest of the rows of all ranks, which identify the data.

    The facts do not depend on the order of the rows or on their distribution to ranks. All ranks call it.

    Parameters
    ----------
    name
        Noun for the rows, in the plural.
    rows : (n, d) array, `SparsePoints` or sparse matrix in CSR form
        This rank's rows, in the same type on all ranks.
    columns : (n,) or (n, m), or None
        Further values of each row, such as weights and labels.
    """
    rows = rows.matrix if isinstance(rows, kernels.SparsePoints) else rows
    digests = _row_digests(rows)
    for column in columns:
        if column is not None:
            values = np.asarray(column)
            # NumPy does not determine a length of -1 without rows.
            digests = mixed(digests + _row_digests(values if values.ndim == 2 else values[:, np.newaxis]))
    own = np.array([mixed(digests).view(np.int64).sum(), len(digests)])
    digest, count = comm.allreduce(own).tolist()
    return {
        f"the number of {name}": count,
        f"the type of {name}": f"{rows.shape[1]} of {rows.dtype}",
        f"the digest of {name}": f"{digest % 2**64:016x}",
    }


def graph_facts(comm: Communicator, graph: LocalGraph | PartitionedGraph) -> dict[str, Any]:
    """Return values that identify a graph, from this rank's edges. All ranks call it."""
    if isinstance(graph, PartitionedGraph):
        edges, vertex_count = matrix_edges(*graph.matrix), graph.vertex_count
    else:
        edges, vertex_count = graph.edges, graph.vertices.total
    ends = np.column_stack([edges.sources, edges.targets])
    return {"the number of vertices": vertex_count} | data_facts(comm, "edges", ends, edges.weights)


def _row_digests(rows: Any) -> NDArray[np.uint64]:
    """Return 64 bits of each row: the sum of its values, each multiplied by a number that depends on the column."""
    if isinstance(rows, csr_matrix | csr_array):
        entries = mixed(mixed(rows.indices).view(np.int64) + _bits(rows.data).view(np.int64))
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(entries, dtype=np.uint64)])
        return mixed((sums[rows.indptr[1:]] - sums[rows.indptr[:-1]]).view(np.int64))
    factors = mixed(np.arange(rows.shape[1])) | np.uint64(1)
    step = max(1, BLOCK_VALUES // max(1, rows.shape[1]))
    blocks = [mixed(_folded(_bits(rows[begin : begin + step])) @ factors) for begin in range(0, len(rows), step)]
    return np.concatenate([np.empty(0, np.uint64), *blocks])


def _folded(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the bits, with the high bits folded into the low bits.

    The lowest 52 bits of a small whole number in float64 are zeros, and a product keeps zeros at the end.
    """
    return bits ^ (bits >> np.uint64(32))


def _bits(values: NDArray[Any]) -> NDArray[np.uint64]:
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}").astype(np.uint64, copy=False)
