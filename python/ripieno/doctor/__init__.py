"""Checks of this machine and of engines, with advice for each problem."""
