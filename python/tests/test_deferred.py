"""Estimators and commands import large libraries only when they use them."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import ripieno as rp

rp.KMeans
assert not {"numpy.f2py", "numpy.testing", "pandas", "scipy.stats", "sklearn.metrics"} & sys.modules.keys()

import sklearn.utils.fixes

assert sklearn.utils.fixes.pd.DataFrame is sys.modules["pandas"].DataFrame

import numpy as np
import pandas
import scipy.stats

assert type(np.testing) is type(np.f2py) is type(pandas) is type(scipy.stats) is type(sys)
assert scipy.stats.mode([1, 2, 2]).mode == 2
assert sklearn.utils.fixes._mode([1, 2, 2]).mode == 2
"""


def test_pandas_and_statistics_are_imported_on_first_use():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)


def test_the_help_of_a_command_needs_no_large_library():
    imports = """
import sys
from importlib import import_module
from ripieno.cli import COMMANDS

for place, _ in COMMANDS.values():
    import_module(f"ripieno.cli.{place.partition(':')[0]}")
large = {"matplotlib", "pandas", "polars", "pyarrow", "scipy", "skimage", "sklearn"}
assert not large & sys.modules.keys(), large & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", imports], check=True)
