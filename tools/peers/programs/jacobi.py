"""Jacobi iteration on a grid of ranks: columns of the halo by vectors, the whole picture by subarrays."""

import numpy as np
from mpi4py import MPI

SIZE, STEPS = 48, 60

grid = MPI.COMM_WORLD.Create_cart(MPI.Compute_dims(MPI.COMM_WORLD.size, 2), periods=[False, True], reorder=True)
(row, col), (rows, cols) = grid.coords, grid.dims
height, width = SIZE // rows, SIZE // cols
north, south = grid.Shift(0, 1)
west, east = grid.Shift(1, 1)
u = np.zeros((height + 2, width + 2))
heat = np.fromfunction(lambda i, j: np.sin((i + row * height) / 7) * np.cos((j + col * width) / 5), (height, width))
column = MPI.DOUBLE.Create_vector(height, 1, width + 2).Commit()


def column_at(j):
    return [u.reshape(-1)[width + 2 + j :], 1, column]


change = np.empty(1)
for _ in range(STEPS):
    grid.Sendrecv(u[height, 1:-1], south, 0, u[0, 1:-1], north, 0)
    grid.Sendrecv(u[1, 1:-1], north, 1, u[height + 1, 1:-1], south, 1)
    receives = [grid.Irecv(column_at(0), west, 2), grid.Irecv(column_at(width + 1), east, 3)]
    sends = [grid.Isend(column_at(width), east, 2), grid.Isend(column_at(1), west, 3)]
    MPI.Request.Waitall(receives + sends)
    new = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - heat)
    grid.Allreduce(np.abs(new - u[1:-1, 1:-1]).max(keepdims=True).reshape(1), change, MPI.MAX)
    u[1:-1, 1:-1] = new
column.Free()

inner = MPI.DOUBLE.Create_subarray([height + 2, width + 2], [height, width], [1, 1]).Commit()
request = grid.Isend([u, 1, inner], 0, 9)
if grid.rank == 0:
    whole = np.zeros((rows * height, cols * width))
    for rank in range(grid.size):
        i, j = grid.Get_coords(rank)
        block = MPI.DOUBLE.Create_subarray(whole.shape, [height, width], [i * height, j * width]).Commit()
        grid.Recv([whole, 1, block], rank, 9)
        block.Free()
    print(f"change {change[0]:.9e}, sum {whole.sum():.9e}, largest {np.abs(whole).max():.9e}")
request.Wait()
inner.Free()
line = grid.Sub([False, True])
print(f"row {row}, column {col}: {line.allreduce(float(u[1:-1, 1:-1].sum())):.9e}")
