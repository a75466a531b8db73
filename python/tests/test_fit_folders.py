"""Killed iterative fits resume from their folder with the same bits, and on other numbers of workers."""

from __future__ import annotations

import functools
import os
import re
import shutil
import signal
from contextlib import ExitStack, closing
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import ripieno as rp
from ripieno.algorithms.parameters import compared_parameters, parameters_of
from ripieno.checkpoints import iterations
from ripieno.checkpoints.folder import FILE, Checkpoints
from ripieno.comm.communicator import Communicator
from test_survivors import FITS, ClusteringInBlocks, fitted
from varied import exhaustively

pytestmark = pytest.mark.usefixtures("estimator_modules")

EVERY = 2
#: This estimator has nearly the same result with as many workers; all others have the same bits.
NEAR = ("spectral",)
#: The result of this estimator depends on the placement of rows on workers.
OTHERS = ("sgd",)
#: Fits with few iterations, and the iteration after which they are killed; all others after an odd number.
EARLY = {"logistic": 2, "components": 2}
#: A worker with all edges needs no round for the components.
ALL = [(name, workers) for name in FITS for workers in (1, 2, 3) if (name, workers) != ("components", 1)]
#: A fit of one worker ends faster than the workers of a job start again.
QUICK = [("components", 2), ("kmeans", 2), *(each for each in ALL if each[1] == 1)]
CASES = [*QUICK, *exhaustively(*(each for each in ALL if each not in QUICK))]


class StopFit(BaseException):
    """Ends a fit in the calling process, as a kill ends a worker."""


@pytest.fixture(scope="module")
def job_of():
    """Provide jobs that outlive killed fits."""
    with ExitStack() as jobs:
        yield functools.cache(lambda workers: jobs.enter_context(rp.launch(workers=workers, threads=1)))


def killed(comm, name, folder, iteration, every=EVERY):
    """Run a fit with rank 0 killed after `iteration` iterations, before the next checkpoint."""
    is_due = iterations.IterationCheckpoint.is_due

    def is_due_or_dies(self, number, *, last=False):
        if comm.rank == 0 and number > iteration:
            if comm.world_size == 1:
                raise StopFit
            os.kill(os.getpid(), signal.SIGKILL)
        return is_due(self, number, last=last)

    iterations.IterationCheckpoint.is_due = is_due_or_dies
    try:
        fitted(name, comm=comm, checkpoint=folder, every=every)
    finally:
        iterations.IterationCheckpoint.is_due = is_due


