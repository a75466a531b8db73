"""ALS: equal to a plain NumPy loop, bitwise equal on any number of workers; files, ids, checkpoints, errors."""

from __future__ import annotations

import doctest
import gzip
import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ripieno as rp
from ripieno.algorithms.als import estimator as als
from ripieno.algorithms.als.exchange import FactorTransfer
from ripieno.algorithms.als.program import ALSOptions, initial_item_factors
from ripieno.algorithms.als.ratings import RatingSide, even_cuts
from ripieno.algorithms.worker_estimator import SEED_LIMIT
from ripieno.checkpoints.iterations import NO_CHECKPOINTS
from ripieno.input import cutting
from ripieno.kernels import scatter, solve_factors
from scipy.io import mmwrite
from scipy.sparse import coo_matrix, csr_array, csr_matrix, save_npz
from sklearn.base import clone
from varied import exhaustively

WORLDS = pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
KINDS = pytest.mark.parametrize("implicit", [False, True], ids=["explicit", "implicit"])
RANK, REG, ALPHA, ITERATIONS = 7, 0.1, 2.0, 4
# Options of explicit and of implicit ratings, each with a different solver.
SOLVED = {False: {"implicit": False, "solver": "cholesky"}, True: {"implicit": True, "solver": "cg"}}


def random_ratings(user_count=60, item_count=25, seed=0):
    """Return ratings of 1 to 5 with a pattern; one user and one item have none."""
    random = np.random.default_rng(seed)
    taste, kind = random.random((user_count, 3)), random.random((item_count, 3))
    rated = random.random((user_count, item_count)) < 0.3
    rated[3] = rated[:, 5] = False
    values = 1 + 4 * (taste @ kind.T) / 3 * rated
    return csr_matrix(np.where(rated, values, 0).astype(np.float32))


RATINGS = random_ratings()


def model_of(**options):
    options = {"reg": REG, "alpha": ALPHA, "max_iter": ITERATIONS, "random_state": 3} | options
    return rp.ALS(RANK, **options)


def start_of(ratings):
    """Return the first item factors of a fit."""
    seed = int(np.random.RandomState(3).randint(SEED_LIMIT))
    counts = np.diff(csr_matrix(ratings.T).indptr)
    options = ALSOptions(RANK, False, REG, ALPHA, "cholesky", 1, seed, None, NO_CHECKPOINTS)
    none = np.empty(0)
    side = RatingSide(counts, np.array([0, len(counts)]), range(len(counts)), none, none, none)
    return initial_item_factors(options, side).astype(np.float64)


def reference_fit(ratings, implicit, iterations=ITERATIONS):
    """Return the factors of users and items, and the objective after each iteration, by NumPy in float64."""
    dense, rated = ratings.toarray().astype(np.float64), ratings.toarray() != 0
    weights = 1 + ALPHA * dense if implicit else rated.astype(float)
    target = rated.astype(float) if implicit else dense

    def solved(weights, target, rated, others):
        found = np.zeros((len(target), RANK))
        for row in np.flatnonzero(rated.any(axis=1)):
            penalty = REG * (1 if implicit else rated[row].sum())
            matrix = (others * weights[row][:, None]).T @ others + penalty * np.eye(RANK)
            found[row] = np.linalg.solve(matrix, others.T @ (weights[row] * target[row]))
        return found

    def objective(users, items):
        counts = [np.ones(len(users)), np.ones(len(items))] if implicit else [rated.sum(axis=1), rated.sum(axis=0)]
        penalty = sum((count * (side**2).sum(axis=1)).sum() for count, side in zip(counts, (users, items), strict=True))
        return (weights * (users @ items.T - target) ** 2).sum() + REG * penalty

    items, objectives = start_of(ratings), []
    for _ in range(iterations):
        users = solved(weights, target, rated, items)
        items = solved(weights.T, target.T, rated.T, users)
        objectives.append(objective(users, items))
    return users, items, objectives


