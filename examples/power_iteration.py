"""The largest eigenvalue of a matrix distributed by rows: `ripieno run -n 4 examples/power_iteration.py`.

Every iteration is a local product, an allgather of the pieces of the vector and an allreduce of its length.
"""

import numpy as np
import ripieno as rp

SIZE = 500
MAX_ITER = 100


def share_of_rows(comm: rp.Communicator) -> np.ndarray:
    """Return this rank's rows of a symmetric matrix, made from the same seed on every rank."""
    noise = np.random.default_rng(0).normal(size=(SIZE, SIZE))
    return np.array_split(noise + noise.T + 1, comm.world_size)[comm.rank]


def largest_eigenvalue(comm: rp.Communicator, rows: np.ndarray) -> tuple[float, int]:
    """Return the eigenvalue, which is equal on every rank, and the number of iterations."""
    vector = np.ones(SIZE)
    eigenvalue = 0.0
    for iteration in range(1, MAX_ITER + 1):
        piece = rows @ vector
        length = np.sqrt(comm.allreduce(float(piece @ piece)))
        vector = np.concatenate(comm.allgather(piece)) / length
        if abs(length - eigenvalue) <= 1e-12 * length:
            return length, iteration
        eigenvalue = length
    return eigenvalue, MAX_ITER


def main() -> None:
    comm = rp.init()
    eigenvalue, iteration_count = largest_eigenvalue(comm, share_of_rows(comm))
    if comm.rank == 0:
        print(f"largest eigenvalue {eigenvalue:.6f} after {iteration_count} iterations on {comm.world_size} ranks")


if __name__ == "__main__":
    main()
