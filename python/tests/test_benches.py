"""The benchmarks run, small, so that they cannot rot; what they measure here says nothing about speed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ripieno.lab import why_not

BENCHES = Path(__file__).resolve().parents[2] / "benches"
cannot_emulate = why_not()
needs_lab = pytest.mark.skipif(cannot_emulate is not None, reason=cannot_emulate or "")


def reports_of(name: str, tmp_path: Path, *options: str) -> dict:
    """Run a benchmark as its user does, and read what it wrote."""
    target = tmp_path / "figures.json"
    command = [sys.executable, str(BENCHES / "run.py"), name, "--quick", "--json", str(target), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    (report,) = json.loads(target.read_text())["reports"]
    return report


def test_collectives_of_one_host_are_timed_between_native_and_between_python_programs(tmp_path):
    figures = reports_of("host", tmp_path)["figures"]

    cases = {figure["case"] for figure in figures}
    assert {f"{name}, {ranks} ranks, {how}" for name in ("allreduce", "barrier") for ranks in (2, 4)
            for how in ("native", "python")} | {"allreduce, 2 ranks, shared"} <= cases  # fmt: skip
    assert all(figure["ours"]["seconds"] and figure["limit_s"] is not None for figure in figures)


def test_kmeans_is_timed_beside_scikit_learn_at_equal_inertia(tmp_path):
    figures = reports_of("kmeans", tmp_path)["figures"]

    assert [figure["row"] for figure in figures] == ["kernel", "KMeans, 2 workers"]
    assert all("scikit-learn" in figure["peers"] for figure in figures)


def test_memory_is_counted_beside_what_it_is_to_be_at_most(tmp_path):
    counts = reports_of("memory", tmp_path, "--case", "auto")["counts"]

    assert {count["row"] for count in counts} == {"allocations a call", "memory beside the vector"}
    assert all(count["value"] >= 0 for count in counts)
    chain = next(count for count in counts if "chain" in count["case"] and count["unit"] == "MiB")
    assert chain["value"] > 0, "a chain does not run without a link"


@needs_lab
def test_every_case_of_the_emulated_cluster_runs(tmp_path):
    figures = reports_of("cluster", tmp_path)["figures"]

    assert {figure["case"].split(",")[0] for figure in figures} == {
        "broadcast", "broadcast=chain", "allreduce", "allgather", "alltoall",
    }  # fmt: skip
    assert {figure["row"] for figure in figures} == {"128 KiB", "1 KiB"}
    assert sum("racks" in figure["case"] or "against" in figure["case"] for figure in figures) == 3
    # A token bucket lets a burst pass, so small messages may be a little faster than the rate.
    assert all(figure["ours"]["median_s"] > 0.5 * figure["limit_s"] for figure in figures)


def test_a_case_that_does_not_exist_is_told_with_those_that_do():
    command = [sys.executable, str(BENCHES / "run.py"), "host", "--case", "native-3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 2
    assert "native-3: expected one of native-2, python-2, native-4, python-4" in done.stderr