@KINDS
@WORLDS
def test_factors_match_a_plain_loop_from_the_same_start(world, workers, implicit):
    users, items, objectives = reference_fit(RATINGS, implicit)
    model = model_of(implicit=implicit, engine=world(workers)).fit(RATINGS)

    predicted = model.user_factors_ @ model.item_factors_.T
    assert np.abs(predicted - users @ items.T).max() < 1e-4 * np.abs(users @ items.T).max()
    assert np.abs(model.user_factors_ - users).max() < 1e-3 * np.abs(users).max()
    described = [step.measures["objective"] for step in model.report_.iterations]
    np.testing.assert_allclose(described, objectives, rtol=1e-4)
    assert model.objective_ == described[-1] and model.n_iter_ == ITERATIONS
    assert all(later < earlier for earlier, later in pairwise(described))
    assert not model.user_factors_[3].any() and not model.item_factors_[5].any()


@KINDS
@pytest.mark.parametrize("solver", ["cholesky", "cg"])
@pytest.mark.parametrize("exchange", ["allgather", "needed"])
def test_factors_have_the_same_bits_for_any_number_of_workers_and_exchange(world, implicit, solver, exchange):
    options = {"implicit": implicit, "solver": solver}
    alone = model_of(**options).fit(RATINGS)
    for workers in (2, 3):
        model = model_of(exchange=exchange, engine=world(workers), **options).fit(RATINGS)
        assert model.user_factors_.tobytes() == alone.user_factors_.tobytes()
        assert model.item_factors_.tobytes() == alone.item_factors_.tobytes()
        assert [each.chosen for each in model.report_.exchanges] == [exchange] * 2
    assert [each.chosen for each in alone.report_.exchanges] == ["stay"] * 2


@KINDS
def test_conjugate_gradients_never_increase_the_objective_and_reach_that_of_cholesky(implicit):
    events = []
    options = {"implicit": implicit, "max_iter": 60}
    model = model_of(solver="cg", on_iteration=lambda event: events.append(event["objective"]), **options).fit(RATINGS)
    exact = model_of(solver="cholesky", **options).fit(RATINGS)
    assert all(later < earlier * (1 + 1e-6) for earlier, later in pairwise(events))
    assert model.objective_ == pytest.approx(exact.objective_, rel=0.02) and model.solver_ == "cg"


def test_auto_takes_conjugate_gradients_for_implicit_ratings_of_many_factors():
    taken = [
        rp.ALS(rank, implicit=implicit, max_iter=1, random_state=0).fit(RATINGS).solver_
        for rank in (15, 16)
        for implicit in (False, True)
    ]
    assert taken == ["cholesky", "cholesky", "cholesky", "cg"]


@KINDS
def test_workers_without_ratings_do_not_change_the_factors(world, implicit):
    ratings = csr_matrix(np.array([[5, 0], [0, 1], [4, 2]], np.float32))
    alone = model_of(implicit=implicit).fit(ratings)
    for exchange in ("allgather", "needed"):
        model = model_of(implicit=implicit, exchange=exchange, engine=world(5)).fit(ratings)
        assert model.user_factors_.tobytes() == alone.user_factors_.tobytes()
        assert model.item_factors_.tobytes() == alone.item_factors_.tobytes()


def _moved(comm, cuts, columns, method):
    own = np.arange(cuts[comm.rank], cuts[comm.rank + 1])
    exchange = FactorTransfer(comm, "items", cuts, columns[comm.rank], 4, method)
    sent = comm.stats()["bytes_sent"]
    table = exchange((own[:, None] * [1, 10, 100, 1000]).astype(np.float32))
    return table[exchange.columns], exchange.exchange, comm.stats()["bytes_sent"] - sent


@pytest.mark.parametrize("workers", [2, 3])
def test_the_cheaper_exchange_is_chosen_and_delivers_the_rows_of_the_ratings(world, workers):
    count = 400 * workers
    cuts = np.linspace(0, count, workers + 1).astype(np.int64)
    own = [np.arange(cuts[i], cuts[i + 1], dtype=np.int32) for i in range(workers)]
    near = [np.append(rows, (rows[-1] + 1) % count).astype(np.int32)[::-1] for rows in own]
    everywhere = [np.arange(count, dtype=np.int32)] * workers
    for columns, chosen in ((near, "needed"), (everywhere, "allgather")):
        moved = {}
        for method in (None, "allgather", "needed"):
            for rank, (rows, described, sent) in enumerate(world(workers).run(_moved, cuts, columns, method)):
                assert rows.tolist() == (columns[rank][:, None] * [1.0, 10, 100, 1000]).tolist()
                assert described.chosen == (method or chosen)
                moved[method] = max(moved.get(method, 0), sent)
        assert described.row_bytes == 16 and described.row_count == count
        if chosen == "needed":
            # One row, and the overhead of the calls.
            assert moved["needed"] < moved["allgather"] / 4 and described.needed_rows == 1


