"""Communities by label propagation: `ripieno run -n 4 examples/graph_label_propagation.py edges.txt.gz`.

In every superstep each vertex takes the most frequent label at the other ends of its edges, the smallest of several.
"""

import sys

import numpy as np
import ripieno as rp
from ripieno.graph import most_frequent


def program(comm: rp.Communicator, graph: rp.Graph, rounds: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Return all vertices, ascending, and the label of each."""
    parts = graph.partition(comm, by="target")
    parts.values["label"] = parts.vertices
    places = np.searchsorted(parts.vertices, parts.edges.targets)

    def vote(block):
        if block.number and not block.aggregates["changed"]:
            return block.halt()
        received, labels = most_frequent(block.messages, block.offsets)
        before = block.values["label"]
        after = before.copy()
        after[received] = labels
        block.values["label"] = after
        block.aggregate("changed", (after != before) | (block.number == 0))
        block.send_along_edges(after)
        if graph.directed:
            block.send_messages(parts.edges.sources, after[places])

    parts.superstep(vote, combine="concat", message=np.int64, aggregators={"changed": "or"}, max_supersteps=rounds + 1)
    return parts.allgather("label")


if __name__ == "__main__":
    comm = rp.init()
    labels = program(comm, rp.Graph(sys.argv[1], directed=False))[1]
    if comm.rank == 0:
        print(f"{len(np.unique(labels))} communities of {len(labels)} vertices")
