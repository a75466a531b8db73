"""Transposition of a matrix with distributed rows, in one call: rows of the sender become columns of the receiver."""

import numpy as np
from mpi4py import MPI

SIZE = 13

comm = MPI.COMM_WORLD
bounds = [SIZE * rank // comm.size for rank in range(comm.size + 1)]
first, end = bounds[comm.rank], bounds[comm.rank + 1]
height, widths = end - first, np.diff(bounds).tolist()
own = np.arange(first * SIZE, end * SIZE).reshape(height, SIZE)
blocks = [
    MPI.INT64_T.Create_subarray([height, SIZE], [height, width], [0, bound]).Commit()
    for width, bound in zip(widths, bounds[:-1], strict=True)
]
column = MPI.INT64_T.Create_vector(height, 1, SIZE).Create_resized(0, 8).Commit()
places = [8 * bound for bound in bounds[:-1]]
for call in (comm.Alltoallw, lambda *buffers: comm.Ialltoallw(*buffers).Wait()):
    transposed = np.zeros((height, SIZE), np.int64)
    call([own, [1] * comm.size, [0] * comm.size, blocks], [transposed, widths, places, [column] * comm.size])
    assert (transposed == np.arange(SIZE * SIZE).reshape(SIZE, SIZE).T[first:end]).all()
    print("rank", comm.rank, transposed.tolist())

packed = np.zeros(MPI.INT64_T.Pack_size(SIZE, comm), np.int8)
position = MPI.INT64_T.Pack(own[0], packed, 0, comm)
again = np.zeros(SIZE, np.int64)
MPI.INT64_T.Unpack(packed, 0, again, comm)
print("packed", comm.rank, position, again.tolist())
