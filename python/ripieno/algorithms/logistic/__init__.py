"""Full-batch logistic regression: estimator, worker program, rows, and solvers."""