def table_of(ratings, users, items):
    entries = ratings.tocoo()
    return pa.table({"userId": pa.array(users[entries.row]), "movieId": pa.array(items[entries.col]),
                     "rating": entries.data, "timestamp": np.zeros(entries.nnz)})  # fmt: skip


def labels(count, kind):
    if kind == "numbers":
        return np.arange(count) * 7 - 50
    return np.array([f"name {at:03}" for at in range(count)])


@KINDS
@pytest.mark.parametrize("kind", ["numbers", "strings"])
@pytest.mark.parametrize("suffix", ["parquet", "csv", "two parquet", "pandas", "arrow", "columns"])
def test_users_and_items_have_the_ids_of_the_table(world, tmp_path, implicit, kind, suffix):
    users, items = labels(60, kind), labels(25, kind)[::-1]
    table = table_of(RATINGS, users, items).take(np.random.default_rng(0).permutation(RATINGS.nnz))
    given = table
    if suffix.endswith("parquet"):
        cut = 100 if suffix.startswith("two") else len(table)
        for at, part in enumerate((table.slice(0, cut), table.slice(cut))):
            if len(part):
                pq.write_table(part, tmp_path / f"{at}.parquet", row_group_size=50)
        given = str(tmp_path / "*.parquet")
    elif suffix == "csv":
        given = tmp_path / "ratings.csv"
        pa.csv.write_csv(table, given)
    elif suffix == "pandas":
        pytest.importorskip("pandas")
        given = table.to_pandas()
    elif suffix == "columns":
        given = tuple(table[name].to_pylist() for name in ("userId", "movieId", "rating"))
    # The same ratings, with indices in the order of the names.
    has_user, has_item = np.diff(RATINGS.indptr) > 0, np.diff(RATINGS.tocsc().indptr) > 0
    expected = model_of(implicit=implicit).fit(RATINGS[has_user][:, has_item][:, ::-1])

    model = model_of(implicit=implicit, engine=world(3)).fit(given)

    assert model.user_ids_.tolist() == users[has_user].tolist()
    assert model.item_ids_.tolist() == items[has_item][::-1].tolist()
    assert model.user_factors_.tobytes() == expected.user_factors_.tobytes()
    assert model.item_factors_.tobytes() == expected.item_factors_.tobytes()
    assert model.score(given) == pytest.approx(expected.score(RATINGS[has_user][:, has_item][:, ::-1]))
    pair = model.predict([users[0]], items[has_item])
    np.testing.assert_allclose(pair, (expected.user_factors_[0] @ expected.item_factors_.T)[::-1], atol=1e-6)


def test_recommended_items_are_the_best_of_those_not_rated():
    model = model_of().fit(RATINGS)
    for user in (0, 17):
        scores = model.item_factors_ @ model.user_factors_[user]
        rated = set(RATINGS[user].indices.tolist())
        expected = [at for at in np.argsort(-scores) if at not in rated | {5}]
        found, values = model.recommend(user, 6)
        assert found.tolist() == expected[:6]
        np.testing.assert_allclose(values, scores[found], rtol=1e-6)
        everything, _ = model.recommend(user, 1000, filter_rated=False)
        assert sorted(everything.tolist()) == [at for at in range(25) if at != 5]


