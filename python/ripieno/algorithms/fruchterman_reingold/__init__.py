"""Force-directed graph layouts: estimator, worker program, and a function with networkx's interface."""
