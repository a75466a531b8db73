"""Estimators of vertex values by steps along all edges: local matrix products and sparse reductions."""