def test_unseen_users_and_items_have_no_prediction():
    model = model_of().fit(RATINGS)

    assert np.isnan(model.predict([3, 0, 999, 0], [0, 5, 0, 1])).tolist() == [True, True, True, False]
    for user in (3, 999):
        with pytest.raises(rp.InputError, match=f"user {user} had no ratings"):
            model.recommend(user)
    with pytest.warns(UserWarning, match="1 of 2 ratings belong to users or items without ratings in the fit"):
        rmse = model.rmse(([0, 999], [1, 1], [4.0, 1.0]))
    assert rmse == pytest.approx(abs(model.predict(0, 1)[0] - 4.0))
    with pytest.raises(rp.InputError, match="ids are whole numbers here"):
        model.predict(["ann"], [0])


def test_the_percentile_rank_is_zero_for_the_items_on_top_and_a_half_at_random():
    model = model_of(implicit=True, max_iter=10).fit(RATINGS)
    top = [(user, model.recommend(user, 1)[0][0]) for user in range(20) if user != 3]
    bottom = [(user, model.recommend(user, 100)[0][-1]) for user in range(20) if user != 3]

    def rank(pairs):
        users, items = zip(*pairs, strict=True)
        return model.percentile_rank((users, items, np.ones(len(users))))

    assert rank(top) == 0 and rank(bottom) == 1
    everything = [(user, item) for user in (0, 1, 2) for item in model.recommend(user, 100)[0]]
    assert rank(everything) == pytest.approx(0.5, abs=1e-6)
    assert model.score((*zip(*top, strict=True), np.ones(len(top)))) == 0


def test_counts_of_a_pair_add_up_and_zeros_are_no_ratings():
    users, items, values = [0, 0, 0, 1, 1, 2], [0, 0, 1, 0, 1, 1], [1.0, 2.0, 1.0, 0.0, 4.0, 2.0]
    expected = model_of(implicit=True).fit(csr_matrix(np.array([[3, 1], [0, 4], [0, 2]], np.float32)))

    model = model_of(implicit=True).fit((users, items, values))

    assert model.user_factors_.tobytes() == expected.user_factors_.tobytes()
    with pytest.raises(rp.InputError, match="1 ratings repeat a pair of user and item"):
        model_of().fit((users, items, values))


def _with(value):
    bad = RATINGS.copy()
    with np.errstate(over="ignore"):
        bad.data[0] = value
    return bad


@pytest.mark.parametrize(
    ("options", "ratings", "message"),
    [
        ({}, _with(np.nan), r"user 0, item \d+: the rating is nan: expected a finite number"),
        ({}, _with(1e300), r"the rating is inf: expected a finite number of float32"),
        ({"implicit": True}, _with(-1), r"user 0, item \d+: the rating is -1: expected a number >= 0 with implicit"),
        ({}, csr_matrix((4, 4), dtype=np.float32), "there are no ratings"),
        ({}, csr_matrix((0, 0), dtype=np.float32), "there are no ratings"),
        ({"implicit": True}, csr_matrix((4, 4), dtype=np.float32), "there are no ratings"),
        ({}, ([], [], []), "there are no ratings"),
        ({}, ([1, 2], [1], [1.0, 2.0]), "2 users, 1 items and 2 ratings: expected equal counts"),
        ({}, ([1.5], [1], [1.0]), "users of type double: expected whole numbers or strings"),
        ({}, ([1], ["a"], ["b"]), "ratings: expected numbers"),
        ({}, np.ones((3, 3)), "ratings of type ndarray: expected a sparse matrix"),
        ({}, pa.table({"a": [1], "b": [2], "c": [3], "d": [4]}), "the columns of users, items, ratings are unknown"),
        (
            {"columns": ("a", "x", "c")},
            pa.table({"a": [1], "b": [2], "c": [3]}),
            "columns='x': .* has no such column: expected one of a, b, c",
        ),
        ({}, pa.table({"user": [1, None], "item": [2, 3], "rating": [3, 4]}), "column 'user' has missing values"),
        ({}, pa.table({"user": [1, 2], "item": [2, 3], "rating": [3, None]}), "column 'rating' has missing values"),
        ({"reg": 0}, RATINGS, "reg=0: expected a number > 0"),
        ({"rank": 0}, RATINGS, "rank=0: expected a whole number, 1 … 10000"),
        ({"max_iter": 0}, RATINGS, "max_iter=0: expected"),
        ({"alpha": -1.0, "implicit": True}, RATINGS, "alpha=-1.0: expected a number > 0"),
        ({"solver": "qr"}, RATINGS, "solver='qr': expected one of auto, cholesky, cg"),
        ({"exchange": "mail"}, RATINGS, "exchange='mail': expected one of auto, allgather, needed"),
        ({"columns": ("a",)}, RATINGS, r"columns=\('a',\): expected the names of three columns"),
        ({"implicit": True}, _with(1e38), "not finite"),
    ],
)
def test_bad_input_is_reported(world, options, ratings, message):
    for workers in (1, 3):
        with pytest.raises(rp.InputError, match=message):
            model_of(engine=world(workers)).set_params(**options).fit(ratings)


