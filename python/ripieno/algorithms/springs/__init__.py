"""Layouts of graphs by springs: the estimator, the program of its workers, and a function in the manner of networkx."""
