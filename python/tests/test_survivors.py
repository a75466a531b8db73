"""Fits that go on when workers die: to the same bits as fits of which nobody dies, from memory or a folder."""

from __future__ import annotations

import os
import signal
import subprocess

import networkx as nx
import numpy as np
import pytest
import ripieno as rp
from sklearn.datasets import load_digits

DIGITS = load_digits().data


def ratings():
    """What 60 users say of 40 items."""
    random = np.random.default_rng(0)
    users, items = np.nonzero(random.random((60, 40)) < 0.3)
    return users, items, random.integers(1, 6, len(users)).astype(np.float32)


FITS = {
    "kmeans": (rp.KMeans, {"n_clusters": 30, "random_state": 1, "tol": 0.0}, DIGITS, "cluster_centers_"),
    "als": (rp.ALS, {"rank": 4, "max_iter": 20, "random_state": 0}, ratings(), "item_factors_"),
    "mds": (
        rp.MDS,
        {"metric": "euclidean", "method": "smacof", "max_iter": 40, "eps": 0.0, "random_state": 0, "n_init": 1},
        DIGITS[:200],
        "embedding_",
    ),
    "layout": (
        rp.FruchtermanReingold,
        {"random_state": 0, "iterations": 40, "threshold": 0.0},
        nx.karate_club_graph(),
        "positions_",
    ),
    "logistic": (rp.LogisticRegression, {"tol": 1e-3}, (DIGITS, load_digits().target), "coef_"),
    "pagerank": (rp.PageRank, {"tol": 1e-12}, nx.karate_club_graph(), "ranks_"),
}


def fitted(name, comm=None, **options):
    """An estimator that has been fitted."""
    kind, parameters, data, _ = FITS[name]
    model = kind(**parameters, **options)
    return model.fit(*data, comm=comm) if name == "logistic" else model.fit(data, comm=comm)


@pytest.fixture(scope="module")
def undisturbed():
    """Each fit by three workers, of which nobody dies."""
    with rp.launch(workers=3, threads=1) as job:
        return {name: fitted(name, engine=job) for name in FITS}


def fit_and_strike(comm, name, victim, mark):
    """A fit in whose fourth iteration rank 0 kills a rank; what it gives, and what rank 0 has seen of iterations."""
    pids = comm.allgather(os.getpid())
    seen = []

    def strike(event):
        if event["event"] == "iteration":
            seen.append(event["iteration"])
            if event["iteration"] == 4 and not mark.exists():
                mark.touch()
                os.kill(pids[victim], signal.SIGKILL)

    model = fitted(name, comm, on_iteration=strike)
    return getattr(model, FITS[name][-1]), seen, getattr(model, "resumed_from_", None)


@pytest.mark.parametrize(("policy", "victim"), [("shrink", 0), ("shrink", 2), ("respawn", 0)])
@pytest.mark.parametrize("name", FITS)
def test_a_fit_goes_on_when_a_worker_dies(tmp_path, undisturbed, name, policy, victim):
    with rp.launch(workers=3, threads=1, on_failure=policy) as job:
        with pytest.warns(RuntimeWarning, match="begins again"):
            found, seen, resumed_from = job.run(fit_and_strike, name, victim, tmp_path / "mark")[0]
        assert list(job.lost) == [victim]
    expected = getattr(undisturbed[name], FITS[name][-1])
    if policy == "respawn" or name == "layout":
        assert np.array_equal(found, expected)
    else:
        # Another number of workers adds up in another order.
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    if name in ("kmeans", "als", "mds", "layout"):
        # Nothing but the iteration at hand is done again; who is killed by another goes on for a moment.
        assert seen[0] == resumed_from + 1 >= 4


