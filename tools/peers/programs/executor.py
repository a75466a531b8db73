"""An executor of ranks: maps, futures in the order of their ends, and an error of a function."""

from concurrent.futures import as_completed

from mpi4py import MPI
from mpi4py.futures import MPICommExecutor

OFFSET = 7


def line(x, slope=1):
    return OFFSET + x * slope


def broken(x):
    raise ValueError(f"no {x}")


if __name__ == "__main__":
    with MPICommExecutor(MPI.COMM_WORLD, root=0) as executor:
        if executor is not None:
            print("map", list(executor.map(line, range(10), chunksize=3)))
            print("starmap", list(executor.starmap(line, [(1, 2), (3, 4)])))
            print("unordered", sorted(executor.map(line, range(6), unordered=True)))
            futures = {executor.submit(line, x, slope=2): x for x in range(5)}
            print("completed", sorted((futures[each], each.result()) for each in as_completed(futures)))
            print("error", repr(executor.submit(broken, 3).exception()))
