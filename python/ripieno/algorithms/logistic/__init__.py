"""Logistic regression by all rows at once: the estimator, the program of its workers, their rows, the solvers."""
