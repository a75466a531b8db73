"""Provide sparse reductions: rows by index, with degrees designed from the data and the costs of packets."""
