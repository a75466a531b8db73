"""Multidimensional scaling: the estimator and the program of its workers."""
