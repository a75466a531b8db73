"""K-means: the estimator, the program of its workers, where it starts, its iterations."""
