"""PageRank: estimator and worker program."""
