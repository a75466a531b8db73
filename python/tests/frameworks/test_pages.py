"""Run every script of the pages on frameworks as printed, and check that their extras exist."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).resolve().parents[3] / "docs/frameworks").glob("*.md"))
PACKAGES = {"pytorch": "torch", "xgboost": "xgboost"}
SCRIPTS = [
    pytest.param(page.stem, script, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, script in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL))
]


@pytest.mark.parametrize(("page", "script"), SCRIPTS)
def test_scripts_of_the_pages_run(page, script, tmp_path):
    if importlib.util.find_spec(PACKAGES[page]) is None:
        pytest.skip(f"needs {PACKAGES[page]}: make frameworks")
    (tmp_path / "script.py").write_text(script)

    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100)

    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_extra_of_a_page_exists(page):
    (name,) = re.findall(r"pip install 'ripieno\[(\w+)\]'", page.read_text())

    assert name in metadata("ripieno").get_all("Provides-Extra")