@pytest.mark.parametrize("workers", [1, 3])
def test_bad_files_are_reported_by_every_rank(world, tmp_path, workers):
    path = tmp_path / "ratings.parquet"
    pq.write_table(pa.table({"user": [1, 2], "item": [1, 1], "rating": [1.0, np.nan]}), path, row_group_size=1)
    with pytest.raises(rp.InputError, match=r"ratings.parquet: user 2, item 1: the rating is nan"):
        model_of(engine=world(workers)).fit(path)
    (tmp_path / "ratings.txt").write_text("1 2 3\n")
    with pytest.raises(rp.InputError, match="is read as text: expected a table"):
        model_of(engine=world(workers)).fit(tmp_path / "ratings.txt")
    with pytest.raises(rp.InputError, match=r"none.parquet"):
        model_of(engine=world(workers)).fit(tmp_path / "none.parquet")


def _fit_in_program(comm, ratings):
    events = []
    model = model_of(random_state=None, on_iteration=events.append).fit(ratings, comm=comm)
    return model.item_factors_.tobytes(), [event["iteration"] for event in events]


@WORLDS
def test_existing_ranks_fit_and_all_get_the_result(world, workers):
    found = world(workers).run(_fit_in_program, RATINGS)

    assert len({factors for factors, _ in found}) == 1
    assert [events for _, events in found] == [[1, 2, 3, 4]] + [[]] * (workers - 1)


@pytest.mark.parametrize("kind", [csr_matrix, coo_matrix, csr_array, lambda m: m.tocsc().astype(np.int64)])
def test_every_sparse_matrix_is_accepted_and_not_changed(kind):
    whole = csr_matrix(np.round(RATINGS.toarray()))
    given = kind(whole)
    before = given.copy()

    model = model_of().fit(given)

    assert model.user_factors_.tobytes() == model_of().fit(whole).user_factors_.tobytes()
    assert (given != before).nnz == 0 and model.user_factors_.shape == (60, RANK)


def test_parameters_match_scikit_learn():
    model = model_of(implicit=True, workers=2)
    twin = clone(model)

    assert twin.get_params() == model.get_params() and twin is not model
    assert twin.set_params(rank=3, workers=1).fit(RATINGS).user_factors_.shape == (60, 3)


def test_computation_and_communication_of_every_iteration_and_rank_are_reported(world):
    report = model_of(engine=world(3)).fit(RATINGS).report_

    assert len(report.iterations) == ITERATIONS and report.rating_count == RATINGS.nnz
    for step in report.iterations:
        assert len(step.compute_s) == len(step.communication_s) == 3 and min(step.compute_s) > 0
        assert min(step.communication_s) > 0 and set(step.measures) == {"objective", "rmse"}
    assert [each.side for each in report.exchanges] == ["items", "users"] and "MB to a rank" in str(report.exchanges[0])


PROGRAM = """
import os, signal, sys
import ripieno as rp
from test_als import RATINGS, SOLVED, model_of

def on_iteration(event):
    if event["iteration"] == 3:
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    folder, implicit, workers = sys.argv[1], sys.argv[2] == "True", int(sys.argv[3])
    options = {"workers": workers, "threads": 1, "max_iter": 6, "checkpoint": folder} | SOLVED[implicit]
    model_of(on_iteration=on_iteration, options=rp.ALS.Options(every=1), **options).fit(RATINGS)
"""


