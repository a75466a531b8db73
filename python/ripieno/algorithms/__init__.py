"""Distributed algorithms as estimators in the manner of scikit-learn."""

from ripieno.algorithms.kmeans import KMeans

__all__ = ["KMeans"]
