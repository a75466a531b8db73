"""Fits that continue after a worker was killed, from checkpoints in memory or in a folder, with unchanged results."""

from __future__ import annotations

import functools
import itertools
import os
import signal
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
import pytest
import ripieno as rp
from ripieno.algorithms.parameters import with_options
from sklearn.datasets import load_digits
from varied import exhaustively
from watching import gone_within

pytestmark = pytest.mark.usefixtures("estimator_modules")

#: Maximum time for a killed process to end.
GONE_S = 60.0

DIGITS = load_digits().data


def ratings():
    """Return the ratings of 40 items by 60 users."""
    random = np.random.default_rng(0)
    users, items = np.nonzero(random.random((60, 40)) < 0.3)
    return users, items, random.integers(1, 6, len(users)).astype(np.float32)


class StoppedIteration(Exception):
    """Raised by a callback of a fit, to stop it."""


class ClusteringInBlocks(rp.ClusteringCoefficients):
    """Exchanges small blocks, so that a small graph takes several iterations."""

    _block_edges = 8


@dataclass(frozen=True)
class SurvivorFit:
    """An estimator with its data, the attribute to compare, and the number of checkpoints before a worker is killed."""

    kind: type
    parameters: dict[str, Any]
    data: tuple[Any, ...]
    result: str
    #: Whether results are bitwise equal for every number of workers.
    exact: bool = False
    checkpoint_count: int = 3
    #: Key of the number in its events, or None if its events have no numbers.
    event_key: str | None = "iteration"


FITS = {
    "kmeans": SurvivorFit(rp.KMeans, {"n_clusters": 30, "random_state": 1, "tol": 0.0}, (DIGITS,), "cluster_centers_"),
    "mini-batch": SurvivorFit(
        rp.MiniBatchKMeans,
        {"n_clusters": 10, "random_state": 1, "batch_size": 100, "max_iter": 1, "max_no_improvement": None},
        (DIGITS,),
        "cluster_centers_",
        event_key="step",
    ),
    "als": SurvivorFit(
        rp.ALS, {"rank": 4, "max_iter": 12, "random_state": 0}, (ratings(),), "item_factors_", exact=True
    ),
    "mds": SurvivorFit(
        rp.MDS,
        {"metric": "euclidean", "method": "smacof", "max_iter": 20, "tol": 0.0, "random_state": 0, "n_init": 1},
        (DIGITS[:200],),
        "embedding_",
    ),
    "layout": SurvivorFit(
        rp.FruchtermanReingold,
        {"random_state": 0, "max_iter": 20, "tol": 0.0},
        (nx.karate_club_graph(),),
        "positions_",
        exact=True,
    ),
    "logistic": SurvivorFit(rp.LogisticRegression, {"tol": 1e-3}, (DIGITS[:300], load_digits().target[:300]), "coef_"),
    "pagerank": SurvivorFit(rp.PageRank, {"tol": 1e-12}, (nx.karate_club_graph(),), "ranks_"),
    "sgd": SurvivorFit(
        rp.SparseSGD,
        {"random_state": 0, "max_iter": 8, "tol": None},
        (DIGITS[:300], load_digits().target[:300]),
        "coef_",
        event_key="epoch",
    ),
    "pca": SurvivorFit(
        rp.PCA,
        {"n_components": 4, "svd_solver": "randomized", "iterated_power": 7, "random_state": 0},
        (DIGITS,),
        "components_",
        event_key=None,
    ),
    "bfs": SurvivorFit(rp.BFS, {"source": 0}, (nx.path_graph(20),), "distances_", exact=True, event_key=None),
    "shortest-paths": SurvivorFit(
        rp.ShortestPaths, {"source": 0}, (nx.path_graph(20),), "distances_", exact=True, event_key=None
    ),
    "communities": SurvivorFit(rp.CommunityDetection, {}, (nx.path_graph(40),), "labels_", exact=True, event_key=None),
    "clustering": SurvivorFit(
        ClusteringInBlocks, {}, (nx.karate_club_graph(),), "coefficients_", exact=True, event_key=None
    ),
    "components": SurvivorFit(
        rp.ConnectedComponents, {}, (nx.path_graph(2000),), "labels_", exact=True, checkpoint_count=1, event_key=None
    ),
    "diameter": SurvivorFit(
        rp.EffectiveDiameter, {"random_state": 0}, (nx.path_graph(20),), "pairs_", exact=True, event_key=None
    ),
    "spectral": SurvivorFit(
        rp.SpectralEmbedding,
        {"n_components": 1, "random_state": 0, "tol": 1e-9},
        (nx.karate_club_graph(),),
        "embedding_",
        event_key=None,
    ),
    "spectral-clustering": SurvivorFit(
        rp.SpectralClustering,
        {"n_clusters": 2, "random_state": 0, "tol": 1e-9},
        (nx.karate_club_graph(),),
        "labels_",
        exact=True,
        event_key=None,
    ),
}

