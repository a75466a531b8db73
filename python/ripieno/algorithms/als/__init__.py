"""Alternating least squares: estimator, ratings, exchange of factors, and worker program."""
