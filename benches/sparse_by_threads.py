"""A rank program that times one sparse reduction, by the threads of each rank."""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass

import numpy as np
from ripieno.comm.communicator import Communicator


@dataclass(frozen=True)
class SparseThreadTimes:
    """Seconds of a rank, and a digest of the bits of its result."""

    configure_s: float
    reduce_s: float
    in_one_pass_s: float
    digest: int


def timed(comm: Communicator, features: int, density: float) -> SparseThreadTimes:
    """Configure, reduce, and do both in one pass; each rank picks random features."""
    draw = np.random.default_rng(comm.rank)
    own = np.flatnonzero(draw.random(features, np.float32) < density)
    values = draw.random(len(own), np.float32)

    comm.barrier()
    begin_s = time.perf_counter()
    configured = comm.sparse(own, own, size=features)
    configure_s = time.perf_counter() - begin_s

    # The first reduction plans and allocates memory.
    sums = configured.reduce(values)
    comm.barrier()
    begin_s = time.perf_counter()
    configured.reduce(values, out=sums)
    reduce_s = time.perf_counter() - begin_s
    del configured

    comm.barrier()
    begin_s = time.perf_counter()
    comm.sparse_reduce(own, values, own, out=sums, size=features)
    return SparseThreadTimes(configure_s, reduce_s, time.perf_counter() - begin_s, zlib.crc32(sums.view(np.uint8)))
