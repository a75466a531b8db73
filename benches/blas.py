"""Environment variables that let OpenBLAS use the full speed of the processor. Set them before NumPy is imported."""

from __future__ import annotations

import os
import re
from pathlib import Path


def free_blas() -> None:
    """Let OpenBLAS use all features of the processor, in measurements of Ripieno and of other libraries.

    OpenBLAS identifies processors by model number, and treats unknown models as much older ones. Some container images
    restrict OpenBLAS for reproducible results. Each of these can cost half of its speed or more.
    """
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.pop(name, None)
    if re.search(r"\bavx512vl\b", Path("/proc/cpuinfo").read_text()):
        os.environ["OPENBLAS_CORETYPE"] = "SkylakeX"
