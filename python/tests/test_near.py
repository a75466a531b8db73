"""Near assignment: a small, measured loss, equal for any number of workers."""

from __future__ import annotations

import json

import numpy as np
import pytest
import ripieno as rp
from ripieno.algorithms.kmeans.near import FIRST_PROBE_COUNT, NearPasses
from ripieno.algorithms.kmeans.rows import WeightedRows
from ripieno.cli import main
from varied import exhaustively

pytestmark = pytest.mark.usefixtures("without_charts")

SEED = 3
K = 300


@pytest.fixture(scope="module")
def rows():
    """Return rows of bytes around two hundred centers."""
    random = np.random.default_rng(SEED)
    centers = random.integers(40, 216, size=(200, 12))
    return (centers[random.integers(200, size=4000)] + random.integers(-30, 31, size=(4000, 12))).astype(np.uint8)


def near(rows, *, max_iter=12, options=None, **parameters):
    start = rows[:K].astype(np.float32)
    options = rp.KMeans.Options(assign="near", **(options or {}))
    return rp.KMeans(K, init=start, max_iter=max_iter, random_state=SEED, options=options, **parameters)


@pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
@pytest.mark.parametrize("dtype", [np.uint8, *exhaustively(np.float64)])
def test_an_approximate_fit_has_a_small_measured_loss(world, rows, workers, dtype):
    X, weights = rows.astype(dtype), np.random.default_rng(SEED).random(len(rows)) + 0.5
    events: list[dict] = []
    model = near(X, engine=world(workers), on_iteration=events.append).fit(X, sample_weight=weights)
    exact = rp.KMeans(K, init=X[:K], max_iter=12).fit(X, sample_weight=weights)

    distances = np.square(X.astype(np.float64) - model.cluster_centers_[model.labels_].astype(np.float64)).sum(axis=1)
    assert model.inertia_ == pytest.approx(distances @ weights, rel=1e-9)
    assert model.inertia_ < 1.02 * exact.inertia_
    # The sample is a quarter of the rows.
    exact_inertia = -model.score(X, sample_weight=weights)
    assert abs(model.inertia_ / exact_inertia - 1 - model.inertia_gap_) < 0.005
    assert abs(np.mean(model.predict(X) == model.labels_) - model.assignment_recall_) < 0.05
    assert 0 <= model.inertia_gap_ < 0.01 and model.assignment_recall_ > 0.9

    iterations = [event for event in events if event["event"] == "iteration"]
    assert [(event["recall"], event["gap"]) for event in iterations] == [
        (each.recall, each.gap) for each in model.report_.iterations
    ]
    assert all(event["compared"] < 0.7 for event in iterations)
    of_one_rank = near(X).fit(X, sample_weight=weights)
    np.testing.assert_array_equal(model.labels_, of_one_rank.labels_)


@pytest.mark.parametrize("workers", [1, 3])
def test_ranks_without_rows_participate(world, workers):
    points = np.array([[1.0, 2.0], [5.0, 6.0]])
    model = rp.KMeans(2, init=points, engine=world(workers), options=rp.KMeans.Options(assign="near")).fit(points)

    assert list(model.labels_) == [0, 1]
    assert (model.assignment_recall_, model.inertia_gap_) == (1.0, 0.0)


def test_an_exact_fit_has_no_loss(rows):
    model = rp.KMeans(5, random_state=SEED).fit(rows)

    assert (model.assignment_recall_, model.inertia_gap_) == (1.0, 0.0)
    with pytest.raises(rp.InputError, match="assign='nearly': expected one of exact, near"):
        rp.KMeans(5, options=rp.KMeans.Options(assign="nearly")).fit(rows)


def test_the_allowed_loss_decides_the_number_of_probed_groups(rows):
    passes = NearPasses(WeightedRows(rows, None, 0, len(rows)), 10_000, threads=1)
    first = FIRST_PROBE_COUNT / 400
    # The first pass has no previous centroids, so its loss does not predict later losses.
    for sums, expected in [
        ((512.0, 110.0, 100.0), first),
        ((512.0, 110.0, 100.0), 2 * first),
        ((1000.0, 100.2, 100.0), 2 * first),
        ((1024.0, 100.0, 100.0), first),
    ]:
        loss = passes.measured(np.array(sums))
        assert (loss.recall, loss.gap) == (sums[0] / 1024, pytest.approx(sums[1] / sums[2] - 1))
        assert passes.compared == expected


@pytest.mark.parametrize("centroids", ["whole", "divided"])
def test_a_resumed_near_fit_probes_as_many_groups_as_before(rows, tmp_path, centroids):
    events = []

    def compared(**parameters):
        events.clear()
        options = {"centroids": centroids, "every": 1}
        near(rows, options=options, on_iteration=events.append, checkpoint=tmp_path, **parameters).fit(rows)
        return [each["compared"] for each in events if each["event"] == "iteration"]

    first = compared(tol=0, max_iter=5)
    resumed = compared(tol=0, max_iter=6)

    assert first[-1] < first[1], "the number of groups adapts"
    assert resumed[0] == first[-1]


def test_a_near_fit_resumes_from_its_checkpoint(rows, tmp_path):
    near(rows, checkpoint=tmp_path).set_params(max_iter=3).fit(rows)
    model = near(rows, checkpoint=tmp_path).fit(rows)

    assert model.resumed_from_ >= 1
    assert model.inertia_ == pytest.approx(near(rows).fit(rows).inertia_, rel=0.01)
    with pytest.raises(rp.CheckpointError, match="assign was 'near' in the checkpoint and is 'exact' now"):
        near(rows, checkpoint=tmp_path).set_params(options__assign="exact").fit(rows)


def test_the_command_reports_the_loss(rows, tmp_path, capfd):
    np.save(tmp_path / "rows.npy", rows)
    command = ["kmeans", str(tmp_path / "rows.npy"), "-k", str(K), "--assign", "near", "--max-iter", "3", "-q"]
    assert main([*command, "-o", str(tmp_path / "out")]) == 0

    report = json.loads((tmp_path / "out" / "model.json").read_text())
    assert report["parameters"]["assign"] == "near"
    assert 0.9 < report["assignment_recall"] <= 1 and 0 <= report["inertia_gap"] < 0.02
    assert all(0.5 < each["recall"] <= 1 for each in report["iterations"])
    assert "% more than with exact assignment" in capfd.readouterr().err
    assert "inertia gap" in (tmp_path / "out" / "report.html").read_text()
