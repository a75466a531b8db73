"""Multidimensional scaling: estimator and worker program."""
