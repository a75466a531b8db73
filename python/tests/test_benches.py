"""Quick runs of all benchmarks; their times are not meaningful here."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from ripieno.bench import model, threads
from ripieno.bench.cases import BenchCase
from ripieno.bench.figures import FigureCount, Measurements
from ripieno.cli import main
from ripieno.features import hog_vectors
from ripieno.lab import missing_requirement

BENCHES = Path(__file__).resolve().parents[2] / "benches"
cannot_emulate = missing_requirement()
needs_lab = pytest.mark.skipif(cannot_emulate is not None, reason=cannot_emulate or "")


def reports_of(name: str, tmp_path: Path, *options: str) -> dict:
    """Run a benchmark as a user does, and read its output."""
    target = tmp_path / "figures.json"
    command = [sys.executable, str(BENCHES / "run.py"), name, "--quick", "--json", str(target), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    (report,) = json.loads(target.read_text())["reports"]
    return report


@pytest.mark.exhaustive
def test_collectives_of_one_host_are_timed_between_native_and_between_python_programs(tmp_path):
    figures = reports_of("host", tmp_path)["figures"]

    cases = {figure["case"] for figure in figures}
    assert {f"{name}, {ranks} ranks, {how}" for name in ("allreduce", "barrier") for ranks in (2, 4)
            for how in ("native", "python")} | {"allreduce, 2 ranks, shared"} <= cases  # fmt: skip
    assert all(figure["ours"]["seconds"] and figure["limit_s"] is not None for figure in figures)


@pytest.mark.exhaustive
def test_kmeans_is_timed_against_scikit_learn_at_equal_inertia(tmp_path):
    figures = reports_of("kmeans", tmp_path)["figures"]

    assert [figure["row"] for figure in figures] == 3 * ["kernel", "KMeans, 2 workers"]
    cases = ["2000 × 32 into 20", "2000 × 32 into 80, 20 passes", "60000 × 2 into 100"]
    assert [figure["case"] for figure in figures[::2]] == cases
    assert all("scikit-learn" in figure["peers"] for figure in figures)


@pytest.mark.exhaustive
def test_own_rows_are_timed_against_shared_rows_at_equal_inertia(tmp_path):
    report = reports_of("own-rows", tmp_path)

    assert [figure["row"] for figure in report["figures"]] == ["an iteration", "the start"]
    assert all(list(figure["peers"]) == ["shared rows"] for figure in report["figures"]) and not report["remarks"]


@pytest.mark.exhaustive
def test_a_job_with_unauthenticated_peers_is_timed_against_one_without(tmp_path):
    report = reports_of("unauthenticated", tmp_path)
    assert [list(figure["peers"]) for figure in report["figures"]] == [
        ["none"],
        ["elsewhere"],
    ] * 2
    assert [count["case"] for count in report["counts"]] == [
        "processor time of a rank",
        "memory of a rank",
        "processor time of a member server",
    ]
    assert report["remarks"] == ["of 50 connections to 2 ports 0 were refused or reset immediately"]


@pytest.mark.exhaustive
def test_vertex_estimators_are_timed_and_match_the_peers(tmp_path):
    report = reports_of("vertices", tmp_path)
    assert len(report["figures"]) == 15
    assert all(set(figure["peers"]) >= {"networkx"} or "propagation" in figure["case"] for figure in report["figures"])
    assert all(count["value"] == 0 for count in report["counts"])


@pytest.mark.exhaustive
def test_replacements_of_networkx_functions_are_timed_against_networkx(tmp_path):
    report = reports_of("networkx", tmp_path)
    assert [figure["row"] for figure in report["figures"]] == ["arrays kept", "arrays made"] * 3
    assert all(set(figure["peers"]) == {"networkx"} for figure in report["figures"])


@pytest.mark.exhaustive
def test_seeding_is_timed_against_scikit_learn_and_its_inertia_compared(tmp_path):
    report = reports_of("seeding", tmp_path)

    assert {figure["case"].split(",")[0] for figure in report["figures"]} == {"blobs", "uniform", "digits", "HOG"}
    assert {count["row"] for count in report["counts"]} == {"inertia at the start", "inertia after Lloyd"}
    assert all(0.5 < count["value"] < 1.5 for count in report["counts"])


@pytest.mark.exhaustive
def test_memory_is_compared_with_its_limit(tmp_path):
    counts = reports_of("memory", tmp_path, "--case", "auto")["counts"]

    assert {count["row"] for count in counts} == {"allocations a call", "memory in addition to the vector"}
    assert all(count["value"] >= 0 for count in counts)
    chain = next(count for count in counts if "chain" in count["case"] and count["unit"] == "MiB")
    assert chain["value"] > 0, "a chain does not run without a link"


@pytest.mark.exhaustive
@needs_lab
def test_every_case_of_the_emulated_cluster_runs(tmp_path):
    figures = reports_of("cluster", tmp_path)["figures"]

    assert {figure["case"].split(",")[0] for figure in figures} == {
        "broadcast", "broadcast=chain", "allreduce", "allgather", "alltoall",
    }  # fmt: skip
    assert {figure["row"] for figure in figures} == {"128 KiB", "1 KiB"}
    assert sum("racks" in figure["case"] or "against" in figure["case"] for figure in figures) == 3
    # A token bucket permits a burst, so small messages may be slightly faster than the rate.
    assert all(figure["ours"]["median_s"] > 0.5 * figure["limit_s"] for figure in figures)


@pytest.mark.exhaustive
def test_the_recovery_of_the_survivors_is_timed(tmp_path):
    figures = reports_of("faults", tmp_path)["figures"]
    assert {figure["row"].split()[1] for figure in figures} >= {"local"}
    assert all(0 < figure["ours"]["median_s"] < 10 for figure in figures)


@pytest.mark.exhaustive
@needs_lab
def test_encrypted_messages_are_timed_against_unencrypted_messages(tmp_path):
    figures = reports_of("encryption", tmp_path)["figures"]

    assert [figure["case"] for figure in figures] == [
        "first message", "allreduce of 8 bytes", "long message", "processor time of a long message",
    ]  # fmt: skip
    assert all(figure["ours"]["seconds"] and list(figure["peers"]) == ["not encrypted"] for figure in figures)


@pytest.mark.exhaustive
@needs_lab
def test_replicas_with_up_to_three_dead_ranks_are_timed_against_ranks_without_replicas(tmp_path):
    figures = reports_of("replicas", tmp_path)["figures"]

    for stage in ("configure", "reduce"):
        rows = [figure["row"] for figure in figures if figure["case"] == stage]
        assert rows[:2] == ["4 ranks without replicas", "8 ranks without replicas"]
        assert rows[2:] == [f"4 × 2 replicas, {dead} dead" for dead in range(4)]
    assert all(figure["ours"]["seconds"] and figure["limit_s"] > 0 for figure in figures)


@pytest.mark.exhaustive
@needs_lab
def test_shuffles_with_and_without_local_reduction_and_to_one_host_are_measured(tmp_path):
    report = reports_of("shuffle", tmp_path)

    reduction, incast = report["figures"]
    assert list(reduction["peers"]) == ["without"]
    assert list(incast["peers"]) == ["all at once"]
    # A token bucket permits a burst.
    assert all(figure["ours"]["median_s"] > 0.5 * figure["limit_s"] for figure in report["figures"])
    (bytes_sent,) = report["counts"]
    # One eighth, plus the lengths of the arrays, which are noticeable with little data.
    assert 1 / 8 < bytes_sent["value"] < 1 / 6


@pytest.fixture
def bench_module(monkeypatch):
    """Return a function that imports a module of the benchmarks, which may change the environment."""
    monkeypatch.syspath_prepend(BENCHES)
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    return import_module


@pytest.mark.exhaustive
def test_a_peer_with_another_result_is_left_out_with_a_remark(bench_module, monkeypatch):
    regroup, effort = bench_module("regroup"), bench_module("effort")

    def peers(report, keys, values):
        sums = {"key": np.unique(keys), "value": np.bincount(keys, values)[np.unique(keys)]}
        columns = {name: pa.chunked_array([column]) for name, column in sums.items()}
        return {"right": lambda: columns, "wrong": lambda: columns | {"value": columns["key"]}}

    monkeypatch.setattr(regroup, "_peers", peers)
    report = Measurements("regroup")
    regroup.measured(report, effort.Effort(quick=True, repetitions=1))

    assert {name for figure in report.figures for name in figure.peers} == {"right"}
    assert "wrong is left out: the sums by key differ from NumPy's" in report.remarks


def test_a_measurement_that_fails_keeps_the_others_and_fails_the_run(bench_module, monkeypatch, tmp_path):
    run = bench_module("run")

    def failing(report, effort):
        raise RuntimeError("our sums differ")

    def passing(report, effort):
        report.counts.append(FigureCount("sums", "wrong ones", 0, "", 0))

    monkeypatch.setattr(run, "_chosen", lambda *_, **__: [failing, passing])
    done = CliRunner().invoke(run.main, ["regroup", "--quick", "--json", str(tmp_path / "figures.json")])

    assert done.exit_code == 1
    (report,) = json.loads((tmp_path / "figures.json").read_text())["reports"]
    assert report["remarks"] == ["a measurement failed: our sums differ"] and len(report["counts"]) == 1


def test_an_unknown_case_is_reported_with_the_existing_cases():
    command = [sys.executable, str(BENCHES / "run.py"), "host", "--case", "native-3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)

    assert done.returncode == 2
    assert "native-3: expected one of native-2, python-2, native-4, python-4" in done.stderr


def bench(program: str, *words: object) -> None:
    """Run a benchmark program that is not part of `run.py`."""
    command = [sys.executable, str(BENCHES / program), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.exhaustive
def test_the_figures_that_need_no_cluster_are_drawn(tmp_path):
    bench("sparse.py", "charts", "--quick", "--cluster", tmp_path / "none.json", "--out", tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["density.svg", "volumes.svg"]
    assert "4x2" in (tmp_path / "volumes.svg").read_text()


@pytest.mark.exhaustive
def test_sparse_reductions_are_measured_by_threads(tmp_path):
    target = tmp_path / "threads.json"
    bench("sparse.py", "threads", "--quick", "--json", target)

    cases = json.loads(target.read_text())["cases"]
    assert (cases[0]["ranks"], cases[0]["threads"]) == (1, 1)
    assert all(times["configure_s"] > 0 and times["reduce_s"] > 0 for case in cases for times in case["rounds"])


@pytest.mark.exhaustive
@needs_lab
def test_sparse_reductions_of_an_emulated_cluster_are_measured_and_drawn(tmp_path):
    target = tmp_path / "cluster.json"
    bench("sparse.py", "cluster", "--quick", "--data", "twitter", "--json", target)
    bench("sparse.py", "charts", "--quick", "--cluster", target, "--out", tmp_path)

    (case,) = json.loads(target.read_text())["cases"]
    methods = {result["method"]: result for result in case["results"]}
    assert set(methods) == {"designed", "tried", "direct", "gather", "dense"}
    assert all(result["reduce_s"] > 0 and result["sent_bytes"] > 0 for result in methods.values())
    assert methods["direct"]["sent_bytes"] < methods["gather"]["sent_bytes"]
    held_bytes, p = case["rows"] * case["row_bytes"], case["ranks"]
    # Values go down and up once, to all ranks except the sender; counting costs a few bytes.
    assert methods["direct"]["sent_bytes"] == pytest.approx(2 * (p - 1) * held_bytes, rel=0.1)
    drawn = {path.name for path in tmp_path.glob("*.svg")}
    assert drawn == {"density.svg", "volumes.svg", "packets.svg", "times-twitter.svg"}


@pytest.mark.exhaustive
def test_an_iteration_of_pagerank_is_timed_against_scipy_with_equal_ranks(tmp_path):
    report = reports_of("pagerank", tmp_path)

    iterations = [figure for figure in report["figures"] if figure["limit_s"] is not None]
    assert [figure["row"] for figure in iterations] == ["1 × 1", "1 × 2", "2 × 1"]
    assert all("SciPy" in figure["peers"] and figure["limit_s"] > 0 for figure in iterations)
    parts = {figure["row"]: figure["ours"]["median_s"] for figure in report["figures"]}
    assert 0 < parts["2 × 1, computing"] < parts["2 × 1"]
    distances = {count["row"]: count["value"] for count in report["counts"]}
    assert {"1 × 1", "1 × 2", "2 × 1"} <= set(distances)
    assert max(distances.values()) < 1e-8


@pytest.mark.exhaustive
def test_a_regroup_is_timed_against_polars_and_duckdb_with_equal_sums(tmp_path):
    whole, *stages = reports_of("regroup", tmp_path)["figures"]

    assert {"polars", "polars, streaming", "duckdb"} == set(whole["peers"])
    assert 0 < whole["limit_s"] < whole["ours"]["median_s"]
    assert [figure["row"] for figure in stages] == ["local reduction", "sizes", "exchange", "merge"]
    assert all(0 < figure["ours"]["median_s"] < whole["ours"]["median_s"] for figure in stages)


@pytest.mark.exhaustive
@needs_lab
def test_pagerank_scales_over_emulated_hosts_and_is_drawn(tmp_path):
    target = tmp_path / "cluster.json"
    bench("pagerank.py", "cluster", "--quick", "--json", target)
    bench("pagerank.py", "charts", "--cluster", target, "--out", tmp_path)

    found = json.loads(target.read_text())
    assert [each["hosts"] for each in found["scales"]] == [1, 2]
    alone, together = found["scales"]
    assert alone["max_edges"] == found["edges"]
    assert alone["busiest_sent_bytes"] == 0
    # Edges are distributed at random, so shares are nearly equal; at most half of the rows go to the other rank and
    # return.
    assert found["edges"] / 2 <= together["max_edges"] < 1.1 * found["edges"] / 2
    assert 0 < together["busiest_sent_bytes"] < 8 * 1.1 * found["vertices"]
    assert all(0 < each["computing_s"] < each["iteration_s"] for each in found["scales"])
    assert "2 hosts" in (tmp_path / "scaling.svg").read_text()


@pytest.mark.exhaustive
def test_aggregates_of_files_are_timed_against_polars_and_duckdb_with_equal_results(tmp_path):
    figures = reports_of("aggregate", tmp_path)["figures"]

    assert len(figures) == 2
    for figure in figures:
        assert set(figure["peers"]) == {"polars", "duckdb"} and 0 < figure["limit_s"] < figure["ours"]["median_s"]


@pytest.mark.exhaustive
def test_splits_of_csv_are_timed_against_pyarrow_with_equal_counts(tmp_path):
    figures = reports_of("csv", tmp_path)["figures"]

    assert [figure["row"] for figure in figures] == ["splits: 1", "splits: 8"]
    assert all(set(figure["peers"]) == {"pyarrow.csv"} for figure in figures)


@pytest.mark.exhaustive
def test_word_counts_are_timed_against_polars_and_duckdb_with_equal_results(tmp_path):
    figures = reports_of("wordcount", tmp_path)["figures"]

    assert {figure["row"].count("×") for figure in figures} == {1} and len(figures) == 2
    for figure in figures:
        assert set(figure["peers"]) == {"polars", "duckdb"} and figure["limit_s"] > 0


@pytest.mark.exhaustive
def test_the_number_of_python_calls_does_not_depend_on_the_rows(tmp_path):
    bench("calls.py", "--json", tmp_path / "calls.json")
    found = json.loads((tmp_path / "calls.json").read_text())

    assert len(found) == 6
    for case, (few_rows, many_rows) in found.items():
        # Arrays of up to 1 KiB travel inside their pickle, in fewer calls than the arrays of ten times the rows.
        most = 1.1 if case == "map_reduce_step" else 1
        few, many = np.ravel(few_rows), np.ravel(many_rows)
        assert np.all(few > 50) and np.all(many > 50) and np.all(many <= most * few), case


@pytest.mark.exhaustive
def test_components_and_ridge_are_timed_against_scikit_learn_with_equal_results(tmp_path):
    figures = reports_of("linear", tmp_path, "--draw", str(tmp_path))["figures"]

    assert [figure["case"] for figure in figures] == ["600 × 24, 3 components, float32", "600 × 24, ridge, float64"]
    assert all(list(figure["peers"]) == ["scikit-learn"] for figure in figures)
    assert "rank 1" in (tmp_path / "stages.svg").read_text()


@pytest.mark.exhaustive
def test_iterations_of_scaling_and_of_a_layout_are_timed_against_peers_at_equal_stress(tmp_path):
    report = reports_of("mds", tmp_path, "--case", "scaling", "--case", "layout")

    scaling, *layouts = report["figures"]
    assert set(scaling["peers"]) == {"NumPy, float32", "scikit-learn"} and layouts[0]["limit_s"] > 0
    rows = ["an iteration, all cores", "an iteration, processor time"] * 2
    assert [layout["row"] for layout in layouts] == rows and "all pairs" in layouts[2]["peers"]
    assert all(count["value"] <= 1e-4 for count in report["counts"]) and len(report["counts"]) == 2


@pytest.mark.exhaustive
def test_bytes_of_a_scaling_iteration_equal_the_rows_of_other_ranks(tmp_path):
    report = reports_of("mds", tmp_path, "--case", "ranks")

    assert [figure["row"].split(",")[0] for figure in report["figures"]] == ["1 ranks", "3 ranks"] * 2
    assert all(figure["ours"]["median_s"] > 0 for figure in report["figures"])
    alone, plain, weighted_alone, weighted = report["counts"]
    assert alone["value"] == weighted_alone["value"] == 0
    assert plain["target"] / 1.05 <= plain["value"] <= plain["target"] < weighted["value"] <= weighted["target"]


@pytest.mark.exhaustive
def test_annealed_fits_are_compared_with_the_best_of_random_starts(tmp_path):
    report = reports_of("mds", tmp_path, "--case", "annealing")

    assert [count["row"].split(",")[1] for count in report["counts"]] == [" seed 0", " seed 1"]
    assert all(0 < count["value"] < 1.25 * count["target"] for count in report["counts"])
    assert "3 starts of SMACOF: normalized stress 0." in report["remarks"][0]
    letters = ["GATTACA", "GATTTACA", "GCTTACA", "CCCGGGTT", "CCGGGTTA", "CCCGGTTT", "TTTT"]
    (tmp_path / "few.fasta").write_text("".join(f">{each}\n{each}\n" for each in letters))
    of_sequences = reports_of("mds", tmp_path, "--case", "annealing", "--data", str(tmp_path / "few.fasta"))
    assert all(count["case"].startswith("annealing, 7 points") for count in of_sequences["counts"])


@pytest.mark.exhaustive
def test_the_gallery_is_drawn(tmp_path):
    bench("gallery.py", "--quick", "--out", tmp_path)

    page = (BENCHES.parent / "docs" / "gallery.md").read_text()
    drawn = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*.svg")}
    assert set(re.findall(r"\]\((.*?\.svg)\)", page)) == set(drawn)
    assert drawn["mds/digits.svg"].count("<circle") == 100 and drawn["mds/sequences.svg"].count("<circle") == 40
    assert "60 points, 180 lines" in drawn["layout/ring.svg"] and "34 points, 78 lines" in drawn["layout/karate.svg"]


@pytest.mark.exhaustive
def test_an_iteration_of_als_is_compared_with_its_limit_and_with_peers(tmp_path):
    report = reports_of("als", tmp_path)
    figures = report["figures"]

    assert [figure["row"] for figure in figures] == ["implicit, rank 4, 2 workers", "explicit, rank 4, 2 workers"]
    assert all(figure["ours"]["median_s"] > figure["limit_s"] > 0 for figure in figures)
    assert any("implicit: computing" in remark for remark in report["remarks"])
    has_peer = bool(figures[0]["peers"])
    assert has_peer == (not any("implicit is not installed" in remark for remark in report["remarks"]))
    assert [0 < count["value"] < 1 for count in report["counts"]] == [True] * has_peer


@pytest.mark.exhaustive
def test_a_fit_of_als_is_drawn(tmp_path):
    bench("als.py", "--quick", "--out", tmp_path)

    assert "root mean square error" in (tmp_path / "fit.svg").read_text()


@pytest.mark.exhaustive
def test_logistic_regression_is_timed_against_scikit_learn_until_both_are_near_the_optimum(tmp_path):
    figures = reports_of("logistic", tmp_path, "--draw", str(tmp_path / "drawn"))["figures"]

    assert [figure["row"] for figure in figures] == [
        "newton-cg, 2 workers",
        "lbfgs, 2 workers",
        "newton-cg, this process",
        "newton-cg, 2 workers started for it",
    ]
    assert all({"lbfgs", "liblinear", "newton-cg", "saga"} == set(figure["peers"]) for figure in figures)
    drawn = {path.name: path.read_text() for path in (tmp_path / "drawn").iterdir()}
    assert drawn.keys() == {"made up.svg", "made up-seconds.svg"}
    assert "saga" in drawn["made up.svg"] and "rank 1" in drawn["made up-seconds.svg"]


@pytest.mark.exhaustive
def test_an_epoch_of_gradient_descent_is_timed_against_scikit_learn(tmp_path):
    report = reports_of("sgd", tmp_path)

    assert [figure["row"] for figure in report["figures"]] == ["an epoch, this process", "an epoch, 2 workers"]
    assert all(figure["peers"].keys() == {"SGDClassifier"} for figure in report["figures"])
    assert "objective after 2 epochs" in report["remarks"][0]


@pytest.mark.exhaustive
def test_descriptors_match_patches_and_are_equal_for_a_seed(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(BENCHES)
    import descriptors

    def made(name, *options):
        command = [sys.executable, str(BENCHES / "descriptors.py"), str(tmp_path / name), *options]
        subprocess.run(command, check=True, capture_output=True, timeout=250)
        return np.load(tmp_path / name, mmap_mode="r")

    few, more, others = (
        made("few.npy", "--count", "7"),
        made("more.npy", "--count", "1030"),
        made("o.npy", "--seed=1", "--count=7"),
    )
    assert (more.shape, more.dtype) == ((1030, 512), np.uint8)
    np.testing.assert_array_equal(few, more[:7])
    assert not np.array_equal(few, others) and len(np.unique(more, axis=0)) > 1000

    # Noise, so that no gradient is exactly between two directions.
    gray = np.random.default_rng(0).random((90, 70), dtype=np.float32)
    corners = [(row, column) for row in (0, 13, 50) for column in (1, 20)]
    expected = hog_vectors(gray, corners, descriptors.OPTIONS).reshape(-1, 8, 8, 8)
    cells = descriptors.described_cells(gray)
    steps = np.arange(0, 32, 4)
    found = np.array([cells[np.ix_(row + steps, column + steps)] for row, column in corners])
    # A separate patch has no gradients at its edge.
    assert np.abs(found.astype(int) - expected)[:, 1:-1, 1:-1].max() <= 1


@pytest.mark.exhaustive
def test_a_small_run_of_the_program_for_a_million_clusters_resumes(tmp_path):
    def run(*options):
        command = [sys.executable, str(BENCHES / "million.py"), str(tmp_path / "run"), "--quick", *options]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=250).stdout

    first = run("--iterations", "2")
    assert "iteration 1: " in first and "G multiply-adds/s" in first and "125 nodes" in first
    more = run("--iterations", "3", "--json", str(tmp_path / "figures.json"))
    assert "iteration 1: " not in more and "iteration 3: " in more
    report = json.loads((tmp_path / "figures.json").read_text())
    assert report["fit"]["row_count"] == 6_000 and report["used"]["peak_bytes"] > 1 << 20
    assert 0 <= report["fit"]["inertia_gap"] < 0.05


@pytest.mark.exhaustive
@needs_lab
def test_the_model_is_compared_with_emulated_hosts(tmp_path):
    target, table = tmp_path / "figures.json", tmp_path / "table.md"
    words = ["--shapes", "3,2x2:2", "--bytes", "96KB", "--rate", "100mbit", "--json", str(target)]
    command = [sys.executable, "-m", "ripieno", "bench", "model", *words, "--markdown", str(table)]
    command += ["--algorithms", "broadcast=chain,allgather=ring"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    # The deviation on a busy machine means nothing.
    assert done.returncode in (0, 1), done.stderr
    rows = json.loads(target.read_text())["rows"]

    requested = [("3", 96_000), ("2x2:2", 96_000)]
    expected = [(*each, name) for each in requested for name in ("broadcast=chain", "allgather=ring")]
    assert [(row["shape"], row["bytes"], row["algorithm"]) for row in rows] == expected
    assert all(row["simulated_s"] > 96e3 * 8 / 100e6 / 2 and row["measured_s"] for row in rows)
    assert table.read_text().count("broadcast=chain") >= 2 and " of 4 cases within 10%" in done.stdout


def test_a_model_is_judged_by_its_worst_and_its_median_deviation():
    shape = model.RackShape.parse("4x8:2")
    case = BenchCase("broadcast", 4_000_000, "chain")
    row = model.predicted(shape, case, [1.0, 2.0, 3.0], model.modeled(shape.spec("20mbit")))
    assert row.deviation == pytest.approx(row.modeled_s / 2 - 1)

    def found(*deviations):
        rows = [replace(row, modeled_s=2 * (1 + deviation)) for deviation in deviations]
        return model.ModelResults(model.ModelQuery(), rows, (0.5, 0.5))

    assert found(0.03, -0.09, 0.02).is_reached
    assert not found(0.03, -0.11, 0.02).is_reached and not found(0.05, -0.05, 0.01).is_reached
    assert found(0.03, -0.11, 0.02).worst.deviation == pytest.approx(-0.11)
    assert "2 of 3 cases within 10%, median 3.0% (expected 4%), worst -11.0%" in found(0.03, -0.11, 0.02).summary()


def test_a_lab_is_modeled_by_its_rates_and_packets():
    cluster = model.modeled(model.RackShape.parse("4x8:2").spec("20mbit"))
    assert (cluster.nodes, cluster.racks, cluster.uplink_bits_per_s) == (32, 4, 8 * 20e6 / 2)
    # Two frames are sent as one packet of at most 3000 bytes.
    assert (cluster.packet_bytes, cluster.header_bytes) == (2 * 1448, 2 * 66)


@pytest.mark.exhaustive
@needs_lab
def test_strategies_of_broadcast_are_timed_against_their_simulations_and_drawn(tmp_path):
    target, page = tmp_path / "figures.json", tmp_path / "page.html"
    words = ["--hosts", "4", "--bytes", "1MiB", "--repetitions", "1", "--kill", "1@50%", "--slow", "1@0.2"]
    words += ["--unverified", "--degree", "2"]
    command = [
        sys.executable,
        "-m",
        "ripieno",
        "bench",
        "strategies",
        *words,
        "--json",
        str(target),
        "--out",
        str(page),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads(target.read_text())["rows"]

    *rows, by_files = rows
    assert [row["strategy"] for row in rows] == ["chain", "splitstream", "csb", "csb-llcf", "bittorrent"]
    # Files use no link, so that they are neither simulated nor disturbed.
    assert (by_files["strategy"], by_files["simulated"]) == ("shared-file", None) and "killed" not in by_files
    for row in [*rows, by_files]:
        assert len(row["unverified_of_verified"]) == len(row["unverified_cpu_of_verified"]) == 1
    for row in rows:
        assert row["simulated"] > 1 and all(multiple > 0.5 for multiple in row["multiples"])
        assert row["killed"] == [2] and row["slow"] == [1, 0.2]
        assert len(row["killed_of_undisturbed"]) == len(row["slow_of_undisturbed"]) == 1
        assert 0 < row["serialization_shares"][0] < 1
        assert row["cpu_s_per_host"][0] > 0 and row["switches_per_host"][0] > 0
    drawn = page.read_text()
    # Three charts for each of five strategies, and one chart for files.
    assert drawn.count("<svg ") == 16 and "http" not in drawn.replace("http://www.w3.org/2000/svg", "")
    # Each of three hosts receives all 64 blocks and the block before the array.
    chain = ElementTree.fromstring(re.findall(r"<svg .*?</svg>", drawn, re.DOTALL)[0])
    described = [
        title.text for title in chain.iter("{http://www.w3.org/2000/svg}title") if "block " in (title.text or "")
    ]
    assert sorted(int(re.match(r"block (\d+) from rank", each)[1]) for each in described) == sorted([*range(65)] * 3)


@pytest.mark.exhaustive
def test_a_chain_in_rack_order_is_compared_with_a_chain_in_random_order(tmp_path):
    words = ["--hosts", "6", "--racks", "2", "--rate", "50mbit", "--uplink", "10mbit", "--bytes", "512KiB"]
    target = tmp_path / "figures.json"
    command = [sys.executable, "-m", "ripieno", "bench", "strategies", *words, "--strategies", "chain"]
    command += ["--random-order", "--repetitions", "1", "--json", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    assert "≥ 6.0" in done.stdout
    found = json.loads(target.read_text())
    [row] = found["rows"]
    assert (found["racks"], found["uplink"]) == (2, "10mbit")
    # In random order the value crosses uplinks several times, in rack order once.
    assert row["random_simulated"] > 1.5 and row["random_of_undisturbed"][0] > 1.3


@pytest.mark.parametrize(
    "words, message",
    [
        (["--shapes", "8,x"], "shape 'x': expected a number of hosts, or racks and uplinks, such as 4x8:2"),
        (["--shapes", "1"], "shape 1: expected two hosts or more"),
        (["--shapes", "2x4:0.5"], "shape 2x4:0.5: expected two hosts or more, and uplinks of 1:1 or less"),
        (["--algorithms", "broadcast=ring"], "algorithm 'broadcast=ring': expected a collective and its algorithm"),
    ],
)
def test_an_invalid_comparison_is_refused_before_any_host_is_created(words, message, capfd):
    assert main(["bench", "model", *words]) == 2
    assert message in capfd.readouterr().err


@pytest.mark.parametrize(
    "words, message",
    [
        (["--kill", "8@50%"], "kill=8: expected 1 to 7 hosts, because the root must survive"),
        (["--kill", "3"], "--kill='3': expected COUNT@SHARE%, such as 3@50%"),
        (["--slow", "0@0.2"], "slow=0: expected a host, 1 to 7, which is not the root"),
        (["--slow", "5@2"], "slow=5@2.0: expected a share of the rate, between 0 and 1"),
        (["--racks", "3"], "hosts=8, racks=3: expected the same number of hosts in each rack"),
        (["--random-order"], "random_order=True: expected racks=, several"),
        (["--strategies", "flat"], "--strategies='flat': expected some of chain, splitstream, csb, csb-llcf, "),
    ],
)
def test_an_invalid_case_is_refused_before_any_host_is_created(words, message, capfd):
    assert main(["bench", "strategies", *words]) == 2
    assert message in capfd.readouterr().err


@pytest.mark.exhaustive
def test_threads_are_compared_in_all_models_and_the_requested_patterns_and_drawn(tmp_path, monkeypatch):
    for phases in ("PHASES", "EMPTY_PHASES", "SPAWN_PHASES"):
        monkeypatch.setattr(threads, phases, 2)
    target, drawn, folder = tmp_path / "figures.json", tmp_path / "page.html", tmp_path / "drawn"
    words = ["--points", "2000", "--centroids", "5,10", "--iterations", "2", "--repetitions", "1", "--patterns", "UT"]
    results = ["--json", str(target), "--out", str(drawn), "--draw", str(folder)]
    assert main(["bench", "threads", *words, *results]) == 0
    found = json.loads(target.read_text())

    cores = found["machine"]["cores"]
    shapes = [(threads, cores // threads) for threads in range(1, cores + 1) if cores % threads == 0]
    assert [(fit["threads"], fit["processes"], fit["pattern"], fit["model"], fit["size"]) for fit in found["fits"]] == [
        (*shape, pattern, model, count)
        for shape in shapes
        for pattern in "UT"
        for count in (5, 10)
        for model in ("fork-join", "bsp")
    ]
    assert all(fit["median_s"] > 0 and fit["usage"]["voluntary_switches"] >= 0 for fit in found["fits"])
    share = {cost["case"]: cost["median_s"] for cost in found["costs"] if cost["way"] == "one thread's share"}
    assert share and all(seconds > 0 for seconds in share.values())
    assert {cost["way"] for cost in found["costs"]} >= {
        "a team",
        "threads made",
        "fork-join",
        "BSP",
        "std::sync::Barrier",
    }
    text = drawn.read_text()
    charts = re.findall(r"<svg .*?</svg>", text, re.DOTALL)
    assert len(charts) == len({cost["case"] for cost in found["costs"]}) + 2
    assert "https://" not in text and all("<path" in chart for chart in charts)
    names = {each.name for each in folder.iterdir()}
    assert len(names) == len(charts) and names >= {f"phase-{cores}.svg", "kmeans-10.svg"}


@pytest.mark.exhaustive
def test_threads_of_scaling_are_compared_in_both_models(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(threads, "_costs", lambda *_: [])
    target = tmp_path / "figures.json"
    words = ["--algorithm", "mds", "--points", "40", "--iterations", "2", "--repetitions", "1", "--patterns", "U"]
    assert main(["bench", "threads", *words, "--json", str(target)]) == 0
    fits = json.loads(target.read_text())["fits"]

    assert {(fit["model"], fit["size"]) for fit in fits} == {("fork-join", 40), ("bsp", 40)}
    assert all(fit["median_s"] > 0 and fit["usage"]["voluntary_switches"] >= 0 for fit in fits)
    assert "dTLB load misses" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--patterns", "QX"], "patterns='QX': expected letters of QRUTVS"),
        (["--points", "5", "--centroids", "6"], "centroids=[6]: expected 1 to 5, the number of points"),
        (["--centroids", "ten"], "--centroids='ten': expected whole numbers"),
    ],
)
def test_invalid_comparisons_of_threads_are_refused(words, message, capfd):
    assert main(["bench", "threads", *words]) == 2
    assert message in capfd.readouterr().err


@pytest.mark.exhaustive
def test_a_job_with_a_dashboard_is_timed_against_one_without(tmp_path):
    figures = reports_of("dashboard", tmp_path, "--case", "8 ranks")["figures"]

    assert [figure["row"] for figure in figures] == ["watched"] * 2 + ["watched, with a page"] * 2
    assert [list(figure["peers"]) for figure in figures] == [["not watched"], ["without the time of watching"]] * 2
    assert all(figure["ours"]["seconds"] for figure in figures)


def test_the_page_names_the_versions_of_the_engines_of_the_jvm():
    root = Path(__file__).parents[2]
    flink = re.search(
        r"<artifactId>flink-clients</artifactId>\s*<version>(.*?)</version>", read(root, "benches/jvm/pom.xml")
    )
    spark = re.search(r"^pyspark==(\S+)", read(root, "requirements-bench.lock"), re.MULTILINE)
    page = read(root, "docs/benchmarks.md")
    assert f"Spark {spark[1]}. Flink is version {flink[1]}," in " ".join(page.split())


def read(root, name):
    return (root / name).read_text()
