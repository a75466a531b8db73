"""Distributed algorithms as scikit-learn estimators."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ripieno._deferred import deferred

if TYPE_CHECKING:
    from ripieno.algorithms.als.estimator import ALS
    from ripieno.algorithms.fruchterman_reingold.estimator import FruchtermanReingold
    from ripieno.algorithms.kmeans.estimator import KMeans
    from ripieno.algorithms.kmeans.mini_batch import MiniBatchKMeans
    from ripieno.algorithms.linear.regression import LinearRegression, Ridge
    from ripieno.algorithms.logistic.estimator import LogisticRegression
    from ripieno.algorithms.mds.estimator import MDS
    from ripieno.algorithms.pagerank.estimator import PageRank
    from ripieno.algorithms.pca.estimator import PCA
    from ripieno.algorithms.sgd.estimator import SparseSGD
    from ripieno.algorithms.vertices.bfs import BFS
    from ripieno.algorithms.vertices.clustering import ClusteringCoefficients
    from ripieno.algorithms.vertices.communities import CommunityDetection
    from ripieno.algorithms.vertices.components import ConnectedComponents
    from ripieno.algorithms.vertices.diameter import EffectiveDiameter
    from ripieno.algorithms.vertices.shortest_paths import ShortestPaths
    from ripieno.algorithms.vertices.spectral import SpectralEmbedding
    from ripieno.algorithms.vertices.spectral_clustering import SpectralClustering

__all__ = [
    "ALS",
    "BFS",
    "MDS",
    "PCA",
    "ClusteringCoefficients",
    "CommunityDetection",
    "ConnectedComponents",
    "EffectiveDiameter",
    "FruchtermanReingold",
    "KMeans",
    "LinearRegression",
    "LogisticRegression",
    "MiniBatchKMeans",
    "PageRank",
    "Ridge",
    "ShortestPaths",
    "SparseSGD",
    "SpectralClustering",
    "SpectralEmbedding",
]

# Workers import the programs of this package without scikit-learn, which only estimators use.
_MODULES = {
    "ALS": "als.estimator",
    "BFS": "vertices.bfs",
    "ClusteringCoefficients": "vertices.clustering",
    "CommunityDetection": "vertices.communities",
    "ConnectedComponents": "vertices.components",
    "EffectiveDiameter": "vertices.diameter",
    "FruchtermanReingold": "fruchterman_reingold.estimator",
    "KMeans": "kmeans.estimator",
    "LinearRegression": "linear.regression",
    "LogisticRegression": "logistic.estimator",
    "MDS": "mds.estimator",
    "MiniBatchKMeans": "kmeans.mini_batch",
    "PCA": "pca.estimator",
    "PageRank": "pagerank.estimator",
    "Ridge": "linear.regression",
    "ShortestPaths": "vertices.shortest_paths",
    "SparseSGD": "sgd.estimator",
    "SpectralClustering": "vertices.spectral_clustering",
    "SpectralEmbedding": "vertices.spectral",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        with deferred():
            return getattr(import_module(f"ripieno.algorithms.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
