"""Figures of papers that are measured on this machine."""

from __future__ import annotations

import json

import pytest
from ripieno.bench import paper_figures, shuffle_rank, sparse_rank
from ripieno.cli import main
from ripieno.errors import LabError
from ripieno.simulation.reproduction import Kind


def test_a_measured_figure_has_claims_a_scale_and_a_machine(capsys):
    assert main(["reproduce", "kylix-figure-2", "--json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert found["kind"] == Kind.MEASURED.value and found["claims"]
    assert "cores" in found["inputs"][0]["source"]
    shares = [row["value"] for row in found["rows"]]
    assert max(shares) == 1 and shares[0] == min(shares) and all(row["printed"] is None for row in found["rows"])


def test_arrays_need_no_serialization_before_a_broadcast():
    seconds = {row.label: row.value for row in paper_figures.twister_figure_7().rows}

    assert seconds["array of bytes, serialization"] < 0.01 * seconds["Python floats, serialization"]


def shuffled(comm, dtype, *, local_reduction):
    case = shuffle_rank.ShuffleCase(dtype, task_count=4, centroid_count=300, dimension_count=256, repetitions=1)
    return shuffle_rank.shuffle(comm, case.tasks(comm.rank), local_reduction=local_reduction)


def test_local_reduction_sends_one_row_of_each_centroid_per_rank_and_float32_as_float64(world):
    sent = {
        (dtype, reduced): world(2).run(shuffled, dtype, local_reduction=reduced)[0]["sent_bytes"]
        for dtype in ("float64", "float32")
        for reduced in (True, False)
    }
    assert sent["float64", True] / sent["float64", False] == pytest.approx(1 / 4, rel=0.05)
    assert sent["float32", True] / sent["float32", False] == pytest.approx(1 / 2, rel=0.1)


def test_sparse_reductions_by_three_networks_are_timed(world):
    case = sparse_rank.SparseCase(features=2000, density=0.2, exponent=1.1, repetitions=1)
    found = world(2).run(sparse_rank.measured, case, 0.1)[0]

    assert found["networks"].keys() == {"direct", "designed", "binary"} and found["alpha_s"] >= 0
    assert all(each["degrees"] == "2" and each["seconds"] > 0 for each in found["networks"].values())
    assert len({each["sent_bytes"] for each in found["networks"].values()}) == 1


def test_measured_figures_that_need_hosts_are_refused_before_the_others_run(monkeypatch, capsys):
    monkeypatch.setattr(paper_figures, "missing_requirement", lambda: "not root")
    with pytest.raises(LabError, match="twister-figure-8 is measured on emulated hosts: not root"):
        paper_figures.measure("twister-figure-8")
    assert main(["reproduce", "all", "--measured"]) == 1
    assert "is measured on emulated hosts: not root" in capsys.readouterr().err
