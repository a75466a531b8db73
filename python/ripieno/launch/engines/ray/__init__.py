"""Ranks as actors of Ray."""
