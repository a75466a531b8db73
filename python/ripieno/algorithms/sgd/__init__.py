"""Logistic regression by stochastic gradients on sparse rows: the estimator, the program of its workers, their rows."""
