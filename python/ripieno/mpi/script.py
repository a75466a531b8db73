"""The start of unchanged mpi4py scripts."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from ripieno import mpi


def run_script(package: str) -> None:
    """Run the script named by the arguments of this process. `package` is the module passed to ``-m``."""
    if len(sys.argv) < 2:
        raise SystemExit(f"usage: ripieno run -n COUNT -m {package} SCRIPT [ARGUMENTS]")
    mpi.as_mpi4py()
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
    runpy.run_path(sys.argv[0], run_name="__main__")
