"""The Spark benchmark in its quick form; its times are not meaningful."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import spark_sessions
from ripieno.bench.figures import Measurements

ROOT = Path(__file__).resolve().parents[3]
CONFIGURATION = {**spark_sessions.CONFIGURATION, "spark.driver.memory": "1g"}


# It starts a separate Spark.
@pytest.mark.exhaustive
@pytest.mark.timeout(400)
@pytest.mark.skipif(spark_sessions.missing() is not None, reason=spark_sessions.missing() or "")
def test_spark_and_ranks_are_measured_in_one_session_and_the_page_is_filled(tmp_path, monkeypatch):
    page = tmp_path / "spark-figures.md"
    shutil.copy(ROOT / "docs" / "engines" / page.name, page)
    words = [sys.executable, ROOT / "benches" / "spark.py", "--quick", "--master", "local[2]", "--page", page]
    for name, value in CONFIGURATION.items():
        words += ["--conf", f"{name}={value}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=390, check=False)
    assert done.returncode == 0, done.stderr

    (report,) = json.loads(page.with_suffix(".json").read_text())["reports"]
    figures = {(figure["case"], figure["row"]): figure for figure in report["figures"]}
    peers_of_cases = {case.partition(",")[0]: set(figure["peers"]) for (case, _), figure in figures.items()}
    treeaggregates = {"treeAggregate, NumPy"} | ({"treeAggregate, Java"} if shutil.which("javac") else set())
    assert peers_of_cases == {
        "K-means": {"MLlib, row", "MLlib, block"},
        "broadcast from the driver to all tasks": {"sc.broadcast"},
        "broadcast from rank 0 to all ranks": {"sc.broadcast"},
        "sum of 2 vectors": treeaggregates,
        "2 ranks in Spark and 2 local ranks": {"local"},
    }
    assert all(min(figure["ours"]["seconds"]) > 0 for figure in figures.values())
    inertias = [each["reached"] for each in report["counts"] if each["row"].startswith("inertias differ")]
    assert inertias == [True]
    limited = [figure for (case, row), figure in figures.items() if row in ("computation per iteration", "1 MB")]
    assert len(limited) == 3 and all(figure["to_limit"] > 0 for figure in limited)
    text = page.read_text()
    # Figures that are not measured again are kept.
    monkeypatch.syspath_prepend(ROOT / "benches")
    importlib.import_module("spark_page").fill(page, Measurements("spark"))
    assert [line for line in page.read_text().splitlines() if "processor" not in line] == [
        line for line in text.splitlines() if "processor" not in line
    ]
    assert text.count("\n| ") == len(figures) + 1, "a row for each figure, below the head"
    assert all(case in text for case, _ in figures)
    assert "treeAggregate, NumPy" in page.with_suffix(".svg").read_text()
