"""Ranks in an existing engine: the interface that an engine implements, and the code that runs in its tasks."""

from ripieno.launch.engine.contract import Engine, Run

__all__ = ["Engine", "Run"]
