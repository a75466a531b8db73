"""Provide jobs of worker ranks that run programs, and the communication of the launcher with the ranks."""
