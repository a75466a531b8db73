"""One of two ranks with an installed wheel. It starts no processes, because an emulator would not emulate those."""

import platform

import numpy as np
import ripieno as rp

comm = rp.init()
sums = comm.allreduce(np.arange(1000, dtype=np.float32))
assert (sums == 2 * np.arange(1000)).all()
pairs = comm.regroup(rp.KeyValues(np.arange(100), np.ones(100)), combine="sum")
rows = np.random.default_rng(0).normal(size=(600, 8))[comm.rank :: 2]
model = rp.KMeans(5, random_state=0).fit(rows, comm=comm, rows="own")
print(platform.machine(), rp.__version__, comm.world_size, "ranks,", model.n_iter_, "iterations")
