"""Estimators of vertex values: along all edges by sparse reductions, or along some edges by messages to owners."""
