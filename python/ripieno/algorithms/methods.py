"""Names of the methods that estimators offer. The command line reads them without importing the estimators."""

ALS_SOLVERS = ("auto", "cholesky", "cg")

KMEANS_INITS = ("k-means||", "k-means++", "random")
KMEANS_ALGORITHMS = ("lloyd", "elkan")
KMEANS_ASSIGNS = ("exact", "near")
#: Whether passes carry distance bounds: "auto" skips centroids that the previous pass ruled out.
KMEANS_BOUNDS = ("auto", "none")
KMEANS_CENTROIDS = ("auto", "whole", "divided")

EXACT, BARNES_HUT = "exact", "barnes-hut"
LAYOUT_APPROXIMATIONS = ("auto", EXACT, BARNES_HUT)
#: Largest vertex count for which "auto" selects exact repulsion.
MAX_EXACT_VERTEX_COUNT = 50_000

LOGISTIC_SOLVERS = ("lbfgs", "newton-cg", "gd")

_, DA_SMACOF = MDS_METHODS = ("smacof", "da-smacof")
#: Default number of random starts with annealing.
ANNEALED_STARTS = 4
PRECOMPUTED = "precomputed"
#: Distances between rows. A kernel computes "euclidean"; SciPy computes the others.
ROW_METRICS = ("euclidean", "cityblock", "chebyshev", "cosine", "correlation", "canberra", "braycurtis", "sqeuclidean")
#: Edit distances: the number of insertions, deletions and substitutions, and this number divided by the longer length.
LEVENSHTEIN, _ = SEQUENCE_METRICS = ("levenshtein", "normalized-levenshtein")

PCA_SOLVERS = ("auto", "covariance", "tsqr", "randomized", "arpack")

RIDGE_SOLVERS = ("auto", "normal", "tsqr")
