"""Run every Python example in the README, the docs and the docstrings of launching as printed.

Examples of the pages on engines run with the engines in python/tests/engines, examples of the pages on frameworks in
python/tests/frameworks.
"""

from __future__ import annotations

import doctest
import re
import runpy
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from varied import exhaustively

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "docs/engines/README.md"]
BLOCKS = [
    pytest.param(block, id=f"{page.stem}-{number}", marks=[pytest.mark.exhaustive] if page.parent != ROOT else [])
    for page in PAGES
    if page.exists()
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL), 1)
]

# The other examples need files, or have their own commands.
PROGRAMS = [ROOT / "examples" / f"{name}.py" for name in ("als", "logistic", "mds")]


# Extras that `make setup` does not install.
EXTRAS = ("lightgbm",)


@pytest.mark.parametrize("block", BLOCKS)
def test_an_example_runs(block, tmp_path):
    for extra in EXTRAS:
        if f"import {extra}" in block and find_spec(extra) is None:
            pytest.skip(f"{extra} is not installed")
    script = tmp_path / "example.py"
    script.write_text(block)

    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=250)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
@pytest.mark.exhaustive
def test_a_program_of_the_examples_runs(program, tmp_path):
    done = subprocess.run([sys.executable, program], cwd=tmp_path, capture_output=True, text=True, timeout=250)

    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.exhaustive
def test_the_example_of_sequences_finds_their_families_and_takes_files(tmp_path):
    program = ROOT / "examples/sequences.py"
    sequences = runpy.run_path(str(program))["tree"](5, 30)
    (tmp_path / "tree.fasta").write_text("".join(f">{at}\n{each}\n" for at, each in enumerate(sequences)))
    command = [sys.executable, program]
    output, of_file = (
        subprocess.run([*command, *words], cwd=tmp_path, capture_output=True, text=True, timeout=250, check=True).stdout
        for words in ([], ["tree.fasta"])
    )

    clusters = output.splitlines()[-1].rpartition(":")[2].split()
    assert [len(set(clusters[at : at + 30])) for at in range(0, 150, 30)] == [1] * 5 and len(set(clusters)) == 5
    assert output == of_file


def test_every_example_of_a_page_is_run_by_a_test():
    tests_of_engines = "".join(path.read_text() for path in (ROOT / "python/tests/engines").glob("*.py"))
    of_frameworks = [*(ROOT / "docs/frameworks").glob("*.md")]
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    others = {page for page in pages if page not in [*PAGES, *of_frameworks]}

    with_examples = [page.name for page in others if "\n```python\n" in page.read_text()]
    assert [name for name in with_examples if name not in tests_of_engines] == []


@pytest.mark.parametrize(
    "module",
    [
        "launch",
        *exhaustively("launch.job.job", "comm.broadcast_variables", "keyed.key_values", "keyed.groups", "keyed.table"),
    ],
)
def test_docstring_examples_run(module):
    # Imported by the name in sys.modules: the package exports the function `launch` under the same name.
    import_module(f"ripieno.{module}")

    results = doctest.testmod(sys.modules[f"ripieno.{module}"])

    assert results.attempted and not results.failed
