"""What every worker runs for the effective diameter: how many vertices each reaches within so many steps, estimated.

A vertex has bit strings, in each of which one random bit is set; after `h` steps along all edges, in which strings are
joined by "or", they are those of all vertices that lead to it in at most `h` steps, and the place of their lowest zero
tells how many these are.

Source: Kang et al., "HADI: fast diameter estimation and mining in massive graphs with Hadoop", CMU-ML-08-117, 2008,
sections 3.1 and 3.2; Flajolet and Martin, "Probabilistic counting algorithms for data base applications", JCSS 31,
1985, section 3; for small numbers Scheuermann and Mauve, "Near-optimal compression of probabilistic counting sketches
for networking applications", DIALM-POMC 2007.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ripieno.algorithms.vertex_values import VertexValues
from ripieno.graph import Graph, load
from ripieno.graph.edges import mixed

if TYPE_CHECKING:
    from ripieno.comm import Communicator

# The expectation of the lowest zero of a string that n set bits in is the logarithm, to the base of 2, of this times n.
CORRECTION = 0.77351
# Of few set bits the lowest zero tells too many, by a share that falls with this power of them.
FEW = 1.75
BITS = 32


def fit(comm: Communicator, graph: Graph, string_count: int, seed: int, max_iter: int) -> tuple[list[float], bool]:
    """Estimates of the pairs of vertices with a path of at most 0, 1, … steps; and whether there is no longer path.

    Each vertex has `string_count` strings, an even number. At most `max_iter` steps are made. All ranks get the same.

    Raises
    ------
    InputError
        On every rank: bad input, see :func:`~ripieno.graph.load`.
    """
    values = VertexValues(comm, load(comm, graph))
    strings = _first_strings(values.vertices, string_count, seed)
    pairs = [_estimate(comm, strings[values.home])]
    for _ in range(max_iter):
        joined = values.step(strings, "or", own=strings)
        if not comm.allreduce(not np.array_equal(joined, strings), op="or"):
            return pairs, True
        strings = joined
        pairs.append(_estimate(comm, strings[values.home]))
    return pairs, False


def effective_diameter(pairs: list[float], share: float) -> float:
    """In how many steps a share of all connected pairs reach each other; between whole numbers by a straight line."""
    enough = share * pairs[-1]
    steps = next(steps for steps, count in enumerate(pairs) if count >= enough)
    if steps == 0:
        return 0.0
    return steps - 1 + (enough - pairs[steps - 1]) / (pairs[steps] - pairs[steps - 1])


def _first_strings(vertices: NDArray[np.int64], string_count: int, seed: int) -> NDArray[np.uint64]:
    """Strings of one bit each, bit i with a probability of 2**-(i + 1), two in a number: (m, string_count / 2).

    They depend on nothing but the vertex and the seed.
    """
    streams = mixed(np.arange(string_count) + mixed(np.array([seed])).view(np.int64))
    base, last = mixed(vertices), np.uint64(1 << (BITS - 1))
    strings = np.empty((len(vertices), string_count), np.uint32)
    # String by string, so that what is in between stays in cache.
    for number, stream in enumerate(streams):
        random = mixed((base ^ stream).view(np.int64))
        lowest = random & -random
        strings[:, number] = np.where((lowest == 0) | (lowest > last), last, lowest)
    return strings.view(np.uint64)


def _estimate(comm: Communicator, strings: NDArray[np.uint64]) -> float:
    """The sum over all vertices of how many vertices have set bits in their strings."""
    bits = strings.view(np.uint32)
    string_count = bits.shape[1]
    places = np.zeros(len(bits), np.int64)
    for string in bits.T:
        lowest_zero = ~string & (string + np.uint32(1))
        # Exact, of powers of two; a string without a zero counts all bits.
        places += np.where(lowest_zero == 0, BITS, np.log2(np.maximum(lowest_zero, 1))).astype(np.int64)
    # Counted in whole numbers, so that the sum is the same however vertices are divided among ranks.
    counts = comm.allreduce(np.bincount(places, minlength=BITS * string_count + 1))
    means = np.arange(len(counts)) / string_count
    return float(counts @ (2.0**means - 2.0 ** (-FEW * means))) / CORRECTION
