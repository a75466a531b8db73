"""Run an unchanged mpi4py script on ranks of Ripieno: ``python -m ripieno.mpi script.py …``."""

from ripieno.mpi.script import run_script

if __name__ == "__main__":
    run_script("ripieno.mpi")
