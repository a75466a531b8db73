"""Every Python example in the README, the docs and the docstrings of launching runs as it is printed."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    if page.exists()
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL), 1)
]


@pytest.mark.parametrize("block", BLOCKS)
def test_an_example_runs(block, tmp_path):
    script = tmp_path / "example.py"
    script.write_text(block)

    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=100)

    assert done.returncode == 0, done.stderr


def test_docstring_examples_run():
    # By its name in sys.modules: the package offers the function `launch` under the same name.
    import ripieno.launch  # noqa: F401

    results = doctest.testmod(sys.modules["ripieno.launch"])

    assert results.attempted and not results.failed
