"""Running of unchanged scripts of mpi4py."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from ripieno import mpi


def run_script(package: str) -> None:
    """Run the script that the arguments of this process name; `package` is the module that they start with ``-m``."""
    if len(sys.argv) < 2:
        raise SystemExit(f"usage: ripieno run -n COUNT -m {package} SCRIPT [ARGUMENTS]")
    mpi.as_mpi4py()
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
    runpy.run_path(sys.argv[0], run_name="__main__")
