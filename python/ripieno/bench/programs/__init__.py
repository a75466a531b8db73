"""Provide the rank programs of the peers, and their shared code."""
