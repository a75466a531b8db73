"""Estimators import scikit-learn without the large libraries that it rarely uses."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import ripieno as rp

rp.KMeans
assert not {"pandas", "scipy.stats", "sklearn.metrics"} & sys.modules.keys()

import sklearn.utils.fixes

assert sklearn.utils.fixes.pd.DataFrame is sys.modules["pandas"].DataFrame

import pandas
import scipy.stats

assert type(pandas) is type(scipy.stats) is type(sys)
assert scipy.stats.mode([1, 2, 2]).mode == 2
assert sklearn.utils.fixes._mode([1, 2, 2]).mode == 2
"""


def test_pandas_and_statistics_are_imported_on_first_use():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