@pytest.mark.parametrize(("name", "workers"), CASES)
def test_a_fit_that_was_killed_resumes_from_the_last_multiple_of_every(tmp_path, name, workers, job_of):
    fit, folder, job, iteration = FITS[name], tmp_path / "kept", job_of(workers), EARLY.get(name, 5)
    with pytest.raises(StopFit if workers == 1 else rp.RankFailed):
        job.run(killed, name, folder, iteration)
    shutil.copytree(folder, tmp_path / "copy")

    whole, same, other = (
        fitted(name, engine=job),
        fitted(name, engine=job, checkpoint=folder),
        fitted(name, engine=job_of(workers % 3 + 1), checkpoint=tmp_path / "copy"),
    )

    expected, found, by_others = (getattr(each, fit.result) for each in (whole, same, other))
    assert same.resumed_from_ == other.resumed_from_ == iteration // EVERY * EVERY
    if name in NEAR:
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    else:
        assert np.array_equal(found, expected)
    if name not in OTHERS:
        np.testing.assert_allclose(by_others, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", FITS)
def test_a_fit_resumes_only_with_the_same_data_and_parameters(tmp_path, name, job_of):
    kind, data, common = FITS[name].kind, FITS[name].data, {"engine": job_of(2), "checkpoint": tmp_path}
    common["options"] = kind.Options(every=1)
    parameters = {key: value for key, value in FITS[name].parameters.items() if key != "random_state"}

    def other(value):
        if isinstance(value, nx.Graph):
            changed = nx.Graph(value)
            changed.add_edge(0, 9)
            return changed
        changed = np.array(value, dtype=np.float64)
        changed[0] += 1
        return changed

    others = tuple(map(other, data[0])) if name == "als" else other(data[0])
    # Without a seed, the saved state determines where the later fit resumes.
    kind(**parameters, **common).fit(*data)
    assert kind(**parameters, **common).fit(*data).resumed_from_ >= 1
    with pytest.raises(rp.CheckpointError, match=r"the (digest|number) of .* was .* and is .* now"):
        kind(**parameters, **common).fit(others, *data[1:])
    with closing(Checkpoints(tmp_path, next(tmp_path.iterdir()).name, next(tmp_path.iterdir()).name)) as kept:
        facts = kept.load().state
    assert set(compared_parameters(kind)) <= facts.keys()
    # The placement of the centroids is compared, even if it is chosen automatically.
    may_change = {each for each, declared in parameters_of(kind).items() if declared.may_change}
    assert may_change & facts.keys() <= {"centroids"}


@pytest.mark.parametrize(
    ("name", "other", "says"),
    [
        ("pagerank", {"damping": 0.5}, "damping was 0.85 in the checkpoint and is 0.5 now"),
        ("kmeans", {"random_state": 2}, "random_state was 1 in the checkpoint and is 2 now"),
        ("pca", {"random_state": None}, "random_state was 0 in the checkpoint and is None now"),
        ("layout", {"init": {0: [1, 2]}}, "init was 'random' in the checkpoint and is '{0: .1, 2.}, digest .*' now"),
    ],
)
def test_a_fit_refuses_the_folder_of_a_different_fit(tmp_path, name, other, says):
    fitted(name, checkpoint=tmp_path)
    # Each refusal releases the folder.
    for _ in range(2):
        with pytest.raises(rp.CheckpointError, match=says):
            FITS[name].kind(**FITS[name].parameters | other, checkpoint=tmp_path).fit(*FITS[name].data)


def test_the_page_lists_the_parameters_that_may_differ():
    page = (Path(__file__).parents[2] / "docs" / "failures.md").read_text()
    table = re.findall(r"^\| (`rp\..*?) \| (.*) \|$", page.partition("#### Parameters that may")[2], re.MULTILINE)
    listed = {
        name: set(re.findall(r"`(\w+)`", parameters))
        for estimators, parameters in table
        for name in re.findall(r"`rp\.(\w+)`", estimators)
    }
    kinds = {fit.kind.__name__: fit.kind for fit in FITS.values()} | {"ClusteringCoefficients": ClusteringInBlocks}
    assert listed == {
        name: {each for each, declared in parameters_of(kinds[name]).items() if declared.may_change} for name in listed
    }
    assert kinds.keys() - listed.keys() == {"ClusteringInBlocks"}


def test_a_max_iter_below_the_iterations_of_the_checkpoint_is_refused(tmp_path, job_of):
    with pytest.raises(rp.RankFailed):
        job_of(2).run(killed, "pagerank", tmp_path, 5)
    with pytest.raises(rp.CheckpointError, match=r"after \d+ iterations, and max_iter=2 is lower"):
        rp.PageRank(tol=1e-12, max_iter=2, checkpoint=tmp_path).fit(*FITS["pagerank"].data)


@pytest.mark.parametrize("every", [0, -1, 1.5, True, "2"])
def test_an_invalid_every_is_reported(tmp_path, every):
    with pytest.raises(rp.InputError, match=r"every=.*: expected a whole number >= 1, or None"):
        fitted("bfs", checkpoint=tmp_path, every=every)


def test_every_is_refused_if_checkpoints_have_no_place():
    with pytest.raises(
        rp.InputError,
        match="every=5: there is nowhere to save checkpoints: expected a folder, checkpoint=, or local workers",
    ):
        fitted("kmeans", every=5)


def test_without_every_a_folder_is_written_once_a_second_at_most(tmp_path, monkeypatch):
    monkeypatch.setattr(iterations, "PERIOD_S", 1e9)
    numbers = []
    save = iterations.Checkpoints.save
    monkeypatch.setattr(
        iterations.Checkpoints,
        "save",
        lambda self, contents: (numbers.append(contents.iteration), save(self, contents))[-1],
    )
    fitted("kmeans", checkpoint=tmp_path / "seldom")
    seldom, numbers[:] = list(numbers), []
    model = fitted("kmeans", checkpoint=tmp_path / "often", every=3)
    assert seldom == [1] and numbers == list(range(3, model.n_iter_, 3))


def test_a_fit_with_a_torn_checkpoint_resumes_from_the_one_before(tmp_path):
    fitted("kmeans", checkpoint=tmp_path, every=3, keep=2)
    kept = tmp_path / "kmeans" / FILE
    kept.write_bytes(kept.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="checkpoint is torn: .* an older one is used"):
        again = fitted("kmeans", checkpoint=tmp_path, every=3, keep=2)
    assert again.resumed_from_ == (again.n_iter_ - 1) // 3 * 3 - 3
    assert np.array_equal(again.cluster_centers_, fitted("kmeans").cluster_centers_)


def test_runs_from_several_starts_are_counted_together(tmp_path, monkeypatch):
    numbers = []
    monkeypatch.setattr(
        iterations.Checkpoints,
        "save",
        lambda self, contents: numbers.append((contents.result[0]["run"], contents.iteration)),
    )
    parameters = {"n_clusters": 5, "init": "random", "n_init": 4, "random_state": 3, "tol": 0.0, "max_iter": 4}
    rp.KMeans(**parameters, checkpoint=tmp_path, options=rp.KMeans.Options(every=5)).fit(*FITS["kmeans"].data)
    # Each run has more iterations after three.
    assert numbers == [(1, 5), (3, 10)]


def test_every_rank_reports_the_checkpoint_of_a_different_fit(tmp_path, job_of):
    def program(comm):
        with pytest.raises(rp.CheckpointError, match=r"damping was 0\.85 in the checkpoint and is 0\.5 now") as caught:
            rp.PageRank(0.5, checkpoint=tmp_path).fit(*FITS["pagerank"].data, comm=comm)
        return str(caught.value)

    fitted("pagerank", checkpoint=tmp_path)
    assert len(set(job_of(2).run(program))) == 1


@pytest.mark.parametrize("name", ["pagerank", "logistic"])
def test_every_rank_reports_that_rank_0_cannot_save(tmp_path, name, job_of):
    def program(comm):
        def fail(self, contents):
            raise rp.CheckpointError("the disk is full")

        save, iterations.Checkpoints.save = iterations.Checkpoints.save, fail
        try:
            with pytest.raises(rp.CheckpointError, match="the disk is full"):
                fitted(name, comm=comm, checkpoint=tmp_path, every=1)
        finally:
            iterations.Checkpoints.save = save
        return comm.allreduce(1)

    assert job_of(2).run(program) == [2, 2]


def test_divided_centroids_do_not_resume_from_whole_ones_and_the_reverse(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 3))
    for first, second in (("whole", "divided"), ("divided", "whole")):
        models = [
            rp.KMeans(5, random_state=0, checkpoint=tmp_path / first, options=rp.KMeans.Options(centroids=each))
            for each in (first, second)
        ]
        models[0].fit(X)
        with pytest.raises(rp.CheckpointError, match="centroids was"):
            models[1].fit(X)


def test_a_converged_propagation_of_labels_resumes_at_its_end(tmp_path):
    edges = np.array([[0, 1], [1, 2], [2, 0], [2, 3]])
    models = [
        rp.CommunityDetection(checkpoint=tmp_path, options=rp.CommunityDetection.Options(every=1)).fit(edges)
        for _ in range(2)
    ]
    assert models[1].n_iter_ == models[1].resumed_from_ == models[0].n_iter_ < models[0].max_iter
    np.testing.assert_array_equal(models[1].labels_, models[0].labels_)


def test_clustering_coefficients_are_only_summed_between_blocks_to_save_them(tmp_path, monkeypatch):
    calls = []
    reduce = Communicator.sparse_reduce
    monkeypatch.setattr(
        Communicator, "sparse_reduce", lambda self, *args, **kw: (calls.append(1), reduce(self, *args, **kw))[1]
    )
    counts = []
    for every in (None, 1_000, 1):
        fitted("clustering", checkpoint=None if every is None else tmp_path, every=every)
        counts.append(len(calls))
        calls.clear()
    assert counts[0] == counts[1] < counts[2]