#: `test_fit_folders.py` tests the state of every fit. These fits keep it in memory, one fit for each kind of state.
CASES = [
    ("kmeans", "shrink", 0),
    ("kmeans", "respawn", 2),
    ("als", "shrink", 0),
    ("mds", "respawn", 2),
    ("pagerank", "shrink", 0),
    ("sgd", "respawn", 0),
    *exhaustively(
        ("kmeans", "shrink", 2),
        ("kmeans", "respawn", 0),
        ("mini-batch", "respawn", 0),
        ("layout", "shrink", 2),
        ("logistic", "shrink", 2),
        ("logistic", "respawn", 0),
        ("pagerank", "respawn", 2),
        ("pca", "respawn", 2),
        ("bfs", "shrink", 0),
        ("components", "shrink", 2),
        ("diameter", "shrink", 0),
        ("spectral", "shrink", 2),
        ("spectral-clustering", "respawn", 0),
    ),
]


def fitted(name, comm=None, **options):
    """Return a fitted estimator."""
    fit = FITS[name]
    return fit.kind(**with_options(fit.kind, {**fit.parameters, **options})).fit(*fit.data, comm=comm)


@pytest.fixture(scope="module")
def undisturbed():
    """Return a function that fits with three workers without a failure."""
    with rp.launch(workers=3, threads=1) as job:
        yield functools.cache(lambda name: fitted(name, engine=job))


@pytest.fixture(scope="module")
def surviving():
    """Provide a job of three workers for each policy. Dead workers are replaced, which is faster than a new job."""
    with ExitStack() as jobs:
        yield {
            policy: jobs.enter_context(rp.launch(workers=3, threads=1, on_failure=policy))
            for policy in ("shrink", "respawn")
        }


def kill_after(comm, count, victim, mark):
    """After `count` checkpoints rank 0 kills a rank, once, and waits for its end before it continues."""
    pids, keep, counts = comm.allgather(os.getpid()), comm.checkpoint, itertools.count(1)

    def checkpoint_and_kill(*args, **options):
        keep(*args, **options)
        if comm.rank == 0 and next(counts) == count and not mark.exists():
            mark.touch()
            os.kill(pids[victim], signal.SIGKILL)
            assert gone_within(GONE_S, [pids[victim]])

    comm.checkpoint = checkpoint_and_kill


def fit_and_kill_rank(comm, name, victim, mark, checkpoint_count=None, **options):
    """Run a fit and kill a rank during it. Return its result, and the events that rank 0 received."""
    fit, replies = FITS[name], []
    kill_after(comm, checkpoint_count or fit.checkpoint_count, victim, mark)
    if fit.event_key is not None:
        options["on_iteration"] = lambda event: replies.append(event.get(fit.event_key))
    model = fitted(name, comm, **options)
    return getattr(model, fit.result), replies, model.resumed_from_, mark.exists()


@pytest.mark.parametrize(("name", "policy", "victim"), CASES)
def test_a_fit_continues_when_a_worker_dies(tmp_path, undisturbed, surviving, name, policy, victim):
    job, fit = surviving[policy], FITS[name]
    if job.workers < 3:
        job.resize(3)
    with pytest.warns(RuntimeWarning, match=rf"rank {victim} on .*restarts"):
        found, received, resumed_from, was_killed = job.run(fit_and_kill_rank, name, victim, tmp_path / "mark")[0]
    assert job.workers == (2 if policy == "shrink" else 3) and was_killed
    expected = getattr(undisturbed(name), fit.result)
    if fit.exact or policy == "respawn":
        assert np.array_equal(found, expected)
    else:
        # Other numbers of workers sum in another order.
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    # If a rank is killed while others store a checkpoint, they have the previous one.
    assert resumed_from >= max(fit.checkpoint_count - 1, 1)
    if fit.event_key is not None:
        # Only the current iteration is repeated.
        assert next(each for each in received if each is not None) == resumed_from + 1


@pytest.mark.parametrize(("name", "checkpoint_count"), [("kmeans", 2), *exhaustively(("pagerank", 2), ("logistic", 1))])
def test_with_every_2_memory_has_the_state_after_each_second_iteration(
    tmp_path, undisturbed, surviving, name, checkpoint_count
):
    job = surviving["respawn"]
    with pytest.warns(RuntimeWarning, match=r"rank 1 on .*restarts"):
        found, _, resumed_from, was_killed = job.run(
            fit_and_kill_rank, name, 1, tmp_path / "mark", checkpoint_count, every=2
        )[0]
    assert was_killed and resumed_from in (2, 2 * checkpoint_count)
    assert np.array_equal(found, getattr(undisturbed(name), FITS[name].result))


