"""Parameters of the estimators of vertices."""

from __future__ import annotations

from typing import Any

from ripieno.algorithms.domains import COUNT, FLAG, STARTS_MAX, TOLERANCE, Domain, Integer, Number
from ripieno.algorithms.parameters import FitParameters, RandomParameters, declared, parameter

#: Maximum number of bit strings per vertex, which take 512 KiB. The error is then 0.3 %.
STRINGS_MAX = 65_536


@declared
class SourceParameters(FitParameters):
    """Parameters of estimators of paths from one vertex."""

    source: Any = parameter(
        Domain("int or node"),
        "Start of the paths: the id or name of a vertex, or a node of a networkx graph.",
        kw_only=False,
    )


@declared
class ShortestPathsParameters(SourceParameters):
    """Parameters of `ShortestPaths`."""

    delta: float | None = parameter(
        Number(above=0, also=(None,)),
        """A step follows the edges of each vertex with a distance of at most the smallest one plus `delta`. Default:
        about the mean weight of an edge.

        A smaller number follows fewer edges twice; a larger number takes fewer steps.""",
        default=None,
    )


@declared
class CommunityParameters(FitParameters):
    """Parameters of `CommunityDetection`."""

    max_iter: int = parameter(
        COUNT, "Maximum number of iterations. Labels may alternate without end.", default=10, may_change=True
    )


@declared
class DiameterParameters(RandomParameters, FitParameters):
    """Parameters of `EffectiveDiameter`."""

    _more_random_state = "With an int, the result does not depend on the number of workers."

    share: float = parameter(
        Number(above=0, maximum=1),
        "Share of the connected pairs, including each vertex with itself.",
        default=0.9,
        may_change=True,
    )
    n_strings: int = parameter(
        Integer(2, STRINGS_MAX),
        """Number of bit strings per vertex, even; four times as many halve the error.

        The relative error is about 0.78 / sqrt(n_strings); work grows with it.""",
        default=64,
        aliases=("--strings",),
    )
    max_iter: int = parameter(COUNT, "Maximum number of steps.", default=1000, may_change=True)


@declared
class EigenvectorParameters(RandomParameters, FitParameters):
    """Parameters of estimators that compute eigenvectors."""

    tol: float = parameter(
        TOLERANCE,
        """The iteration ends when the residual norm of each eigenvector is at most this.

        Eigenvalue errors are about its square.""",
        default=1e-6,
    )
    max_iter: int = parameter(
        COUNT,
        "Maximum number of products of the matrix with a block of vectors; all vectors stay in memory.",
        default=200,
        may_change=True,
    )


@declared
class EmbeddingParameters(EigenvectorParameters):
    """Parameters of `SpectralEmbedding`."""

    n_components: int = parameter(COUNT, "Number of coordinates per vertex.", default=2, kw_only=False)
    drop_first: bool = parameter(
        FLAG, "Whether to drop the first eigenvector, which is constant on a connected graph.", default=True
    )


@declared
class SpectralClusteringParameters(EigenvectorParameters):
    """Parameters of `SpectralClustering`."""

    n_clusters: int = parameter(COUNT, "Number of clusters.", default=8, kw_only=False, options=("-k", "--clusters"))
    n_components: int | None = parameter(
        Integer(1, also=(None,)),
        "Number of eigenvectors of the embedding. Default: `n_clusters`.",
        default=None,
        options=("--components",),
    )
    n_init: int = parameter(
        Integer(1, STARTS_MAX),
        "Number of runs of K-means from different starts; the run with the lowest inertia is kept.",
        default=10,
        may_change=True,
    )
