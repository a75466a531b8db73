"""Fits that go on when workers die: to the same bits as fits of which nobody dies, from memory or a folder."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from functools import partial

import networkx as nx
import numpy as np
import pytest
import ripieno as rp
from sklearn.datasets import load_digits
from watching import gone_within

#: The iteration after which a worker dies; what is in its links may carry the others through one more.
STRUCK = 4
#: A process that is killed has ended by then.
GONE_S = 60.0

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
        models = {name: fitted(name, engine=job) for name in FITS}
    for name, model in models.items():
        assert model.n_iter_ > STRUCK + 3, f"{name} is over before a death could be met"
    return models


def struck(pids, victim, mark):
    """What rank 0 does with its events: after an iteration it kills a rank once, and sees it end before it goes on."""
    seen = []

    def strike(event):
        if event["event"] == "iteration":
            seen.append(event["iteration"])
            if event["iteration"] == STRUCK and not mark.exists():
                mark.touch()
                os.kill(pids[victim], signal.SIGKILL)
                assert gone_within(GONE_S, [pids[victim]])

    return seen, strike


def fit_and_strike(comm, name, victim, mark):
    """A fit within which a rank is killed; what it gives, and what rank 0 has seen of iterations."""
    seen, strike = struck(comm.allgather(os.getpid()), victim, mark)
    model = fitted(name, comm, on_iteration=strike)
    return getattr(model, FITS[name][-1]), seen, getattr(model, "resumed_from_", None)


@pytest.fixture(scope="module")
def surviving():
    """A job of three workers for each policy; what dies of it is replaced, which takes less than another job."""
    with ExitStack() as jobs:
        yield {
            policy: jobs.enter_context(rp.launch(workers=3, threads=1, on_failure=policy))
            for policy in ("shrink", "respawn")
        }


def policies_and_victims(names):
    """Of each fit another policy and victim than of the one before; of the first all."""
    cases = [("shrink", 0), ("respawn", 2), ("shrink", 2), ("respawn", 0)]
    first, *others = names
    return [(first, *case) for case in cases] + [(name, *cases[at % 4]) for at, name in enumerate(others)]


@pytest.mark.parametrize(("name", "policy", "victim"), policies_and_victims(FITS))
def test_a_fit_goes_on_when_a_worker_dies(tmp_path, undisturbed, surviving, name, policy, victim):
    job = surviving[policy]
    if job.workers < 3:
        job.resize(3)
    with pytest.warns(RuntimeWarning, match=rf"rank {victim} on .*begins again"):
        found, seen, resumed_from = job.run(fit_and_strike, name, victim, tmp_path / "mark")[0]
    assert job.workers == (2 if policy == "shrink" else 3)
    expected = getattr(undisturbed[name], FITS[name][-1])
    if policy == "respawn" or name == "layout":
        assert np.array_equal(found, expected)
    else:
        # Another number of workers adds up in another order.
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    if name in ("kmeans", "als", "mds", "layout"):
        # Nothing but the iteration at hand is done again; who is killed by another goes on for a moment.
        assert seen[0] == resumed_from + 1 >= STRUCK


def with_a_strike(mark, program, comm, *arguments):
    """A fit's program, of whose workers one dies: its last argument is the function that gets events."""
    _, strike = struck(comm.allgather(os.getpid()), 2, mark)
    return program(comm, *arguments[:-1], strike)


def test_a_fit_with_workers_of_its_own_goes_on_too(tmp_path):
    class Struck(rp.KMeans):
        def _run_fit(self, program, *arguments, comm):
            return super()._run_fit(partial(with_a_strike, tmp_path / "mark", program), *arguments, comm=comm)

    rows = np.random.default_rng(0).normal(size=(3000, 16))
    parameters = {"n_clusters": 30, "random_state": 0, "max_iter": 30, "tol": 0.0, "threads": 1, "workers": 3}
    whole = rp.KMeans(**parameters).fit(rows)
    assert whole.n_iter_ > STRUCK + 3
    with pytest.warns(RuntimeWarning, match="begins again on 2 ranks"):
        model = Struck(**parameters, on_failure="shrink").fit(rows)
    assert model.resumed_from_ >= STRUCK - 1 and len(model.report_.hosts) == 2
    np.testing.assert_allclose(model.cluster_centers_, whole.cluster_centers_, rtol=1e-9)
    assert np.array_equal(model.labels_, whole.labels_)


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
