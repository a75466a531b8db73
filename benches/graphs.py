"""Graphs that are measured: seeded RMAT graphs, and files, with vertices 0 … n - 1 of which each has an edge.

Source: Chakrabarti, Zhan and Faloutsos, "R-MAT: a recursive model for graph mining", SDM 2004; parameters of Graph500.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from ripieno.graph import Graph
from scipy import sparse

#: Probabilities of an edge's end points to be in the first halves, or only one of them; and edges drawn per vertex.
A, B, C = 0.57, 0.19, 0.19
EDGE_FACTOR = 16


@dataclass(frozen=True)
class BenchGraph:
    """A graph that all contestants take.

    Parameters
    ----------
    name
        As tables have it.
    sources, targets : (m,) int64
        Of its edges; none twice, none from a vertex to itself in RMAT graphs.
    vertex_count
        Vertices are 0 … vertex_count - 1.
    """

    name: str
    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    vertex_count: int

    @property
    def edge_count(self) -> int:
        """How many edges."""
        return len(self.sources)

    def matrix(self) -> sparse.csr_matrix:
        """Row i, column j is the edge from i to j; float64 ones."""
        ones, shape = np.ones(self.edge_count), (self.vertex_count, self.vertex_count)
        return sparse.csr_matrix((ones, (self.sources, self.targets)), shape)


def rmat(scale: int, seed: int = 1) -> BenchGraph:
    """2^scale vertices, less those without edges, and 16 times as many edges, less duplicates and loops."""
    random = np.random.default_rng(seed)
    count = EDGE_FACTOR << scale
    sources, targets = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for _ in range(scale):
        drawn = random.random(count, np.float32)
        lower = drawn >= A + B
        right = ((drawn >= A) & ~lower) | (drawn >= A + B + C)
        sources += sources + lower
        targets += targets + right
    # Numbers say nothing about degrees.
    shuffled = random.permutation(1 << scale)
    sources, targets = shuffled[sources], shuffled[targets]
    return _numbered(f"RMAT {scale}", sources[sources != targets], targets[sources != targets])


def of_files(files: Sequence[str]) -> BenchGraph:
    """Whatever `ripieno.Graph` reads, without weights."""
    edges = Graph(list(files), weighted=False).read_share(0, 1)
    return _numbered(", ".join(files), edges.sources, edges.targets)


def _numbered(name: str, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> BenchGraph:
    vertices, places = np.unique(np.concatenate([sources, targets]), return_inverse=True)
    n = len(vertices)
    keys = np.unique(places[: len(sources)] * n + places[len(sources) :])
    return BenchGraph(name, keys // n, keys % n, n)