@pytest.mark.parametrize(("implicit", "workers"), exhaustively((True, 2), (False, 1)))
def test_a_fit_that_was_killed_resumes_from_its_checkpoint_with_the_same_bits(tmp_path, implicit, workers):
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "kept"), str(implicit), str(workers)]
    killed = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    events = []
    options = {"max_iter": 6, "workers": 3 - workers, "threads": 1} | SOLVED[implicit]
    model = model_of(checkpoint=tmp_path / "kept", on_iteration=events.append, **options).fit(RATINGS)

    expected = model_of(max_iter=6, **SOLVED[implicit]).fit(RATINGS)
    assert model.resumed_from_ in (2, 3, 4, 5) and model.n_iter_ == 6
    assert [event["iteration"] for event in events] == list(range(model.resumed_from_ + 1, 7))
    assert model.user_factors_.tobytes() == expected.user_factors_.tobytes()
    assert model.item_factors_.tobytes() == expected.item_factors_.tobytes()


def test_a_checkpoint_of_another_fit_is_refused_and_a_larger_max_iter_resumes(world, tmp_path):
    for workers in (1, 2):
        folder = tmp_path / str(workers)
        job = world(workers)
        model_of(checkpoint=folder, options=rp.ALS.Options(every=1), engine=job).fit(RATINGS)
        more = model_of(checkpoint=folder, options=rp.ALS.Options(every=1), max_iter=7, engine=job).fit(RATINGS)
        assert more.resumed_from_ == ITERATIONS - 1
        assert more.item_factors_.tobytes() == model_of(max_iter=7).fit(RATINGS).item_factors_.tobytes()
        with pytest.raises(rp.CheckpointError, match=r"another fit: reg was 0.1 in the checkpoint and is 0.2 now"):
            model_of(checkpoint=folder, reg=0.2, engine=world(workers)).fit(RATINGS)
        with pytest.raises(rp.CheckpointError, match="the digest of ratings was"):
            model_of(checkpoint=folder, engine=world(workers)).fit(_with(1.25))
        with pytest.raises(rp.CheckpointError, match="after 6 iterations, and max_iter=4 is lower"):
            model_of(checkpoint=folder, engine=world(workers)).fit(RATINGS)
        assert model_of(engine=world(workers)).fit(RATINGS).resumed_from_ is None


def test_cuts_cover_all_rows_once_with_even_loads():
    counts = np.random.default_rng(0).integers(0, 50, 1000)
    for world_size in (1, 2, 3, 5, 33):
        cuts = even_cuts(counts, 8, world_size)
        assert cuts[0] == 0 and cuts[-1] == 1000 and (np.diff(cuts) >= 0).all() and len(cuts) == world_size + 1
        loads = [(counts[a:b] + 8 * (counts[a:b] > 0)).sum() for a, b in pairwise(cuts)]
        assert max(loads) - min(loads) <= 2 * (50 + 8)
    assert even_cuts(np.zeros(3, np.int64), 8, 2).tolist() == [0, 0, 3]
    assert even_cuts(np.zeros(0, np.int64), 8, 2).tolist() == [0, 0, 0]


def test_kernels_return_factors_loss_and_penalty():
    factors = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(scatter(factors, 1.5 * 64), factors.T @ factors)
    starts, columns, values = np.array([0, 0, 2]), np.array([0, 2], np.int32), np.array([1, 2], np.float32)
    found, loss, penalty = solve_factors(starts, columns, values, factors, reg=0.5)
    chosen = factors[columns].astype(np.float64)
    expected = np.linalg.solve(chosen.T @ chosen + np.eye(2), chosen.T @ values)
    np.testing.assert_allclose(found, [[0, 0], expected], rtol=1e-5)
    assert loss == pytest.approx(((chosen @ expected - values) ** 2).sum(), rel=1e-3)
    assert penalty == pytest.approx(0.5 * 2 * (expected**2).sum(), rel=1e-5)


def test_examples_of_the_docstrings_hold():
    found = doctest.testmod(als)

    assert found.attempted and not found.failed


def test_ids_of_strings_that_end_in_nul_are_refused_and_whole_fractions_are_ids(tmp_path):
    with pytest.raises(rp.InputError, match=r"users: 'a\\x00' ends in a NUL character"):
        rp.ALS(rank=1).fit((["a", "a\0", "b"], ["x", "y", "x"], [1.0, 2, 3]))


