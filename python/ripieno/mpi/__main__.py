"""``python -m ripieno.mpi script.py …``: runs an unchanged mpi4py script on ranks of Ripieno."""

import runpy
import sys
from pathlib import Path

from ripieno import mpi


def main() -> None:
    if len(sys.argv) < 2:
        raise SystemExit("usage: ripieno run -n COUNT -m ripieno.mpi SCRIPT [ARGUMENTS]")
    mpi.as_mpi4py()
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
    runpy.run_path(sys.argv[0], run_name="__main__")


main()
