"""Breadth-first search from vertex 0: `ripieno run -n 4 examples/graph_bfs.py edges.txt.gz`.

In superstep d the vertices first reached at distance d send their numbers to their neighbors. The smallest number
received becomes the parent.
"""

import sys

import numpy as np
import ripieno as rp


def program(comm: rp.Communicator, graph: rp.Graph, source: int = 0) -> tuple[np.ndarray, ...]:
    """Return all vertices, ascending, with distance and predecessor of each; both are -1 for unreachable vertices."""
    parts = graph.partition(comm)
    parts.values["distance"] = parts.values["parent"] = np.full(len(parts.vertices), -1)

    def advance(block):
        is_candidate = block.received if block.number else block.vertices == source
        reached = is_candidate & (block.values["distance"] < 0)
        block.values["distance"] = np.where(reached, block.number, block.values["distance"])
        block.values["parent"] = np.where(reached & block.received, block.messages, block.values["parent"])
        block.send_along_edges(block.vertices, where=reached)
        block.halt()

    parts.superstep(advance, combine="min", message=np.int64)
    return *parts.allgather("distance"), parts.allgather("parent")[1]


def main() -> None:
    comm = rp.init()
    distances = program(comm, rp.Graph(sys.argv[1]))[1]
    if comm.rank == 0:
        print(f"{np.count_nonzero(distances >= 0)} of {len(distances)} vertices reached, in {distances.max()} steps")


if __name__ == "__main__":
    main()
