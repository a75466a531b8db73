"""Order functions so that deflate finds common byte strings of neighbors.

The next function is always the one that shares most short byte strings with the preceding window, where deflate can
find them. The cost is `n²` for the choices, and for each string that enters or leaves the window an addition per
function with that string.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

#: Window size of deflate.
WINDOW_BYTES = 32 << 10

STRING_BYTES = 5

#: Strings of more functions than this are ignored: every window contains them.
FUNCTION_COUNT_MAX = 200


def similar_order(functions: list[bytes]) -> list[int]:
    """Return the indices of the functions in an order for deflate."""
    strings_by_function = strings_of(functions)
    found_in = strings_by_function.T.tocsr()
    sizes = np.array([len(function) for function in functions])
    # The number of shared strings favors long functions. The number divided by the size favors short functions. The
    # square root is a compromise.
    weights = 1 / np.sqrt(sizes + 16)
    shared, times = np.zeros(len(functions)), np.zeros(strings_by_function.shape[1], int)
    window: deque[int] = deque()
    order: list[int] = []

    def strings(function: int) -> NDArray[np.int32]:
        start, end = strings_by_function.indptr[function : function + 2]
        return strings_by_function.indices[start:end]

    def owners(strings: NDArray[np.int32]) -> NDArray[np.int64]:
        return np.bincount(found_in[strings].indices, minlength=len(functions))

    while len(order) < len(functions):
        chosen = int(np.argmax(shared * weights))
        order.append(chosen)
        window.append(chosen)
        entering = strings(chosen)
        shared += owners(entering[times[entering] == 0])
        times[entering] += 1
        shared[chosen] = -np.inf
        while sizes[window].sum() - sizes[window[0]] > WINDOW_BYTES:
            leaving = strings(window.popleft())
            times[leaving] -= 1
            shared -= owners(leaving[times[leaving] == 0])
    return order


def strings_of(functions: list[bytes]) -> csr_array:
    """Return a matrix of functions by strings, for the strings that several functions have."""
    numbers = [string_numbers(function) for function in functions]
    functions_of = np.repeat(np.arange(len(functions)), [len(each) for each in numbers])
    _, strings, counts = np.unique(np.concatenate(numbers), return_inverse=True, return_counts=True)
    is_shared = (counts[strings] > 1) & (counts[strings] <= FUNCTION_COUNT_MAX)
    places = (functions_of[is_shared], strings[is_shared])
    return csr_array((np.ones(len(places[0]), bool), places), shape=(len(functions), len(counts)))


def string_numbers(function: bytes) -> NDArray[np.uint64]:
    """Return the distinct strings of a function, as numbers."""
    values = np.frombuffer(function + bytes(STRING_BYTES - 1), np.uint8).astype(np.uint64)
    shifted = [values[at : len(function) + at] << np.uint64(8 * at) for at in range(STRING_BYTES)]
    return np.unique(np.bitwise_or.reduce(shifted))