def test_a_fit_with_workers_of_its_own_goes_on_too():
    rows = np.random.default_rng(0).normal(size=(40_000, 16))
    parameters = {"n_clusters": 100, "random_state": 0, "max_iter": 30, "tol": 0.0, "threads": 1}
    whole = rp.KMeans(**parameters, workers=3).fit(rows)
    struck = []

    def strike(event):
        if event["event"] == "iteration" and event["iteration"] == 4 and not struck:
            struck.extend(children())
            os.kill(struck[-1], signal.SIGKILL)

    with pytest.warns(RuntimeWarning, match="begins again on 2 ranks"):
        model = rp.KMeans(**parameters, workers=3, on_failure="shrink", on_iteration=strike).fit(rows)
    assert model.resumed_from_ >= 3 and len(model.report_.hosts) == 2
    np.testing.assert_allclose(model.cluster_centers_, whole.cluster_centers_, rtol=1e-9)
    assert np.array_equal(model.labels_, whole.labels_)


def children():
    """The processes that this one has started, and that live."""
    found = subprocess.run(["ps", "--ppid", str(os.getpid()), "-o", "pid=,args="], capture_output=True, text=True)
    lines = (line.split(None, 1) for line in found.stdout.splitlines())
    return [int(pid) for pid, command in lines if "ripieno.launch.job.worker" in command]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_kmeans_goes_on_from_its_folder_to_the_same_bits(tmp_path, workers, undisturbed):
    class Stop(Exception):
        pass

    def stop(event):
        if event["event"] == "iteration" and event["iteration"] == 5:
            raise Stop

    with pytest.raises(Stop):
        fitted("kmeans", workers=2, threads=1, checkpoint=tmp_path, on_iteration=stop)
    model = fitted("kmeans", workers=workers, threads=1, checkpoint=tmp_path)
    whole = undisturbed["kmeans"]
    assert model.resumed_from_ >= 1 and model.n_iter_ == whole.n_iter_
    np.testing.assert_allclose(model.cluster_centers_, whole.cluster_centers_, rtol=1e-9)
    assert np.array_equal(model.labels_, whole.labels_)
    assert len(model.report_.iterations) == model.n_iter_ - model.resumed_from_


def test_several_runs_go_on_within_the_run_that_was_left(tmp_path):
    class Stop(Exception):
        pass

    def stop(event):
        if event["event"] == "iteration" and event["run"] == 3 and event["iteration"] == 2:
            raise Stop

    parameters = {"n_clusters": 5, "init": "random", "n_init": 4, "random_state": 3, "tol": 0.0}
    whole = rp.KMeans(**parameters).fit(DIGITS)
    with pytest.raises(Stop):
        rp.KMeans(**parameters, checkpoint=tmp_path, on_iteration=stop).fit(DIGITS)
    model = rp.KMeans(**parameters, checkpoint=tmp_path, workers=2).fit(DIGITS)
    assert model.inertia_ == pytest.approx(whole.inertia_, rel=1e-12) and model.n_iter_ == whole.n_iter_
    assert np.array_equal(model.labels_, whole.labels_)


def test_kmeans_refuses_a_checkpoint_of_another_fit(tmp_path):
    fitted("kmeans", checkpoint=tmp_path)
    with pytest.raises(rp.CheckpointError, match="n_clusters was 30 there and is 8 here"):
        rp.KMeans(8, checkpoint=tmp_path, random_state=1, tol=0.0).fit(DIGITS)
    with pytest.raises(rp.CheckpointError, match="its rows had the inertia"):
        rp.KMeans(30, checkpoint=tmp_path, random_state=1, tol=0.0).fit(DIGITS[::-1] * 2)
    with pytest.raises(rp.CheckpointError, match=r"max_iter=1 ends before: .* allow more"):
        rp.KMeans(30, checkpoint=tmp_path, random_state=1, tol=0.0, max_iter=1).fit(DIGITS)


def test_on_failure_is_the_jobs_where_there_is_one():
    with rp.launch(workers=1) as job, pytest.raises(rp.InputError, match="has been told what to do: leave it out"):
        rp.KMeans(2, engine=job, on_failure="shrink").fit(DIGITS)
    with pytest.raises(rp.InputError, match="on_failure='stop': expected one of raise, shrink, respawn"):
        rp.KMeans(2, on_failure="stop").fit(DIGITS)
    assert rp.KMeans(2, on_failure="respawn", workers=2).fit(DIGITS).report_.row_count == len(DIGITS)
