"""Linear models by stochastic gradient descent on sparse rows: estimator, worker program, and rows."""
