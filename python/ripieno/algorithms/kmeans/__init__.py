"""K-means: estimator, worker program, initial centroids, and iterations."""
