"""Graphs: edges from files and memory, of which each worker reads, keeps and multiplies with its own share.

`Graph` says where edges are and what they mean; it is small and travels to the workers. There `load` reads a share,
deals the edges over the ranks and sorts them: a `LocalGraph`, whose `product` is the local part of a matrix-vector
product.

`Graph.partition` and `Graph.from_edges` make a `PartitionedGraph` instead: vertices have homes and values there, edges
lie with one of their ends, and messages go along edges or to any vertex, in supersteps if that is wanted.
"""

from ripieno.graph.block import Block
from ripieno.graph.columns import Columns
from ripieno.graph.edges import Edges
from ripieno.graph.graph import Graph, open_graph
from ripieno.graph.local import LocalGraph, Vertices, load
from ripieno.graph.messages import Messages, most_frequent
from ripieno.graph.partitioned import PartitionedGraph
from ripieno.graph.superstep import Superstep, Supersteps

__all__ = [
    "Block",
    "Columns",
    "Edges",
    "Graph",
    "LocalGraph",
    "Messages",
    "PartitionedGraph",
    "Superstep",
    "Supersteps",
    "Vertices",
    "load",
    "most_frequent",
    "open_graph",
]
