"""A backend of networkx: ``nx.pagerank(G, backend="ripieno", workers=8)``."""

from ripieno.networkx.listing import about

__all__ = ["about"]
