"""Ranks as tasks of a barrier stage of Spark."""
