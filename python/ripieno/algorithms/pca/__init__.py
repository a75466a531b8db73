"""Principal components: the estimator and the program of its workers."""
