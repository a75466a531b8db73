"""Alternating least squares: the estimator, its ratings, the exchange of factors, the program of its workers."""
