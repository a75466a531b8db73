"""Sparse reductions: rows by index, their degrees designed from the data and from what packets cost."""
