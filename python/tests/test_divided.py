"""Divided centroids: every worker has a share. Results are the same as with whole centroids, for any block size."""

from __future__ import annotations

import errno
import json
import os

import numpy as np
import pytest
import ripieno as rp
from ripieno.algorithms.clock import IterationClock
from ripieno.algorithms.kmeans import divided
from ripieno.algorithms.kmeans.divided_store import whole_centroids
from ripieno.algorithms.kmeans.program import KMeansOptions, fit
from ripieno.cli import main
from ripieno.files import disk
from ripieno.input.matrix import RowsInMemory
from varied import exhaustively

pytestmark = pytest.mark.usefixtures("without_charts")

SEED = 3
K = 300
#: A block size with which a worker's share has many blocks.
SMALL_BLOCK_BYTES = 2000


@pytest.fixture(scope="module")
def rows():
    """Return rows of bytes around two hundred centers."""
    random = np.random.default_rng(SEED)
    places = random.integers(40, 216, size=(200, 12))
    return (places[random.integers(200, size=3000)] + random.integers(-30, 31, size=(3000, 12))).astype(np.uint8)


def start_of(rows):
    """Return centroids with duplicates, so that some clusters stay empty."""
    start = rows[:K].astype(np.float64 if rows.dtype == np.float64 else np.float32)
    start[[7, 100]] = start[3]
    return start


def fitted(comm, points, weights, options, block_bytes):
    """Return the results of a fit with blocks of at most `block_bytes`."""
    before, divided.BLOCK_BYTES = divided.BLOCK_BYTES, block_bytes
    try:
        part = fit(comm, RowsInMemory(points), weights, options)
    finally:
        divided.BLOCK_BYTES = before
    found = part.clustering
    whole = whole_centroids(comm.allgather(found))
    return whole, np.concatenate(comm.allgather(found.labels)), found.inertia, [each[:2] for each in part.history]


@pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
@pytest.mark.parametrize("dtype", [np.uint8, *exhaustively(np.float32), np.float64])
@pytest.mark.parametrize("block_bytes", [SMALL_BLOCK_BYTES, *exhaustively(divided.BLOCK_BYTES)])
def test_an_exact_fit_has_the_bits_of_whole_centroids(world, rows, workers, dtype, block_bytes):
    X, weights = rows.astype(dtype), np.random.default_rng(SEED).integers(0, 4, len(rows)).astype(np.float64)
    options = KMeansOptions(K, "array", [start_of(X)], 5, 0.0)
    results = [
        world(workers).run(fitted, X, weights, KMeansOptions(**vars(options) | {"centroids": where}), block_bytes)[-1]
        for where in ("whole", "divided")
    ]

    (whole, labels, inertia, history), (divided, divided_labels, divided_inertia, divided_history) = results
    np.testing.assert_array_equal(divided_labels, labels)
    np.testing.assert_array_equal(divided, whole)
    assert divided_inertia == inertia
    for actual, expected in zip(divided_history, history, strict=True):
        assert actual == (expected[0], pytest.approx(expected[1], rel=1e-12))


@pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
@pytest.mark.parametrize("block_bytes", [divided.BLOCK_BYTES, SMALL_BLOCK_BYTES])
def test_divided_centroids_produce_the_clusters_of_whole_centroids(world, workers, block_bytes):
    X = np.random.default_rng(SEED).normal(size=(900, 20))
    results = [
        world(workers).run(fitted, X, None, KMeansOptions(90, "array", [X[:90]], 8, 0.0, centroids=where), block_bytes)[
            0
        ]
        for where in ("whole", "divided")
    ]

    np.testing.assert_array_equal(results[1][1], results[0][1])
    np.testing.assert_allclose(results[1][0], results[0][0], rtol=1e-12 if workers > 2 else 0, atol=0)


@pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
@pytest.mark.parametrize("block_bytes", [SMALL_BLOCK_BYTES, *exhaustively(divided.BLOCK_BYTES)])
def test_an_approximate_fit_has_a_small_measured_loss(world, rows, workers, block_bytes):
    options = KMeansOptions(K, "array", [start_of(rows)], 12, 0.0, assign="near", centroids="divided")
    centroids, labels, inertia, history = world(workers).run(fitted, rows, None, options, block_bytes)[0]
    exact = rp.KMeans(K, init=start_of(rows), max_iter=12, tol=0).fit(rows)

    distances = np.square(rows - centroids[labels].astype(np.float64)).sum(axis=1)
    assert inertia == pytest.approx(distances.sum(), rel=1e-9)
    assert inertia < 1.02 * exact.inertia_
    assert np.mean(np.diff([each[0] for each in history]) < 0) == 1


