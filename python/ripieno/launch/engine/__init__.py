"""Ranks in an engine that runs already: what it must supply, and what runs in its tasks."""

from ripieno.launch.engine.contract import Engine, Run

__all__ = ["Engine", "Run"]
