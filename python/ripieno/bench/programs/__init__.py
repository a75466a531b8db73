"""Rank programs of the peers, and their shared code."""
