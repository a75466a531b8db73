"""Multidimensional scaling: results and interface of scikit-learn, and the same bits for any number of workers."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
import ripieno as rp
from ripieno.algorithms.clock import IterationClock
from ripieno.algorithms.mds import estimator as mds
from ripieno.algorithms.mds.dissimilarities import RowBlock
from ripieno.algorithms.mds.majorization import Majorization
from ripieno.algorithms.mds.relocations import Relocations
from ripieno.checkpoints import iterations
from ripieno.input.shares import even_range
from scipy.spatial.distance import cdist
from sklearn.datasets import load_wine
from sklearn.exceptions import NotFittedError
from sklearn.manifold import smacof
from sklearn.preprocessing import scale
from sklearn.utils.estimator_checks import parametrize_with_checks
from varied import exhaustively

any_world_size = pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
random = np.random.default_rng(0)
POINTS = random.normal(size=(70, 6))
D = cdist(POINTS, POINTS)
WHOLE = np.rint(D * 1000).astype(np.int16)
#: A fifth of all pairs is missing; the others have different weights.
W = random.integers(1, 4, size=D.shape) * (random.random(D.shape) < 0.8)
W = np.triu(W, 1) + np.triu(W, 1).T


def majorized(D, X, weights, iterations):
    """Return the positions after some majorization steps with a pseudo-inverse."""
    weights = np.where(np.eye(len(D)), 0.0, weights)
    inverse = np.linalg.pinv(np.diag(weights.sum(axis=1)) - weights)
    for _ in range(iterations):
        distances = cdist(X, X)
        ratio = weights * np.divide(D, distances, out=np.zeros_like(distances), where=distances > 0)
        X = inverse @ ((np.diag(ratio.sum(axis=1)) - ratio) @ X)
    return X


def stress(D, X, weights=1.0):
    return (weights * (cdist(X, X) - D) ** 2).sum() / 2


def centered(X):
    return X - X.mean(axis=0)


#: Estimator checks that a matrix of dissimilarities fails, with reasons.
UNLIKE_SCIKIT_LEARN = {
    "check_estimators_nan_inf": "the matrix of this check has 5 rows and 3 columns, which is reported before its NaN",
    "check_positive_only_tag_during_fit": "the message for a negative value names its row and column",
}


@parametrize_with_checks(
    [
        rp.MDS(2, metric="euclidean", max_iter=20, random_state=0),
        rp.MDS(2, metric="euclidean", method="da-smacof", cooling=0.5, n_init=1, max_iter=5, random_state=0),
        rp.MDS(2, max_iter=20, random_state=0),
    ],
    expected_failed_checks=lambda model: UNLIKE_SCIKIT_LEARN if model.metric == "precomputed" else {},
)
def test_checks_of_scikit_learn_pass(estimator, check):
    check(estimator)


KINDS = [D, D.astype(np.float32), WHOLE, D * 1e-20, D * 1e30]


@any_world_size
@pytest.mark.parametrize("dissimilarities", KINDS, ids=lambda each: str(each.dtype))
@pytest.mark.parametrize("n_components", [2, *exhaustively(1, 3)])
def test_stress_matches_scikit_learn_from_the_same_start(world, workers, dissimilarities, n_components):
    model = rp.MDS(n_components, random_state=7, engine=world(workers)).fit(dissimilarities)
    wide = dissimilarities.astype(np.float64) / float(dissimilarities.max())
    options = {"random_state": 7, "n_init": 1, "max_iter": 300, "eps": 1e-6, "normalized_stress": True}
    X, expected, n_iter = smacof(wide, n_components=n_components, return_n_iter=True, **options)

    assert model.normalized_stress_ == pytest.approx(expected, abs=1e-4)
    assert abs(model.n_iter_ - n_iter) <= 3
    scale = float(dissimilarities.max())
    assert model.stress_ == pytest.approx(stress(dissimilarities.astype(np.float64), model.embedding_), rel=1e-4)
    assert model.embedding_.shape == X.shape and np.abs(model.embedding_).max() < 2 * scale


@any_world_size
def test_steps_match_the_formula(world, workers):
    start = np.random.default_rng(1).normal(size=(70, 2))
    for weights in (None, W):
        model = rp.MDS(2, init=start, max_iter=4, tol=0, weights=weights, engine=world(workers)).fit(D)
        expected = majorized(D, start, 1.0 if weights is None else weights, 4)

        np.testing.assert_allclose(centered(model.embedding_), centered(expected), atol=2e-5)
        assert model.stress_ == pytest.approx(stress(D, expected, 1.0 if weights is None else weights), rel=1e-5)
        assert model.n_iter_ == 4 and not model.converged_


@pytest.mark.parametrize("seed", [0, 8])
@pytest.mark.parametrize("is_split", [False, True], ids=["one group", "two groups"])
def test_annealing_with_weights_does_not_amplify_rounding_errors(world, seed, is_split):
    draw = np.random.default_rng(seed)
    dissimilarities = cdist(*[draw.normal(size=(40, 4))] * 2)
    weights = draw.random((40, 40)) + 0.1
    if is_split:
        weights[:20, 20:] = 0
    weights = np.triu(weights, 1) + np.triu(weights, 1).T
    options = {"init": draw.normal(size=(40, 2)), "weights": weights, "random_state": 0, "engine": world(2)}
    plain = rp.MDS(2, **options).fit(dissimilarities)
    annealed = rp.MDS(2, method="da-smacof", **options).fit(dissimilarities)

    assert annealed.stress_ == pytest.approx(stress(dissimilarities, annealed.embedding_, weights), rel=1e-4)
    assert annealed.stress_ < 1.01 * plain.stress_
    assert np.abs(annealed.embedding_).max() < 10


@pytest.mark.parametrize("method", ["smacof", "da-smacof"])
def test_units_of_weights_and_initial_positions_do_not_matter(world, method):
    start = np.random.default_rng(1).normal(size=(70, 2))
    options = {"method": method, "cooling": 0.6, "random_state": 0, "engine": world(2)}
    expected = rp.MDS(2, weights=W, init=start, **options).fit(D)
    for unit in (1e-300, 1e-20, 1e20, 1e300):
        model = rp.MDS(2, weights=W * unit, init=start, **options).fit(D)
        assert model.stress_ == pytest.approx(expected.stress_ * unit, rel=1e-4)
        assert model.normalized_stress_ == pytest.approx(expected.normalized_stress_, rel=1e-4)
    for unit, offset in ((1e-25, 0), (1e25, 0), (1, 1e6)):
        model = rp.MDS(2, weights=W, init=start * unit + offset, **options).fit(D)
        assert model.stress_ == pytest.approx(expected.stress_, rel=1e-3)


@pytest.mark.parametrize("unit", [1e-30, 1e30])
def test_units_of_dissimilarities_do_not_matter_for_new_points(world, unit):
    new = cdist(POINTS[:3] + 0.1, POINTS)
    options = {"init": POINTS[:, :2], "engine": world(2)}
    expected = rp.MDS(2, **options).fit(D).interpolate(new)
    found = rp.MDS(2, **options).fit(D * unit).interpolate(new * unit)
    np.testing.assert_allclose(found / unit, expected, atol=1e-4)


def test_a_point_whose_weights_vanish_beside_the_largest_is_an_error():
    weights = W.astype(float)
    weights[3] = weights[:, 3] = 1e-60
    with pytest.raises(rp.InputError, match="all of row 3 are at most 1e-60, too small beside the largest, 3"):
        rp.MDS(weights=weights).fit(D)


ANNEALED = {"method": "da-smacof", "cooling": 0.6, "n_init": 2}


@pytest.mark.parametrize(
    "parameters", [{"weights": W}, *exhaustively({}, ANNEALED, {"n_init": 3}), ANNEALED | {"weights": W}]
)
def test_the_result_has_the_same_bits_for_any_number_of_workers_and_threads(world, parameters):
    models = [
        rp.MDS(random_state=3, max_iter=5, engine=world(workers), **parameters).fit(WHOLE) for workers in (1, 2, 3)
    ]
    for thread_model in ("fork-join", "bsp"):
        options = rp.MDS.Options(thread_model=thread_model)
        models.append(rp.MDS(random_state=3, max_iter=5, threads=2, options=options, **parameters).fit(WHOLE))

    for model in models[1:]:
        assert model.embedding_.tobytes() == models[0].embedding_.tobytes()
        assert (model.stress_, model.n_iter_) == (models[0].stress_, models[0].n_iter_)


@any_world_size
def test_fewer_points_than_ranks_are_enough(world, workers):
    model = rp.MDS(2, random_state=0, tol=1e-12, max_iter=2000, engine=world(workers)).fit(D[:2, :2])

    assert np.linalg.norm(model.embedding_[0] - model.embedding_[1]) == pytest.approx(D[0, 1], rel=1e-5)
    alone = rp.MDS(2, engine=world(workers)).fit(np.zeros((1, 1)))
    assert alone.stress_ == 0.0 and alone.embedding_.shape == (1, 2)


@any_world_size
def test_missing_dissimilarities_do_not_change_the_result(world, workers):
    def fitted(code, dtype=np.float64):
        coded = np.where(W == 0, code, D).astype(dtype)
        np.fill_diagonal(coded, 0)
        before = coded.copy()
        model = rp.MDS(2, weights=W, random_state=0, max_iter=3, engine=world(workers)).fit(coded)
        assert np.array_equal(coded, before, equal_nan=True)
        return model.embedding_.tobytes()

    expected = fitted(0.0)
    for code in (np.finfo(float).max, -1.0, np.nan):
        assert fitted(code) == expected, code
    assert fitted(-1, np.int16) == fitted(0, np.int16)


def test_dissimilarities_may_be_as_large_as_their_type_allows():
    model, far = (rp.MDS(2, random_state=0, max_iter=3).fit(D * scale) for scale in (1.0, 1e200))
    np.testing.assert_allclose(far.embedding_, model.embedding_ * 1e200, rtol=1e-5)
    assert far.normalized_stress_ == pytest.approx(model.normalized_stress_)


@any_world_size
def test_distances_of_points_are_found_where_their_dissimilarities_are_zero(world, workers):
    flat = POINTS.copy()
    flat[:, 3:] = 0
    model = rp.MDS(3, metric="euclidean", tol=1e-13, max_iter=3000, random_state=0, engine=world(workers)).fit(flat)

    np.testing.assert_allclose(cdist(model.embedding_, model.embedding_), cdist(flat, flat), atol=2e-2)


@any_world_size
@pytest.mark.parametrize("metric", ["cityblock", *exhaustively("euclidean", "cosine")])
def test_a_metric_on_rows_gives_the_result_of_its_distances(world, workers, metric):
    by_rows = rp.MDS(2, metric=metric, random_state=0, engine=world(workers)).fit(POINTS)
    distances = cdist(POINTS, POINTS, metric)
    np.fill_diagonal(distances, 0.0)
    expected = rp.MDS(2, random_state=0).fit((distances + distances.T) / 2)

    assert by_rows.normalized_stress_ == pytest.approx(expected.normalized_stress_, rel=1e-4)
    assert by_rows.n_features_in_ == 6


@any_world_size
@pytest.mark.parametrize("array", [WHOLE, WHOLE.astype(">i2"), D, D.astype(np.float32)], ids=lambda D: D.dtype.str)
def test_files_are_read_by_their_rows(world, tmp_path, workers, array):
    np.save(tmp_path / "D.npy", array)
    np.save(tmp_path / "W.npy", W.astype(np.float32))
    by_file = rp.MDS(2, weights=tmp_path / "W.npy", random_state=0, max_iter=10, engine=world(workers))
    by_file.fit(tmp_path / "D.npy")
    expected = rp.MDS(2, weights=W, random_state=0, max_iter=10).fit(array)

    assert by_file.embedding_.tobytes() == expected.embedding_.tobytes()
    assert by_file.report_.dtype == ("int16" if array.dtype.kind == "i" else "float32")


@any_world_size
def test_annealing_finds_less_stress_than_most_starts(world, workers):
    # The stress of points on a ring has many local minima.
    angles = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    ring = cdist(*2 * [np.stack([np.cos(angles), np.sin(angles), 0.1 * np.arange(40)], axis=1)])
    starts = [rp.MDS(2, random_state=seed, engine=world(workers)).fit(ring).stress_ for seed in range(5)]
    annealed = rp.MDS(2, method="da-smacof", cooling=0.6, n_init=1, random_state=0, engine=world(workers)).fit(ring)

    assert annealed.stress_ <= min(starts) * 1.001
    temperatures = [step.measures["temperature"] for step in annealed.report_.iterations]
    assert temperatures == sorted(temperatures, reverse=True) and temperatures[-1] == 0.0


@pytest.mark.exhaustive
def test_annealing_finds_less_stress_than_the_best_of_ten_starts_from_each_of_five_seeds():
    wines = scale(load_wine().data)
    starts = [rp.MDS(metric="euclidean", max_iter=1000, random_state=seed).fit(wines).stress_ for seed in range(10)]
    fits = [rp.MDS(metric="euclidean", method="da-smacof", random_state=seed).fit(wines) for seed in range(5)]

    assert max(fit.stress_ for fit in fits) < min(starts)
    for fit in fits:
        firsts = {}
        for step in fit.report_.iterations:
            firsts.setdefault(step.measures["start"], step.measures["temperature"])
        hot, cold = firsts[1], firsts[2]
        assert [firsts[start] for start in (1, 2, 3, 4)] == [hot, cold, hot, cold] and 0.3 < cold / hot < 0.5


def rows_of(weights=None):
    values = D.astype(np.float32)
    return RowBlock(values, weights, values, (len(D),), 0, 1.0, float(D.max()))


@pytest.mark.parametrize("weights", [None, (W + 2 * np.eye(70)).astype(np.float32)], ids=["equal weights", "weighted"])
def test_a_trial_position_is_evaluated_like_a_moved_point(weights):
    at, there = np.random.default_rng(1).normal(size=(2, 70, 2))
    errors, steps = Relocations(rows_of(weights), at, 1)._measure(there)

    for point in range(70):
        moved = at.copy()
        moved[point] = there[point]
        counted = (np.ones(70) if weights is None else weights[point]) * (np.arange(70) != point)
        distances = np.linalg.norm(moved[point] - at, axis=1)
        assert errors[point] == pytest.approx((counted * (distances - D[point]) ** 2).sum(), rel=1e-4)
        towards = at + (D[point] / distances)[:, None] * (moved[point] - at)
        np.testing.assert_allclose(steps[point], counted @ towards / counted.sum(), atol=1e-4)


def test_points_on_the_wrong_side_jump_back():
    flat = POINTS[:, :2]
    distances = cdist(flat, flat)
    wrong = flat.copy()
    wrong[[3, 40]] = -3 * wrong[[3, 40]]
    values = distances.astype(np.float32)
    rows = RowBlock(values, None, values, (70,), 0, 1.0, float(distances.max()))
    targets = flat[np.random.default_rng(0).integers(70, size=(4, 70))]
    found = Relocations(rows, wrong, 1).improved(targets)

    others = np.setdiff1d(np.arange(70), [3, 40])
    assert np.linalg.norm(found[[3, 40]] - flat[[3, 40]], axis=1).max() < 0.5
    assert np.linalg.norm(found[others] - flat[others], axis=1).max() < 1.0
    np.testing.assert_allclose(Relocations(rows, flat, 1).improved(targets), flat, atol=1e-6)


@any_world_size
@pytest.mark.parametrize("weights", [None, W.astype(np.float32)], ids=["equal weights", "weighted"])
def test_doubled_steps_lower_the_stress(world, workers, weights):
    def program(comm):
        first, last = even_range(70, comm.rank, comm.world_size)
        counts = tuple(comm.allgather(last - first))
        own = None if weights is None else weights[first:last]
        values = D[first:last].astype(np.float32)
        rows = RowBlock(values, own, values, counts, first, 1.0, float(D.max()))
        majorization = Majorization(comm, rows, 2, IterationClock())
        at = np.random.default_rng(1).normal(size=(70, 2))
        errors = []
        for _ in range(8):
            step = majorization.step(at, 1.0)
            errors.append(step.errors)
            at = majorization.transform(step, at, doubled=True)
        return errors

    for errors in world(workers).run(program):
        assert errors == sorted(errors, reverse=True) and errors[-1] < 0.9 * errors[0]


@any_world_size
@pytest.mark.parametrize("seed", [0, *exhaustively(1, 2)])
def test_annealing_does_not_end_on_a_line_without_the_largest_dissimilarity(world, workers, seed):
    flat = np.random.default_rng(5).normal(size=(8, 2))
    distances = cdist(flat, flat)
    weights = np.where(distances == distances.max(), 0, 1)
    model = rp.MDS(2, method="da-smacof", weights=weights, random_state=seed, engine=world(workers)).fit(distances)

    assert model.normalized_stress_ < 0.02


@any_world_size
def test_the_best_of_several_starts_is_kept(world, workers):
    model = rp.MDS(1, random_state=2, n_init=4, engine=world(workers)).fit(D)
    state = np.random.RandomState(2)
    each = [rp.MDS(1, init=state.uniform(size=(70, 1))).fit(D).stress_ for _ in range(4)]

    assert model.stress_ == min(each)
    assert [step.measures["start"] for step in model.report_.iterations][-1] == 4


@any_world_size
def test_new_points_are_placed_by_their_dissimilarities(world, workers):
    flat = POINTS[:, :2]
    model = rp.MDS(2, tol=1e-13, max_iter=3000, random_state=0, engine=world(workers)).fit(cdist(flat, flat))
    new = np.random.default_rng(4).normal(size=(9, 2)) * 0.5
    found = model.interpolate(cdist(new, flat), n_neighbors=70, max_iter=2000, tol=1e-9)

    np.testing.assert_allclose(cdist(found, model.embedding_), cdist(new, flat), atol=2e-2)
    near = model.interpolate(cdist(new, flat), n_neighbors=8, max_iter=2000, tol=1e-9)
    np.testing.assert_allclose(cdist(near, model.embedding_), cdist(new, flat), atol=5e-2)


def test_new_points_in_files_are_shared_by_all_workers(world, tmp_path):
    model = rp.MDS(2, random_state=0).fit(D)
    new = cdist(np.random.default_rng(4).normal(size=(9, 6)), POINTS)
    np.save(tmp_path / "new.npy", new)
    expected = model.interpolate(new)

    for workers in (1, 2, 3):
        model.set_params(engine=world(workers))
        assert model.interpolate(tmp_path / "new.npy").tobytes() == expected.tobytes()


@any_world_size
@pytest.mark.parametrize("parameters", [{}, ANNEALED, *exhaustively({"n_init": 2}, {"weights": W})])
def test_a_fit_resumes_from_its_checkpoint_to_the_same_bits(world, tmp_path, monkeypatch, workers, parameters):
    monkeypatch.setattr(iterations, "PERIOD_S", 0.0)
    model = rp.MDS(2, random_state=0, max_iter=12, **parameters)
    expected = model.fit(D)
    model = rp.MDS(2, random_state=0, max_iter=12, checkpoint=tmp_path / "kept", **parameters)

    class StoppedFit(Exception):
        pass

    def stop(event):
        if event["iteration"] == 5:
            raise StoppedFit

    with pytest.raises(StoppedFit):
        model.set_params(on_iteration=stop).fit(D)
    found = model.set_params(on_iteration=None, engine=world(workers)).fit(D)

    assert found.resumed_from_ == 4
    assert found.embedding_.tobytes() == expected.embedding_.tobytes()
    assert (found.stress_, found.n_iter_) == (expected.stress_, expected.n_iter_)


def test_a_finished_fit_continues_with_a_larger_max_iter(tmp_path):
    for max_iter in (5, 5, 9):
        model = rp.MDS(2, random_state=0, max_iter=max_iter, tol=0, checkpoint=tmp_path).fit(D)
    expected = rp.MDS(2, random_state=0, max_iter=9, tol=0).fit(D)

    assert (model.resumed_from_, model.n_iter_) == (4, 9)
    assert model.embedding_.tobytes() == expected.embedding_.tobytes()


def test_a_fit_with_fewer_iterations_keeps_the_checkpoint(tmp_path):
    models = [
        rp.MDS(2, n_init=1, random_state=0, max_iter=count, tol=0, checkpoint=tmp_path).fit(D) for count in (9, 3, 9)
    ]

    assert [model.resumed_from_ for model in models] == [None, 8, 8]
    assert models[2].embedding_.tobytes() == models[0].embedding_.tobytes()


def test_a_checkpoint_of_another_fit_is_refused(tmp_path):
    rp.MDS(2, random_state=0, max_iter=3, checkpoint=tmp_path).fit(D)

    with pytest.raises(rp.CheckpointError, match="n_components was 2 in the checkpoint and is 3 now"):
        rp.MDS(3, random_state=0, max_iter=3, checkpoint=tmp_path).fit(D)
    with pytest.raises(rp.CheckpointError, match="the digest of points was"):
        rp.MDS(2, random_state=0, max_iter=3, checkpoint=tmp_path).fit(D * 2)


def with_entry(matrix, row, column, value):
    changed = np.array(matrix, np.float64)
    changed[row, column] = value
    return changed


@any_world_size
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (with_entry(D, 50, 3, np.nan), "row 50, column 3: NaN where a finite number"),
        (with_entry(D, 50, 3, np.inf), "row 50, column 3: infinity"),
        (with_entry(D, 50, 3, -2), "row 50, column 3: -2.0 where a number >= 0 is expected"),
        (np.array(with_entry(WHOLE, 50, 3, -2), np.int16), "row 50, column 3: -2 where a number >= 0"),
        (with_entry(D, 50, 50, 1), "row 50, column 50: 1.0: expected 0, the distance of a point to itself"),
        (with_entry(D, 50, 3, 9), "X: row (50, column 3|3, column 50) is .*, but row .*: expected a symmetric matrix"),
        (D[:, :60], "X has 70 rows and 60 columns: expected a square matrix of dissimilarities"),
    ],
)
def test_bad_dissimilarities_are_named_by_row_and_column(world, workers, bad, message):
    with pytest.raises(rp.InputError, match=message):
        rp.MDS(engine=world(workers)).fit(bad)


@any_world_size
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (with_entry(W, 50, 3, np.nan), "row 50, column 3: NaN"),
        (with_entry(W, 50, 3, 99), "weights: row (50|3), column (50|3) is"),
        (W * (np.arange(70) != 5) * (np.arange(70) != 5)[:, None], "weights: all of row 5 are 0"),
        (W[:60], "weights has 60 rows for 70 points"),
        (W[:, :60], "weights has 60 columns: expected 70"),
    ],
)
def test_bad_weights_are_named_by_row_and_column(world, workers, weights, message):
    with pytest.raises(rp.InputError, match=message):
        rp.MDS(weights=weights, engine=world(workers)).fit(D)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": 0}, "n_components=0"),
        ({"n_components": 65}, "n_components=65: expected a whole number, 1 … 64"),
        ({"method": "sgd"}, "method='sgd': expected one of smacof, da-smacof"),
        ({"metric": "taxi"}, "metric='taxi': expected one of precomputed, euclidean"),
        ({"init": "best"}, "init='best': expected 'random' or array"),
        ({"init": np.zeros((70, 3))}, "init has 3 columns: expected n_components=2"),
        ({"init": np.zeros((60, 2))}, "init has 60 rows for 70 points"),
        ({"init": np.zeros((70, 2)), "n_init": 2}, "n_init=2: expected 1"),
        ({"n_init": 0}, "n_init=0"),
        ({"n_init": "all"}, "n_init='all': expected 'auto' or a whole number"),
        ({"max_iter": 0}, "max_iter=0"),
        ({"tol": -1}, "tol=-1: expected a number >= 0"),
        ({"cooling": 1}, "cooling=1: expected a number between 0 and 1"),
        ({"workers": 0}, "workers=0"),
    ],
)
def test_bad_parameters_are_named_with_their_value(parameters, message):
    with pytest.raises(rp.InputError, match=message):
        rp.MDS(**parameters).fit(D)


def test_interpolation_needs_a_dissimilarity_to_every_point():
    with pytest.raises(NotFittedError):
        rp.MDS().interpolate(D)
    model = rp.MDS(random_state=0, max_iter=3).fit(D)
    with pytest.raises(rp.InputError, match="X has 60 columns: expected 70, one for each point"):
        model.interpolate(D[:, :60])
    with pytest.raises(rp.InputError, match=r"row 4, column 2: -1\.0"):
        model.interpolate(with_entry(D, 4, 2, -1))
    with pytest.raises(rp.InputError, match="n_neighbors=0"):
        model.interpolate(D, n_neighbors=0)


@any_world_size
def test_existing_ranks_fit(world, workers):
    def program(comm):
        return rp.MDS(2, max_iter=5, random_state=0).fit(D, comm=comm).embedding_

    expected = rp.MDS(2, max_iter=5, random_state=0).fit(D).embedding_
    for found in world(workers).run(program):
        assert found.tobytes() == expected.tobytes()


def test_iterations_are_reported(world):
    events: list[dict] = []
    model = rp.MDS(2, random_state=0, engine=world(2), on_iteration=events.append).fit(D)

    assert [event["iteration"] for event in events] == list(range(1, model.n_iter_ + 1))
    reported = [event["stress"] for event in events]
    assert reported == sorted(reported, reverse=True) and reported[-1] == model.stress_
    assert [each.measures["stress"] for each in model.report_.iterations] == reported
    assert all(len(each.compute_s) == 2 for each in model.report_.iterations)
    assert model.converged_ and model.report_.row_count == 70


def test_the_example_in_the_documentation_runs():
    assert doctest.testmod(mds).failed == 0
