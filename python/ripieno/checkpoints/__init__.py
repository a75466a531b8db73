"""Checkpoints of iterations, in memory and in folders: of fits and of iterative map-reduce."""
