"""Communicators: the collectives, on arrays, numbers, keyed data and any other Python objects."""

from ripieno.comm.communicator import Communicator, describe

__all__ = ["Communicator", "describe"]
