# The estimators: a line each. `__init__.py` reads this file, and imports an estimator on first use.
from ripieno.algorithms.als.estimator import ALS as ALS
from ripieno.algorithms.fruchterman_reingold.estimator import FruchtermanReingold as FruchtermanReingold
from ripieno.algorithms.kmeans.estimator import KMeans as KMeans
from ripieno.algorithms.kmeans.mini_batch import MiniBatchKMeans as MiniBatchKMeans
from ripieno.algorithms.linear.regression import LinearRegression as LinearRegression
from ripieno.algorithms.linear.regression import Ridge as Ridge
from ripieno.algorithms.logistic.estimator import LogisticRegression as LogisticRegression
from ripieno.algorithms.mds.estimator import MDS as MDS
from ripieno.algorithms.pagerank.estimator import PageRank as PageRank
from ripieno.algorithms.pca.estimator import PCA as PCA
from ripieno.algorithms.sgd.estimator import SparseSGD as SparseSGD
from ripieno.algorithms.vertices.bfs import BFS as BFS
from ripieno.algorithms.vertices.clustering import ClusteringCoefficients as ClusteringCoefficients
from ripieno.algorithms.vertices.communities import CommunityDetection as CommunityDetection
from ripieno.algorithms.vertices.components import ConnectedComponents as ConnectedComponents
from ripieno.algorithms.vertices.diameter import EffectiveDiameter as EffectiveDiameter
from ripieno.algorithms.vertices.shortest_paths import ShortestPaths as ShortestPaths
from ripieno.algorithms.vertices.spectral import SpectralEmbedding as SpectralEmbedding
from ripieno.algorithms.vertices.spectral_clustering import SpectralClustering as SpectralClustering

#: Names of the estimators.
ESTIMATORS: tuple[str, ...]