def test_each_centroid_arrives_once_and_its_sums_reach_its_owner(world):
    def program(comm):
        numbers = np.arange(1000.0).reshape(-1, 1) @ np.ones((1, 3))
        before, divided.BLOCK_BYTES = divided.BLOCK_BYTES, 500
        centroids = divided.DividedCentroids.by_number(comm, 1000, lambda a, b: numbers[a:b], 3, np.float64)
        divided.BLOCK_BYTES = before
        assert len(centroids.own) in (1000 // comm.world_size, 1000 // comm.world_size + 1)
        blocks = list(centroids.blocks(IterationClock()))
        assert len(blocks) == centroids.blocks_per_pass
        for block in blocks:
            assert block.centroids.nbytes <= 500 + block.centroids[:1].nbytes
            np.testing.assert_array_equal(block.centroids[:, 0], block.numbers)
            np.testing.assert_array_equal(centroids.places[block.numbers], block.first + np.arange(len(block.numbers)))
        return np.concatenate([block.numbers for block in blocks])

    for workers in (1, 2, 3, 4):
        for numbers in world(workers).run(program):
            np.testing.assert_array_equal(np.sort(numbers), np.arange(1000))


def test_ranks_without_centroids_and_rows_take_part(world):
    points = np.array([[1.0, 2.0], [5.0, 6.0]])
    for assign in ("exact", "near"):
        model = rp.KMeans(
            2, init=points, engine=world(3), options=rp.KMeans.Options(assign=assign, centroids="divided")
        ).fit(points)
        assert list(model.labels_) == [0, 1]
        np.testing.assert_array_equal(model.cluster_centers_, points)


@pytest.mark.parametrize("init", ["random", "k-means++", "k-means||"])
def test_every_init_gives_the_centroids_of_the_undivided_fit(world, rows, init):
    models = [
        rp.KMeans(
            30,
            init=init,
            n_init=1,
            max_iter=1,
            random_state=SEED,
            engine=world(2),
            options=rp.KMeans.Options(centroids=where),
        ).fit(rows)
        for where in ("whole", "divided")
    ]
    np.testing.assert_array_equal(models[1].labels_, models[0].labels_)


@pytest.mark.parametrize("assign", ["near", *exhaustively("exact")])
def test_a_fit_resumes_from_its_checkpoint_with_any_number_of_workers(world, rows, assign, tmp_path):
    options = rp.KMeans.Options(assign=assign, centroids="divided", every=1)
    settings = {"init": start_of(rows), "tol": 0, "random_state": SEED}
    rp.KMeans(K, **settings, max_iter=4, engine=world(2), checkpoint=tmp_path, options=options).fit(rows)
    resumed = rp.KMeans(K, **settings, max_iter=6, engine=world(3), checkpoint=tmp_path, options=options).fit(rows)
    settings["options"] = rp.KMeans.Options(assign=assign, centroids="divided")
    whole = rp.KMeans(K, **settings, max_iter=6, engine=world(2)).fit(rows)

    assert resumed.resumed_from_ == 3
    assert [each.inertia for each in resumed.report_.iterations] == pytest.approx(
        [each.inertia for each in whole.report_.iterations][3:], rel=1e-12 if assign == "exact" else 0.01
    )
    if assign == "exact":
        np.testing.assert_array_equal(resumed.labels_, whole.labels_)
    with pytest.raises(rp.CheckpointError, match="is lower: delete it to start again, or raise it"):
        rp.KMeans(K, **settings, max_iter=3, engine=world(2), checkpoint=tmp_path).fit(rows)
    with pytest.raises(rp.CheckpointError, match="the digest of rows was"):
        rp.KMeans(K, **settings, max_iter=6, engine=world(2), checkpoint=tmp_path).fit(rows[::-1].copy())


def test_several_runs_have_no_checkpoint(rows, tmp_path):
    model = rp.KMeans(5, init="random", n_init=2, checkpoint=tmp_path, options=rp.KMeans.Options(centroids="divided"))
    with pytest.raises(rp.InputError, match="n_init=2: expected 1 for a checkpoint of divided centroids"):
        model.fit(rows)
    with pytest.raises(rp.InputError, match="centroids='halved': expected one of auto, whole, divided"):
        rp.KMeans(5, options=rp.KMeans.Options(centroids="halved")).fit(rows)


def test_centroids_are_divided_if_a_worker_has_too_little_memory(rows, monkeypatch):
    events = []
    for free_bytes, is_divided in ((1 << 30, False), (100_000, True)):
        monkeypatch.setattr("ripieno.host.available_bytes", lambda free_bytes=free_bytes: free_bytes)
        model = rp.KMeans(K, init=start_of(rows), max_iter=2, on_iteration=events.append).fit(rows)
        (reported,) = (event for event in events if event["event"] == "centroids")
        assert reported == {
            "event": "centroids",
            "rank": 0,
            "divided": is_divided,
            "whole_bytes": K * 12 * 20,
            "free_bytes": free_bytes,
        }
        assert len(model.report_.stages) == (2 if is_divided else 0)
        events.clear()


def test_the_command_divides_centroids_and_reports_that(rows, tmp_path, capfd):
    np.save(tmp_path / "rows.npy", rows)
    command = ["kmeans", str(tmp_path / "rows.npy"), "-k", str(K), "--assign", "near", "--max-iter", "2"]
    assert main([*command, "-o", str(tmp_path / "out"), "--centroids", "divided"]) == 0

    report = json.loads((tmp_path / "out" / "model.json").read_text())
    assert report["parameters"]["centroids"] == "divided"
    assert all(each["stages"]["compare_s"] > 0 for each in report["iterations"])
    assert "centroids are divided among the workers" in capfd.readouterr().err


def test_every_is_refused_for_divided_centroids_without_a_folder():
    with pytest.raises(rp.InputError, match="every=2: divided centroids are saved only in a folder"):
        rp.KMeans(3, workers=2, on_failure="shrink", options=rp.KMeans.Options(centroids="divided", every=2)).fit(
            np.eye(8)
        )


def test_every_rank_reports_that_the_disk_of_the_checkpoint_is_full(world, rows, tmp_path):
    def program(comm):
        def full(folder, *_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), folder)

        scratch_array, disk.scratch_array = disk.scratch_array, full
        model = rp.KMeans(
            5, random_state=0, checkpoint=tmp_path, options=rp.KMeans.Options(centroids="divided", every=1)
        )
        try:
            with pytest.raises(rp.CheckpointError, match="the disk is full") as caught:
                model.fit(rows, comm=comm, rows="shared")
        finally:
            disk.scratch_array = scratch_array
        return str(caught.value)

    assert len(set(world(2).run(program))) == 1
