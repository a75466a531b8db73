"""An order of functions in which those that are alike lie side by side.

The next one is always the one that has most in common with what lies in the window before it: strings of a few bytes,
which deflate finds again there. Cost: `n²` for the choices, and an addition for each function that has a string,
whenever the string enters or leaves the window.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

#: How far back deflate looks.
WINDOW_BYTES = 32 << 10

STRING_BYTES = 5

#: A string of more functions than these is in every window.
COMMON = 200


def alike(functions: list[bytes]) -> list[int]:
    """The places of the functions, in an order for deflate."""
    has = strings_of(functions)
    found_in = has.T.tocsr()
    sizes = np.array([len(function) for function in functions])
    # By its size alone a short one would have too little in common, and by the share a long one.
    worth = 1 / np.sqrt(sizes + 16)
    shared, times = np.zeros(len(functions)), np.zeros(has.shape[1], int)
    window: deque[int] = deque()
    order: list[int] = []

    def strings(function: int) -> NDArray[np.int32]:
        return has.indices[has.indptr[function] : has.indptr[function + 1]]

    def owners(strings: NDArray[np.int32]) -> NDArray[np.int64]:
        return np.bincount(found_in[strings].indices, minlength=len(functions))

    while len(order) < len(functions):
        chosen = int(np.argmax(shared * worth))
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
    """Functions by strings: which has which, of the strings that several have."""
    numbers = [string_numbers(function) for function in functions]
    functions_of = np.repeat(np.arange(len(functions)), [len(each) for each in numbers])
    _, strings, counts = np.unique(np.concatenate(numbers), return_inverse=True, return_counts=True)
    is_kept = (counts[strings] > 1) & (counts[strings] <= COMMON)
    places = (functions_of[is_kept], strings[is_kept])
    return csr_array((np.ones(len(places[0]), bool), places), shape=(len(functions), len(counts)))


def string_numbers(function: bytes) -> NDArray[np.uint64]:
    """The different strings of a function, as numbers."""
    values = np.frombuffer(function + bytes(STRING_BYTES - 1), np.uint8).astype(np.uint64)
    shifted = [values[at : len(function) + at] << np.uint64(8 * at) for at in range(STRING_BYTES)]
    return np.unique(np.bitwise_or.reduce(shifted))
