"""The largest eigenvalue of a matrix whose rows the ranks share: `ripieno run -n 4 examples/power_iteration.py`.

Every iteration is a local product, an allgather of the pieces of the vector and an allreduce of its length.
"""

import numpy as np

import ripieno as rp

SIZE = 500


def share_of_rows(comm: rp.Communicator) -> np.ndarray:
    """This rank's rows of a symmetric matrix that every rank can make from the same seed."""
    noise = np.random.default_rng(0).normal(size=(SIZE, SIZE))
    return np.array_split(noise + noise.T + 1, comm.world_size)[comm.rank]


def main() -> None:
    comm = rp.init()
    rows = share_of_rows(comm)
    vector = np.ones(SIZE)
    eigenvalue = 0.0
    for iteration in range(100):
        piece = rows @ vector
        length = np.sqrt(comm.allreduce(float(piece @ piece)))
        vector = np.concatenate(comm.allgather(piece)) / length
        if abs(length - eigenvalue) <= 1e-12 * length:
            break
        eigenvalue = length
    if comm.rank == 0:
        print(f"largest eigenvalue {length:.6f} after {iteration + 1} iterations on {comm.world_size} ranks")


if __name__ == "__main__":
    main()
