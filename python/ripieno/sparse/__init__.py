"""Sparse reductions of rows by index, with degrees designed from the data and the packet costs."""
