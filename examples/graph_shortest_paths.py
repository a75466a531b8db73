"""Weighted shortest paths from vertex 0: `ripieno run -n 4 examples/graph_shortest_paths.py roads.csv`.

In every superstep the vertices whose distance has decreased send it along their edges, plus the weight of each edge.
The file has a column of weights. For large graphs `rp.ShortestPaths` follows fewer edges more than once.
"""

import sys

import numpy as np
import ripieno as rp


def program(comm: rp.Communicator, graph: rp.Graph, source: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return all vertices, ascending, and the distance of each; it is infinite for unreachable vertices."""
    parts = graph.partition(comm)
    parts.values["distance"] = np.inf

    def relax(block):
        previous = block.values["distance"]
        distances = np.where((block.number == 0) & (block.vertices == source), 0.0, block.messages)
        block.values["distance"] = np.minimum(distances, previous)
        block.send_along_edges(distances, where=distances < previous)
        block.halt()

    parts.superstep(relax, combine="min", along=np.add)
    return parts.allgather("distance")


if __name__ == "__main__":
    comm = rp.init()
    distances = program(comm, rp.Graph(sys.argv[1], weighted=True))[1]
    if comm.rank == 0:
        reached = distances[np.isfinite(distances)]
        print(f"{len(reached)} of {len(distances)} vertices reached, at distances up to {reached.max():g}")
