"""The page on environment variables lists exactly the existing ones."""

from __future__ import annotations

import re
from pathlib import Path

from ripieno.launch.process import processes

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/environment.md"
VARIABLE = re.compile(r"\bRIPIENO_[A-Z_]*[A-Z]\b")


def read_by_the_sources() -> set[str]:
    sources = [*(ROOT / "python/ripieno").rglob("*.py"), *(ROOT / "crates").glob("*/src/**/*.rs")]
    assert len(sources) > 100
    return {name for source in sources for name in VARIABLE.findall(source.read_text())}


def test_the_page_lists_exactly_the_existing_variables():
    assert set(VARIABLE.findall(PAGE.read_text())) == read_by_the_sources()


def test_every_variable_has_a_row_of_its_own():
    rows = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in VARIABLE.findall(row)]
    assert sorted(named) == sorted(read_by_the_sources())


def test_variables_of_libraries_of_workers_are_on_the_page():
    assert all(f"`{name}`" in PAGE.read_text() for name in processes.THREAD_VARIABLES)
