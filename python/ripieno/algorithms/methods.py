"""Names of methods that parameters and programs share."""

EXACT, BARNES_HUT = "exact", "barnes-hut"
LAYOUT_APPROXIMATIONS = ("auto", EXACT, BARNES_HUT)
#: Largest initial coordinate, and largest `k`. The repulsion of vertices farther apart would round to zero.
MAX_COORDINATE = 1e9
#: Largest vertex count with exact repulsion by "auto".
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
