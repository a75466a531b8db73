"""Racks of hosts: given by a file or a launcher, or measured by probes."""

from ripieno.topology.found import Host, Topology
from ripieno.topology.search import Racks, search

__all__ = ["Host", "Racks", "Topology", "search"]
