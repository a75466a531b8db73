"""Every fit that iterates goes on from its folder when its job was killed, to the same bits, also on other workers."""

from __future__ import annotations

import itertools
import os
import shutil
import signal

import numpy as np
import pytest
import ripieno as rp
from ripieno.algorithms import fit_checkpoint
from test_survivors import FITS, fitted

WORKERS = 2
#: With as many workers these have the same bits, and this one is as near.
NEAR = ("spectral",)
#: What this one learns depends on which worker has which rows.
OTHERS = ("sgd",)
#: One of few iterations.
EARLY = {"logistic": 1}


@pytest.fixture(scope="module")
def job():
    """Workers that outlive the fits that are killed."""
    with rp.launch(workers=WORKERS, threads=1) as job:
        yield job


def killed(comm, name, folder, count):
    """A fit whose rank 0 is killed when so many states are in the folder."""
    fit_checkpoint.PERIOD_S = -1.0
    save, counts = fit_checkpoint.FitCheckpoint.save, itertools.count(1)

    def save_and_die(self, iteration, result):
        save(self, iteration, result)
        if next(counts) == count:
            os.kill(os.getpid(), signal.SIGKILL)

    fit_checkpoint.FitCheckpoint.save = save_and_die
    fitted(name, comm=comm, checkpoint=folder)


@pytest.mark.parametrize("name", FITS)
def test_a_fit_that_was_killed_goes_on_from_its_folder(tmp_path, name, job):
    fit, folder = FITS[name], tmp_path / "kept"
    with pytest.raises(rp.RankFailed):
        job.run(killed, name, folder, EARLY.get(name, fit.struck))
    shutil.copytree(folder, tmp_path / "copy")

    whole, same, alone = (
        fitted(name, engine=job),
        fitted(name, engine=job, checkpoint=folder),
        fitted(name, checkpoint=tmp_path / "copy"),
    )

    expected, found, by_one = (getattr(each, fit.result) for each in (whole, same, alone))
    assert same.resumed_from_ >= 1 and alone.resumed_from_ == same.resumed_from_
    if name in NEAR:
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    else:
        assert np.array_equal(found, expected)
    if name not in OTHERS:
        np.testing.assert_allclose(by_one, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "other", "says"),
    [
        ("pagerank", rp.PageRank(0.5), "damping was 0.85 there and is 0.5 here"),
        ("bfs", rp.BFS(source=3), "source was 0 there and is 3 here"),
        ("sgd", rp.SparseSGD(random_state=0, max_iter=8, tol=None, eta0=0.5), "eta0 was"),
        ("spectral", rp.SpectralEmbedding(2, random_state=0), "count was"),
    ],
)
def test_a_fit_refuses_the_folder_of_another(tmp_path, name, other, says):
    fitted(name, checkpoint=tmp_path)
    with pytest.raises(rp.CheckpointError, match=says):
        other.set_params(checkpoint=tmp_path).fit(*FITS[name].data)


def test_a_graph_of_other_edges_is_told(tmp_path):
    edges = np.array([[0, 1], [1, 2], [2, 3], [3, 0]])
    rp.BFS(source=0, checkpoint=tmp_path).fit(edges)
    with pytest.raises(rp.CheckpointError, match="the sum of the edges was"):
        rp.BFS(source=0, checkpoint=tmp_path).fit(edges[:, ::-1])


def test_fewer_iterations_than_were_kept_are_refused(tmp_path, job):
    with pytest.raises(rp.RankFailed):
        job.run(killed, "pagerank", tmp_path, 5)
    with pytest.raises(rp.CheckpointError, match=r"after \d+ iterations, and max_iter=2 ends before"):
        rp.PageRank(tol=1e-12, max_iter=2, checkpoint=tmp_path).fit(*FITS["pagerank"].data)
