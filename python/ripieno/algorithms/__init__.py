"""Distributed algorithms as estimators in the manner of scikit-learn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ripieno.algorithms.kmeans import KMeans

__all__ = ["KMeans"]


def __getattr__(name: str) -> Any:
    # Workers import the programs of this package, and need not wait for scikit-learn, which only estimators use.
    if name == "KMeans":
        from ripieno.algorithms.kmeans import KMeans

        return KMeans
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
