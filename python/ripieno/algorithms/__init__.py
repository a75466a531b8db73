"""Distributed algorithms as estimators in the manner of scikit-learn."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ripieno.algorithms.bfs import BFS
    from ripieno.algorithms.components import ConnectedComponents
    from ripieno.algorithms.diameter import EffectiveDiameter
    from ripieno.algorithms.kmeans import KMeans
    from ripieno.algorithms.pagerank import PageRank
    from ripieno.algorithms.sgd import SparseSGD
    from ripieno.algorithms.spectral import SpectralEmbedding

__all__ = ["BFS", "ConnectedComponents", "EffectiveDiameter", "KMeans", "PageRank", "SparseSGD", "SpectralEmbedding"]

# Workers import the programs of this package, and need not wait for scikit-learn, which only estimators use.
_MODULES = {
    "BFS": "bfs",
    "ConnectedComponents": "components",
    "EffectiveDiameter": "diameter",
    "KMeans": "kmeans",
    "PageRank": "pagerank",
    "SparseSGD": "sgd",
    "SpectralEmbedding": "spectral",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"ripieno.algorithms.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
