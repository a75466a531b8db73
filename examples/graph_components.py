"""Connected components: `ripieno run -n 4 examples/graph_components.py edges.txt.gz`.

Every vertex starts with its own number as label and takes the smallest label that it receives. After a change it sends
its label to its neighbors.
"""

import sys

import numpy as np
import ripieno as rp


def program(comm: rp.Communicator, graph: rp.Graph) -> tuple[np.ndarray, np.ndarray]:
    """Return all vertices, ascending, and the smallest vertex of each one's component."""
    parts = graph.partition(comm)
    parts.values["label"] = parts.vertices

    def spread(block):
        known = block.values["label"]
        labels = np.minimum(known, block.messages)
        block.values["label"] = labels
        block.send_along_edges(labels, where=(labels < known) | (block.number == 0))
        block.halt()

    parts.superstep(spread, combine="min", message=np.int64)
    return parts.allgather("label")


def main() -> None:
    comm = rp.init()
    labels = program(comm, rp.Graph(sys.argv[1], directed=False))[1]
    if comm.rank == 0:
        sizes = np.sort(np.unique(labels, return_counts=True)[1])
        print(f"{len(sizes)} components of {len(labels)} vertices; the largest has {sizes[-1]}")


if __name__ == "__main__":
    main()
