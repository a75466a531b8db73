"""Graphs: edges from files and memory, of which each worker reads, keeps and multiplies with its own share.

`Graph` says where edges are and what they mean; it is small and travels to the workers. There `load` reads a share,
deals the edges over the ranks and sorts them: a `LocalGraph`, whose `product` is the local part of a matrix-vector
product.
"""

from ripieno.graph.edges import Edges
from ripieno.graph.graph import Graph, open_graph
from ripieno.graph.local import LocalGraph, Vertices, load

__all__ = ["Edges", "Graph", "LocalGraph", "Vertices", "load", "open_graph"]
