"""Provide predicted times of collectives on modeled clusters, the best algorithm for each call, and pictures.

`ripieno-sim` simulates the plans of ranks, and the state machines of dynamic broadcast, on a network with a virtual
clock.
"""

from ripieno.simulation.cluster import Cluster
from ripieno.simulation.distribution import Distribution, distribute, search_block_bytes
from ripieno.simulation.explanation import Explanation, explain
from ripieno.simulation.link_costs import LinkCost, MeasuredCosts
from ripieno.simulation.simulate import Simulation, simulate
from ripieno.simulation.strategies import StrategyExplanation, explain_strategies

__all__ = [
    "Cluster",
    "Distribution",
    "Explanation",
    "LinkCost",
    "MeasuredCosts",
    "Simulation",
    "StrategyExplanation",
    "distribute",
    "explain",
    "explain_strategies",
    "search_block_bytes",
    "simulate",
]
