"""Ranks as tasks of Dask."""
