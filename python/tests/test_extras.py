"""Optional packages: code that needs one names its extra, and other code does not need it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

WITHOUT = """
import sys
class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {lacking!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Lacking())
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
        ("rp.lightgbm", "lightgbm"),
    ],
)
def test_a_missing_package_is_reported_with_its_extra(program, extra):
    described = without(["matplotlib", "PIL", "skimage", "lightgbm"], program)
    assert f'pip install "ripieno[{extra}]"' in described


def test_estimators_need_none_of_them():
    program = "print(rp.KMeans(n_clusters=2, random_state=0).fit(np.eye(4)).cluster_centers_.shape)"
    assert "(2, 4)" in without(["matplotlib", "PIL", "skimage", "lightgbm", "pandas", "polars"], program)


def test_the_licenses_of_others_match_the_locked_crates():
    done = subprocess.run([sys.executable, ROOT / "tools/licenses.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def without(lacking: list[str], program: str) -> str:
    script = WITHOUT.format(lacking=lacking, program=program)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    return done.stdout
