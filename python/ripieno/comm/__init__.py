"""Communicators: the collectives, on arrays, numbers, keyed data and any other Python objects."""

from ripieno.comm.communicator import Communicator
from ripieno.comm.rank import describe

__all__ = ["Communicator", "describe"]
