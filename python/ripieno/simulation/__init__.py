"""Collectives on clusters that are only modelled: what they would take, which algorithm is best there, and pictures.

The plans are those that ranks run; `ripieno-sim` plays them on a network of a virtual clock.
"""

from ripieno.simulation.cluster import Cluster
from ripieno.simulation.explanation import Explanation, explain
from ripieno.simulation.simulate import Simulation, simulate

__all__ = ["Cluster", "Explanation", "Simulation", "explain", "simulate"]