def test_each_fit_of_a_program_resumes_from_its_own_state(tmp_path, world, surviving):
    def two_fits(comm):
        rows = np.random.default_rng(0).normal(size=(2, 300, 4))
        models = []
        for number, each in enumerate(rows):
            if number == 1:
                kill_after(comm, 2, 1, tmp_path / "mark")
            models.append(rp.KMeans(20, random_state=0, tol=0.0).fit(each, comm=comm))
        return [(model.inertia_, model.resumed_from_) for model in models]

    # A job that raises stores no checkpoints, so no rank is killed.
    expected = [inertia for inertia, _ in world(3).run(two_fits)[0]]
    job = surviving["shrink"]
    job.resize(3)
    with pytest.warns(RuntimeWarning):
        (first, _), (second, resumed_from) = job.run(two_fits)[0]
    assert [first, second] == pytest.approx(expected, rel=1e-9) and resumed_from >= 1


def run_and_kill_rank(mark, program, comm, *arguments):
    """Run the program of a fit, and kill a worker during it."""
    kill_after(comm, 3, 2, mark)
    return program(comm, *arguments)


def test_a_fit_that_launches_its_workers_continues_on_the_survivors(tmp_path):
    class InterruptedKMeans(rp.KMeans):
        def _run_fit(self, program, *arguments, **options):
            return super()._run_fit(
                functools.partial(run_and_kill_rank, tmp_path / "mark", program), *arguments, **options
            )

    rows = np.random.default_rng(0).normal(size=(3000, 16))
    parameters = {"n_clusters": 30, "random_state": 0, "max_iter": 30, "tol": 0.0, "threads": 1}
    whole = rp.KMeans(**parameters).fit(rows)
    with pytest.warns(RuntimeWarning, match="restarts on 2 ranks"):
        model = InterruptedKMeans(**parameters, workers=3, on_failure="shrink").fit(rows)
    assert model.resumed_from_ >= 2 and len(model.report_.hosts) == 2
    np.testing.assert_allclose(model.cluster_centers_, whole.cluster_centers_, rtol=1e-9)
    assert np.array_equal(model.labels_, whole.labels_)


@pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
def test_kmeans_resumes_from_its_folder_to_the_same_bits(tmp_path, workers, undisturbed):
    def stop(event):
        if event["event"] == "iteration" and event["iteration"] == 5:
            raise StoppedIteration

    with pytest.raises(StoppedIteration):
        fitted("kmeans", workers=2, threads=1, checkpoint=tmp_path, on_iteration=stop)
    model = fitted("kmeans", workers=workers, threads=1, checkpoint=tmp_path)
    whole = undisturbed("kmeans")
    assert model.resumed_from_ >= 1 and model.n_iter_ == whole.n_iter_
    np.testing.assert_allclose(model.cluster_centers_, whole.cluster_centers_, rtol=1e-9)
    assert np.array_equal(model.labels_, whole.labels_)
    assert len(model.report_.iterations) == model.n_iter_ - model.resumed_from_


def test_a_fit_with_several_runs_resumes_within_the_interrupted_run(tmp_path):
    def stop(event):
        if event["event"] == "iteration" and event["run"] == 3 and event["iteration"] == 2:
            raise StoppedIteration

    parameters = {"n_clusters": 5, "init": "random", "n_init": 4, "random_state": 3, "tol": 0.0}
    whole = rp.KMeans(**parameters).fit(DIGITS)
    with pytest.raises(StoppedIteration):
        rp.KMeans(**parameters, checkpoint=tmp_path, on_iteration=stop).fit(DIGITS)
    model = rp.KMeans(**parameters, checkpoint=tmp_path, workers=2).fit(DIGITS)
    assert model.inertia_ == pytest.approx(whole.inertia_, rel=1e-12) and model.n_iter_ == whole.n_iter_
    assert np.array_equal(model.labels_, whole.labels_)


def test_kmeans_refuses_a_checkpoint_of_another_fit(tmp_path):
    fitted("kmeans", checkpoint=tmp_path)
    with pytest.raises(rp.CheckpointError, match="n_clusters was 30 in the checkpoint and is 8 now"):
        rp.KMeans(8, checkpoint=tmp_path, random_state=1, tol=0.0).fit(DIGITS)
    with pytest.raises(rp.CheckpointError, match="the digest of rows was"):
        rp.KMeans(30, checkpoint=tmp_path, random_state=1, tol=0.0).fit(DIGITS[::-1] * 2)
    with pytest.raises(rp.CheckpointError, match=r"max_iter=1 is lower: .* raise it"):
        rp.KMeans(30, checkpoint=tmp_path, random_state=1, tol=0.0, max_iter=1).fit(DIGITS)


def test_on_failure_is_only_accepted_without_a_job_and_with_a_known_policy():
    with rp.launch(workers=1) as job, pytest.raises(rp.InputError, match="has its own setting: leave it out"):
        rp.KMeans(2, engine=job, on_failure="shrink").fit(DIGITS)
    with pytest.raises(rp.InputError, match="on_failure='stop': expected one of raise, shrink, respawn"):
        rp.KMeans(2, on_failure="stop").fit(DIGITS)
    assert rp.KMeans(2, on_failure="respawn", workers=2).fit(DIGITS).report_.row_count == len(DIGITS)
