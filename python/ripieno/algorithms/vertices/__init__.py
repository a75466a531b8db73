"""Estimators of vertices: steps along all edges, each a product with the local matrix and a sparse reduction."""
