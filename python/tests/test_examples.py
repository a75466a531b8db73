"""Every Python example in the README, the docs and the docstrings of launching runs as it is printed.

Those of the pages on engines run where the engines do, python/tests/engines.
"""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "docs/engines/README.md"]
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


def test_no_page_has_examples_that_nothing_runs():
    tests_of_engines = "".join(path.read_text() for path in (ROOT / "python/tests/engines").glob("*.py"))
    others = {page for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")] if page not in PAGES}

    with_examples = [page.name for page in others if "\n```python\n" in page.read_text()]
    assert [name for name in with_examples if name not in tests_of_engines] == []


@pytest.mark.parametrize(
    "module",
    ["launch", "launch.job.job", "comm.broadcast_variables", "keyed.key_values", "keyed.groups", "keyed.table"],
)
def test_docstring_examples_run(module):
    # By its name in sys.modules: the package offers the function `launch` under the same name.
    import_module(f"ripieno.{module}")

    results = doctest.testmod(sys.modules[f"ripieno.{module}"])

    assert results.attempted and not results.failed
