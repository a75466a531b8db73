"""Full processor speed for OpenBLAS, set through the environment before NumPy is imported."""

from __future__ import annotations

import os
import re
from pathlib import Path


def free_blas() -> None:
    """Let OpenBLAS, and with it sgemm and peers, use all features of the processor.

    OpenBLAS identifies processors by number and treats unknown newer ones as much older ones. Some images restrict it
    for reproducible results. Both can halve its speed or worse.
    """
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.pop(name, None)
    if re.search(r"\bavx512vl\b", Path("/proc/cpuinfo").read_text()):
        os.environ["OPENBLAS_CORETYPE"] = "SkylakeX"