def test_inner_nuls_of_ids_are_kept(tmp_path):
    users = np.array(["a", "a\0b", "a\0c"])
    np.savez(tmp_path / "ratings.npz", user=users, item=np.arange(3), rating=np.ones(3))

    for ratings in ((users, np.arange(3), np.ones(3)), tmp_path / "ratings.npz"):
        model = rp.ALS(rank=1, max_iter=1).fit(ratings)
        assert model.user_ids_.tolist() == users.tolist()
        pairs = pa.table({"user": users.tolist(), "item": [0, 1, 2]})
        assert np.isfinite(model.predict(pairs)).all()
    model = rp.ALS(rank=1, random_state=0).fit(([1.0, 2.0], pd.Categorical([7, 9]), [1.0, 2]))
    assert (model.user_ids_.tolist(), model.item_ids_.tolist()) == ([1, 2], [7, 9])


@pytest.mark.parametrize("name", ["r.npz", "r.mtx", "r.mtx.gz", "columns.npz"])
def test_sparse_matrices_and_arrays_in_files_are_ratings(name, tmp_path, world):
    matrix = coo_matrix((np.arange(1.0, 8.0), (np.arange(7) % 4, np.arange(7) % 3)), (5, 4))
    if name == "r.npz":
        save_npz(tmp_path / name, matrix)
    elif name == "columns.npz":
        np.savez_compressed(tmp_path / name, rating=matrix.data, item_id=matrix.col, user=matrix.row)
    else:
        mmwrite(tmp_path / "r.mtx", matrix)
        content = (tmp_path / "r.mtx").read_bytes()
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    options = {"rank": 2, "max_iter": 2, "random_state": 0}
    expected = rp.ALS(**options).fit((matrix.row, matrix.col, matrix.data))
    found = rp.ALS(**options, engine=world(2)).fit(tmp_path / name)
    assert (found.objective_, found.user_ids_.tolist()) == (
        pytest.approx(expected.objective_),
        expected.user_ids_.tolist(),
    )
    with pytest.raises(rp.InputError, match="entries of a matrix: expected rows"):
        rp.KMeans(2).fit(rp.input.splits(tmp_path / name))


def test_fractional_ratings_beyond_the_sample_of_a_file_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(cutting, "SAMPLE_BYTES", 1 << 10)
    monkeypatch.setattr(cutting, "SAMPLE_BYTES_MIN", 1 << 10)
    rows = [(user, item, 1 + (user + item) % 5 - 0.5 * (user > 90)) for user in range(100) for item in range(9)]
    text = "".join(f"{user},{item},{rating:g}\n" for user, item, rating in rows)
    expected = rp.ALS(rank=2, max_iter=2, random_state=0).fit(tuple(np.array(rows).T)).objective_
    for name, header in (("named.csv", "userId,movieId,rating\n"), ("bare.csv", "")):
        (tmp_path / name).write_text(header + text)
        model = rp.ALS(rank=2, max_iter=2, random_state=0).fit(tmp_path / name)
        assert model.report_.rating_count == len(rows)
        assert model.objective_ == pytest.approx(expected)


def test_pairs_are_predicted_from_a_table_and_several_users_get_recommendations():
    users, items, ratings = [1, 1, 2, 2, 3, 3, 3], ["x", "y", "y", "z", "x", "y", "z"], [5.0, 3, 4, 1, 2, 5, 3]
    model = rp.ALS(2, max_iter=3, random_state=0).fit((users, items, ratings))
    expected = model.predict(users, items)
    frame = pd.DataFrame({"item_id": items, "userId": users})
    assert np.array_equal(model.predict(frame), expected)

    found, scores = model.recommend([1, 3], filter_rated=True)
    assert found.tolist() == [["z"], [""]] and np.isnan(scores[1, 0])
    assert np.array_equal(found[0], model.recommend(1)[0]) and np.array_equal(scores[0], model.recommend(1)[1])
    with pytest.raises(rp.InputError, match="user 9 had no ratings"):
        model.recommend([1, 9])
    with pytest.raises(rp.InputError, match="expected users and items"):
        model.predict([1, 2, 3])
