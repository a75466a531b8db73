"""Collectives on clusters that are only modelled: what they would take, which algorithm is best there, and pictures.

The plans are those that ranks run; `ripieno-sim` plays them on a network of a virtual clock, and the machines of
dynamic broadcast, too.
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
