"""Which hosts share a rack: told by a file or a launcher, or found by probes."""

from ripieno.topology.found import Host, Topology
from ripieno.topology.search import Racks, search

__all__ = ["Host", "Racks", "Topology", "search"]
