"""Provide graphs: edges from files and memory, partitioned over the workers.

`Graph` describes the location and meaning of edges; it is small and is sent to the workers. On a worker, `load` reads a
share, distributes the edges over the ranks and sorts them into a `LocalGraph`. `LocalGraph.product` is the local part
of a matrix-vector product.

`Graph.partition` and `Graph.from_edges` create a `PartitionedGraph` instead. Its vertices have owner ranks and values.
Each edge lies with the owner of one of its ends. Messages travel along edges or to any vertex, optionally in
supersteps.
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
