"""Benchmark graphs: seeded RMAT graphs, and graphs from files, with vertices 0 … n - 1 and no isolated ones.

Source: Chakrabarti, Zhan and Faloutsos, "R-MAT: a recursive model for graph mining", SDM 2004; parameters of Graph500.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from ripieno.graph import Graph
from scipy import sparse

#: Probabilities that both, or only one, of an edge's end points are in the first halves; edges drawn per vertex.
A, B, C = 0.57, 0.19, 0.19
EDGE_FACTOR = 16


@dataclass(frozen=True)
class BenchGraph:
    """A graph for all implementations.

    Parameters
    ----------
    name
        Name in tables.
    sources, targets : (m,) int64
        End points of the edges. RMAT graphs have no duplicates and no loops.
    vertex_count
        Vertices are 0 … vertex_count - 1.
    """

    name: str
    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    vertex_count: int

    @property
    def edge_count(self) -> int:
        """Return the number of edges."""
        return len(self.sources)

    def matrix(self) -> sparse.csr_matrix:
        """Return the matrix with a float64 one at row i, column j for the edge from i to j."""
        ones, shape = np.ones(self.edge_count), (self.vertex_count, self.vertex_count)
        return sparse.csr_matrix((ones, (self.sources, self.targets)), shape)


def rmat(scale: int, seed: int = 1) -> BenchGraph:
    """Return a graph of 2^scale vertices minus isolated ones, and 16 times as many edges minus duplicates and loops."""
    random = np.random.default_rng(seed)
    count = EDGE_FACTOR << scale
    sources, targets = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for _ in range(scale):
        drawn = random.random(count, np.float32)
        lower = drawn >= A + B
        right = ((drawn >= A) & ~lower) | (drawn >= A + B + C)
        sources += sources + lower
        targets += targets + right
    # Shuffle the vertex numbers, so that they do not depend on degrees.
    shuffled = random.permutation(1 << scale)
    sources, targets = shuffled[sources], shuffled[targets]
    return _numbered(f"RMAT {scale}", sources[sources != targets], targets[sources != targets])


def of_files(files: Sequence[str]) -> BenchGraph:
    """Return the graph in files that `ripieno.Graph` can read, without weights."""
    edges = Graph(list(files), weighted=False).read_share(0, 1)
    return _numbered(", ".join(files), edges.sources, edges.targets)


def _numbered(name: str, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> BenchGraph:
    vertices, places = np.unique(np.concatenate([sources, targets]), return_inverse=True)
    n = len(vertices)
    keys = np.unique(places[: len(sources)] * n + places[len(sources) :])
    return BenchGraph(name, keys // n, keys % n, n)
