"""Principal components: estimator and worker program."""
