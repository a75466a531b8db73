"""Optional packages: code that needs one names its extra, and other code does not need it."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

WITHOUT = """
import sys
class MissingPackages:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, MissingPackages())
import numpy as np, ripieno as rp
try:
    {program}
except rp.MissingExtra as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("program", "extra"),
    [
        ("import ripieno.report", "reports"),
        ("from ripieno.features import open_picture", "pictures"),
        ("rp.lightgbm.LGBMClassifier", "lightgbm"),
    ],
)
def test_a_missing_package_is_reported_with_its_extra(program, extra):
    output = output_without(["matplotlib", "PIL", "skimage", "lightgbm"], program)
    assert f'pip install "ripieno[{extra}]"' in output


def test_public_names_can_be_completed_without_optional_packages():
    # The completion of Python's prompt reads each attribute, and shows no name if one raises.
    program = "print(*(name for name in dir(rp) if getattr(rp, name) is None), 'complete')"
    missing = ["matplotlib", "PIL", "skimage", "lightgbm", "xgboost", "pyspark", "networkx", "torch"]
    assert output_without(missing, program).split() == ["complete"]


def test_estimators_need_no_optional_package():
    program = "print(rp.KMeans(n_clusters=2, random_state=0).fit(np.eye(4)).cluster_centers_.shape)"
    assert "(2, 4)" in output_without(["matplotlib", "PIL", "skimage", "lightgbm", "pandas", "polars"], program)


def test_terms_of_a_crate_that_are_not_allowed_are_reported():
    is_allowed = runpy.run_path(str(ROOT / "tools/licenses.py"))["is_allowed"]
    allowed = ("MIT/Apache-2.0", "Unlicense OR MIT", "(MIT OR GPL-3.0) AND ISC", "Apache-2.0 WITH LLVM-exception")
    assert all(map(is_allowed, allowed))
    assert not any(map(is_allowed, ("GPL-3.0", "MIT AND GPL-3.0", "(GPL-3.0 OR SSPL-1.0) AND MIT", "see below")))


def test_third_party_licenses_match_the_locked_crates():
    done = subprocess.run([sys.executable, ROOT / "tools/licenses.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def output_without(missing: list[str], program: str) -> str:
    script = WITHOUT.format(missing=missing, program=program)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    return done.stdout
