"""Lets OpenBLAS use the whole processor. It is told by the environment, before NumPy is imported."""

from __future__ import annotations

import os
import re
from pathlib import Path


def free_blas() -> None:
    """Let OpenBLAS, and with it sgemm and peers, use all that the processor has.

    OpenBLAS knows processors by number and takes one that is newer than itself for a much older one, and some images
    hold it down so that results are the same everywhere: at half the speed or less.
    """
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.pop(name, None)
    if re.search(r"\bavx512vl\b", Path("/proc/cpuinfo").read_text()):
        os.environ["OPENBLAS_CORETYPE"] = "SkylakeX"
