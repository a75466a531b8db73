"""Provide the interface that an engine implements, and the code that runs ranks in the tasks of an engine."""

from ripieno.launch.engine.contract import Engine, Run

__all__ = ["Engine", "Run"]
