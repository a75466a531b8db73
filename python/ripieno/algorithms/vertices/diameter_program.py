"""The worker program of the effective diameter: estimated neighborhood sizes within each number of steps.

Each vertex has bit strings with one random bit set in each. A step along all edges combines strings by "or". After `h`
steps, a vertex's strings combine the initial strings of all vertices that reach it in at most `h` steps. The position
of the lowest zero bit estimates the number of these vertices.

Source: Kang et al., "HADI: fast diameter estimation and mining in massive graphs with Hadoop", CMU-ML-08-117, 2008,
sections 3.1 and 3.2; Flajolet and Martin, "Probabilistic counting algorithms for data base applications", JCSS 31,
1985, section 3.
"""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ripieno.algorithms.data_facts import graph_facts
from ripieno.algorithms.vertices.values import VertexValues
from ripieno.checkpoints.iterations import CheckpointOptions, IterationCheckpoint
from ripieno.graph import Graph, load
from ripieno.kernels.hashing import mixed
from ripieno.kernels.lookup import columns_of_ids

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

NAME = "diameter"
# If n vertices set one bit each, the expected lowest zero of a string is about log2(CORRECTION * (n + 1/2)).
CORRECTION = 0.77351
# The approximation holds from this count on. `_lowest_zeros` computes the exact expectation for smaller counts.
ASYMPTOTIC_COUNT = 64
BITS = 32


def fit(
    comm: Communicator, graph: Graph, string_count: int, seed: int, max_iter: int, checkpoint_options: CheckpointOptions
) -> tuple[list[float], bool, int | None]:
    """Estimate the pairs of vertices with a path of at most 0, 1, … steps.

    Returns the estimates, whether no longer path exists, and the number of steps at which the fit resumed, or None.
    Each vertex has `string_count` strings, an even number. At most `max_iter` steps are counted. All ranks get the same
    result. The fit resumes from saved state if any exists.

    Raises
    ------
    InputError
        On every rank: invalid input, see `ripieno.graph.load`.
    """
    local = load(comm, graph)
    values = VertexValues(comm, local)
    strings = _initial_strings(values.vertices, string_count, seed)
    with IterationCheckpoint(
        comm, NAME, checkpoint_options, shared=False, data=lambda: graph_facts(comm, local)
    ) as checkpoint:
        saved = checkpoint.load()
        if saved:
            pairs = saved[0][0]
            checkpoint.check_iteration_limit(checkpoint.done, max_iter, f"max_iter={max_iter}")
            (strings,) = columns_of_ids(values.vertices, [part for _, part in saved])
        else:
            pairs = [_estimate(comm, strings[values.is_owned])]
        resumed_from = len(pairs) - 1 or None
        while True:
            combined = values.step(strings, "or", own=strings)
            if not comm.allreduce(not np.array_equal(combined, strings), op="or"):
                return pairs, True, resumed_from
            # This step, beyond the last counted step, shows whether longer paths exist.
            if len(pairs) > max_iter:
                return pairs, False, resumed_from
            strings = combined
            pairs.append(_estimate(comm, strings[values.is_owned]))
            if checkpoint.is_due(len(pairs) - 1):
                checkpoint.save(len(pairs) - 1, (pairs, (values.vertices[values.is_owned], strings[values.is_owned])))


def effective_diameter(pairs: list[float], share: float) -> float:
    """Return the steps within which a share of all connected pairs reach each other, linearly interpolated."""
    target = share * pairs[-1]
    steps = next(steps for steps, count in enumerate(pairs) if count >= target)
    if steps == 0:
        return 0.0
    return steps - 1 + (target - pairs[steps - 1]) / (pairs[steps] - pairs[steps - 1])


def _initial_strings(vertices: NDArray[np.int64], string_count: int, seed: int) -> NDArray[np.uint64]:
    """Return strings with one bit each, bit i with probability 2**-(i + 1), two per number: (m, string_count / 2).

    The strings depend only on the vertex and the seed.
    """
    streams = mixed(np.arange(string_count) + mixed(np.array([seed])).view(np.int64))
    base, last = mixed(vertices), np.uint64(1 << (BITS - 1))
    strings = np.empty((len(vertices), string_count), np.uint32)
    # One string at a time keeps intermediate arrays in cache.
    for number, stream in enumerate(streams):
        random = mixed((base ^ stream).view(np.int64))
        lowest = random & -random
        strings[:, number] = np.where((lowest == 0) | (lowest > last), last, lowest)
    return strings.view(np.uint64)


def _estimate(comm: Communicator, strings: NDArray[np.uint64]) -> float:
    """Return the sum over all vertices of the estimated number of vertices that set bits in their strings."""
    bits = strings.view(np.uint32)
    string_count = bits.shape[1]
    places = np.zeros(len(bits), np.int64)
    for string in bits.T:
        lowest_zero = ~string & (string + np.uint32(1))
        # log2 is exact for powers of two. A string without a zero counts all bits.
        places += np.where(lowest_zero == 0, BITS, np.log2(np.maximum(lowest_zero, 1))).astype(np.int64)
    # Integer sums do not depend on the distribution of vertices over ranks.
    counts = comm.allreduce(np.bincount(places, minlength=BITS * string_count + 1))
    return float(counts @ _estimated_counts(np.arange(len(counts)) / string_count))


def _estimated_counts(means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the estimated numbers of vertices from the mean lowest zeros of their strings."""
    expected = _lowest_zeros(ASYMPTOTIC_COUNT)
    small = np.interp(means, expected, np.arange(ASYMPTOTIC_COUNT + 1))
    return np.where(means < expected[-1], small, 2.0**means / CORRECTION - 0.5)


def _lowest_zeros(largest: int) -> list[float]:
    """Return the expected lowest zero of a string in which 0, 1, … `largest` vertices set one bit each.

    Bit 0 is set unless all vertices set a higher bit. With probability (n over j) / 2**n, j vertices set a
    higher bit. The bits above bit 0 are then a string in which j vertices set one bit each.
    """
    expected = [0.0]
    for n in range(1, largest + 1):
        expected.append(sum(comb(n, j) * (1 + expected[j]) for j in range(n)) / 2**n)
    return expected
