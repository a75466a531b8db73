"""Provide collectives of a program as plans: written in Python, proved, simulated and drawn.

`Communicator.run` runs them. A plan lists the steps of one rank on spans of numbered buffers. Plans of programs and of
the catalogue have the same type in the native module. The same checker, simulator and executor read both.
"""

from ripieno.plan.catalogued import catalogue
from ripieno.plan.checked import CheckedPlans, RankTraffic, check
from ripieno.plan.plan import Plan
from ripieno.plan.play import Drawing, draw, simulate, table
from ripieno.plan.span import Span, vector

__all__ = [
    "CheckedPlans",
    "Drawing",
    "Plan",
    "RankTraffic",
    "Span",
    "catalogue",
    "check",
    "draw",
    "simulate",
    "table",
    "vector",
]
