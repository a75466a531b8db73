"""LightGBM on ranks: the same models as over its own sockets, errors that name the culprit, estimators in engines."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import ripieno as rp
from varied import exhaustively

lgb = pytest.importorskip("lightgbm")


def problem(kind: str):
    """Rows, labels, parameters and groups."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 8))
    x[:, 6] = rng.integers(0, 12, size=3000)
    x[:, 7] = rng.integers(0, 5, size=3000)
    signal_ = x[:, 0] * x[:, 1] + np.sin(x[:, 2]) + (x[:, 6] % 3 == 1)
    common = {"num_leaves": 15, "num_threads": 1, "verbose": -1, "seed": 1}
    if kind == "binary":
        return x, (signal_ > 0.3).astype(float), common | {"objective": "binary"}, None
    if kind == "regression":
        return x, signal_ + 0.1 * rng.normal(size=3000), common | {"objective": "regression"}, None
    return x, np.clip(signal_ + 1, 0, 3).astype(int), common | {"objective": "lambdarank"}, np.full(100, 30)


def part(comm, kind):
    """The data of this rank, its parameters, and the whole as evaluation data."""
    x, y, params, group = problem(kind)
    if group is None:
        rows = np.arange(comm.rank, len(x), comm.world_size)
        return x[rows], y[rows], params, None, (x, y, None)
    groups = np.arange(comm.rank, len(group), comm.world_size)
    rows = (groups[:, None] * 30 + np.arange(30)).ravel()
    return x[rows], y[rows], params, group[groups], (x, y, group)


def trained(params, data, evaluation=None):
    """The trees that were trained, as text."""
    x, y, group = data
    train = lgb.Dataset(x, y, group=group, params=params, categorical_feature=[6, 7])
    valid = {}
    if evaluation is not None:
        held = lgb.Dataset(evaluation[0], evaluation[1], group=evaluation[2], reference=train, params=params)
        valid = {"valid_sets": [held], "callbacks": [lgb.early_stopping(3, verbose=False)]}
    booster = lgb.train(params, train, 12, **valid)
    return booster.model_to_string().split("parameters:")[0]


def on_ripieno(comm, kind, learner, stops_early):
    x, y, params, group, whole = part(comm, kind)
    with rp.lightgbm.network(comm, learner) as net:
        text = trained(params | net.params | {"num_threads": 1}, (x, y, group), whole if stops_early else None)
    assert net.calls > 0
    return text


def on_sockets(comm, kind, learner, stops_early):
    x, y, params, group, whole = part(comm, kind)
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    ports = comm.allgather(port)
    machines = ",".join(f"127.0.0.1:{each}" for each in ports)
    params |= {"tree_learner": learner, "num_machines": comm.world_size, "pre_partition": True, "machines": machines}
    params |= {"local_listen_port": port, "time_out": 1}
    return trained(params, (x, y, group), whole if stops_early else None)


@pytest.mark.parametrize("workers", [3, *exhaustively(2, 4, 5)])
@pytest.mark.parametrize("kind", ["binary", "regression", "rank"])
def test_the_model_matches_lightgbms_own_sockets(world, workers, kind):
    ours, theirs = (world(workers).run(by, kind, "data", kind == "binary") for by in (on_ripieno, on_sockets))
    assert ours == theirs
    assert len(set(ours)) == 1


@pytest.mark.parametrize("workers", [3, *exhaustively(2, 4, 5)])
@pytest.mark.parametrize("kind", ["binary", "regression"])
def test_the_models_of_ranks_that_vote_match_lightgbms_own_sockets(world, workers, kind):
    # LightGBM's own results vary from run to run, so sets of results are compared.
    ours, theirs = set(), set()
    for _ in range(8):
        ours.add(tuple(world(workers).run(on_ripieno, kind, "voting", kind == "binary")))
        theirs.add(tuple(world(workers).run(on_sockets, kind, "voting", kind == "binary")))
        if ours & theirs:
            break
    assert ours & theirs


def dies(comm, how):
    x, y, params, _, _ = part(comm, "binary")
    rounds = 0

    def after(_):
        nonlocal rounds
        rounds += 1
        if comm.rank == 1 and rounds == 3:
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("no more of this")

    with rp.lightgbm.network(comm) as net:
        params |= net.params
        lgb.train(params, lgb.Dataset(x, y, params=params), 10_000, callbacks=[after])


def test_a_failed_rank_ends_training_on_all_ranks_and_is_named():
    with rp.launch(workers=3, threads=1) as job:
        with pytest.raises(rp.RankFailed, match=r"SIGKILL|signal 9|killed") as caught:
            job.run(dies, "kill")
        assert caught.value.rank == 1
        with pytest.raises(ValueError, match="no more of this"):
            job.run(dies, "raise")


def test_ranks_with_different_training_parameters_are_reported():
    def program(comm):
        x, y, params, _, _ = part(comm, "binary")
        with rp.lightgbm.network(comm) as net:
            params |= net.params
            lgb.train(params, lgb.Dataset(x[:, : 8 - comm.rank], y, params=params), 5)

    with (
        rp.launch(workers=2, threads=1) as job,
        pytest.raises((rp.CollectiveMismatch, rp.RankFailed, lgb.basic.LightGBMError)),
    ):
        job.run(program)


def test_missing_params_are_reported():
    def program(comm):
        x, y, params, _, _ = part(comm, "binary")
        with rp.lightgbm.network(comm):
            lgb.train(params, lgb.Dataset(x, y, params=params), 2)

    with rp.launch(workers=2) as job, pytest.raises(rp.InputError, match=r"params \| net.params"):
        job.run(program)


def test_estimators_are_lightgbms_once_they_are_fitted():
    x, y, _, group = problem("rank")
    labels = np.array(["low", "mid", "high"])[np.minimum(y, 2)]
    with rp.launch(workers=3, threads=1) as job:
        options = {"n_estimators": 8, "verbose": -1, "engine": job}
        classifier = rp.lightgbm.LGBMClassifier(**options)
        held = [(x[:500], labels[:500])]
        classifier.fit(x, labels, eval_set=held, callbacks=[lgb.early_stopping(2, verbose=False)])
        regressor = rp.lightgbm.LGBMRegressor(tree_learner="voting", **options).fit(x, y)
        ranker = rp.lightgbm.LGBMRanker(**options).fit(x, y, group=group)
        with pytest.raises(rp.InputError, match="no row of class"):
            classifier.fit(x, np.arange(len(x)) == 0)
    assert list(classifier.classes_) == ["high", "low", "mid"]
    assert classifier.score(x, labels) > 0.7
    assert regressor.score(x, y) > 0.4
    assert ranker.predict(x).shape == (3000,)
    assert classifier.get_params()["n_estimators"] == 8
    from sklearn.base import clone

    assert clone(regressor).tree_learner == "voting"


def test_without_lightgbm_the_error_names_the_extra(tmp_path):
    (tmp_path / "lightgbm.py").write_text("raise ModuleNotFoundError('no', name='lightgbm')")
    script = (
        "import ripieno as rp\ntry:\n    rp.lightgbm.LGBMRanker\nexcept rp.MissingExtra as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(tmp_path)}
    )
    assert 'pip install "ripieno[lightgbm]"' in done.stdout, done.stderr


def test_the_reference_has_every_name_once():
    page = (Path(__file__).resolve().parents[3] / "docs/reference/lightgbm.md").read_text()
    assert sorted(re.findall(r"^::: ripieno\.lightgbm\.(\w+)$", page, re.MULTILINE)) == sorted(rp.lightgbm.__all__)
