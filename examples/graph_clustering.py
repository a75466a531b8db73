"""Local clustering coefficients: `ripieno run -n 4 examples/graph_clustering.py edges.txt.gz`.

Each vertex sends its out-list to its neighbors. A neighbor counts the received vertices that are its neighbors, too.
"""

import sys

import numpy as np
import ripieno as rp


def program(comm: rp.Communicator, graph: rp.Graph) -> tuple[np.ndarray, np.ndarray]:
    """Return all vertices, ascending, and the coefficient of each. Ids are below 2^31."""
    parts = graph.partition(comm)
    places, edges = np.arange(len(parts.vertices)), parts.edges.without_loops()
    sources, targets = np.searchsorted(parts.vertices, edges.sources), edges.targets

    def pairs(messages):
        return np.repeat(places, np.diff(messages.offsets)) << 32 | messages.values

    # The neighbors of each vertex: a place and an id in one number.
    received = pairs(parts.send_along_edges(parts.vertices, "concat"))
    near = np.setdiff1d(np.concatenate([sources << 32 | targets, received]), places << 32 | parts.vertices)
    lengths = np.bincount(sources, minlength=len(places))
    copies = lengths[near >> 32]
    begins = (np.cumsum(lengths) - lengths)[near >> 32] - np.cumsum(copies) + copies
    lists = targets[np.arange(copies.sum()) + np.repeat(begins, copies)]
    received = pairs(parts.send_messages(np.repeat(near & 0xFFFFFFFF, copies), lists, "concat"))
    known = received[np.isin(received, near)]
    links, degrees = (np.bincount(each >> 32, minlength=len(places)) for each in (known, near))
    parts.values["coefficient"] = links / np.maximum(degrees * (degrees - 1), 1)
    return parts.allgather("coefficient")


if __name__ == "__main__":
    comm = rp.init()
    coefficients = program(comm, rp.Graph(sys.argv[1]))[1]
    if comm.rank == 0:
        print(f"the mean coefficient is {coefficients.mean():.4f}")
