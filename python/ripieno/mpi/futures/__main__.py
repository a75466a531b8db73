"""Run a script on rank 0 with pools of the other ranks: ``python -m ripieno.mpi.futures script.py …``."""

from ripieno import mpi
from ripieno.mpi.futures import shared_workers
from ripieno.mpi.script import run_script

if __name__ == "__main__":
    with shared_workers(mpi.COMM_WORLD) as is_first:
        if is_first:
            run_script("ripieno.mpi.futures")
