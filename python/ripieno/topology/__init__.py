"""Provide the racks of hosts: given by a file or a launcher, or measured by probes."""

from ripieno.topology.search import Racks, search
from ripieno.topology.topology import Host, Topology

__all__ = ["Host", "Racks", "Topology", "search"]
