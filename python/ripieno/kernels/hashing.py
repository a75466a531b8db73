"""A hash of integers that partitions data among ranks and seeds random draws."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def mixed(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Return 64 well-mixed bits of each integer: the finalizer of SplitMix64, equal on every machine.

    Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
    """
    bits = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
