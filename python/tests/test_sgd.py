"""SparseSGD: the steps of a plain computation, scikit-learn's accuracy and contract, and any placement of rows."""

from __future__ import annotations

import doctest
import gzip
import pickle

import numpy as np
import pytest
import ripieno as rp
from ripieno.algorithms.sgd import estimator as sgd
from ripieno.algorithms.sgd.program import _epochs_without_improvement
from ripieno.algorithms.sgd.rows import hashed
from ripieno.algorithms.worker_estimator import SEED_LIMIT
from ripieno.input.matrix import InMemorySparse
from ripieno.input.matrix.sparse_files import LibsvmFiles
from scipy.sparse import csr_matrix, random_array, vstack
from sklearn.base import clone
from sklearn.datasets import dump_svmlight_file, load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks
from varied import exhaustively

everywhere = pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
SEED = 7


def sparse_rows(row_count: int = 300, column_count: int = 40) -> tuple[csr_matrix, np.ndarray]:
    """Return rows of few entries, with classes from a noisy plane."""
    random = np.random.default_rng(SEED)
    X = csr_matrix(random_array((row_count, column_count), density=0.2, rng=random, data_sampler=random.normal))
    scores = X @ random.normal(size=column_count) + 0.1 * random.normal(size=row_count)
    return X, (scores > 0.2).astype(int)


def reference_weights(X, labels, weight_count, *, loss, alpha, eta0, batch_size, epochs, seed):
    """Run AdaGrad with dense arrays, step by step, with rows and steps in the order of a single worker."""
    rows, X = len(labels), np.hstack([X.toarray(), np.ones((X.shape[0], 1))])
    count = -(-rows // batch_size)
    present = X != 0
    penalties = np.append(alpha * rows / np.maximum(present.sum(axis=0), 1)[:-1], 0.0)[:, None]
    W = np.zeros((X.shape[1], weight_count))
    squares = np.zeros_like(W)
    order = np.random.default_rng([seed, 0, 0]).permutation(rows)
    for epoch in range(epochs):
        for step in np.random.default_rng([seed, 1, epoch]).permutation(count):
            chosen = order[rows * step // count : rows * (step + 1) // count]
            scores = X[chosen] @ W
            truth = labels[chosen, None] if weight_count == 1 else np.eye(weight_count)[labels[chosen]]
            if loss == "hinge":
                errors = np.where((2 * truth - 1) * scores < 1, 1 - 2 * truth, 0)
            elif loss == "squared_error":
                errors = scores - (2 * truth - 1)
            elif weight_count == 1:
                errors = 1 / (1 + np.exp(-scores)) - truth
            else:
                errors = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True) - truth
            gradient = X[chosen].T @ errors + penalties * present[chosen].sum(axis=0)[:, None] * W
            gradient *= count / rows
            squares += gradient**2
            W -= eta0 * gradient / np.sqrt(squares + 1e-10)
    return W


@pytest.mark.parametrize("loss", ["log_loss", "hinge", "squared_error"])
@pytest.mark.parametrize("classes", [2, 4])
def test_steps_match_a_dense_computation(classes, loss):
    X, labels = sparse_rows()
    if classes > 2:
        labels = np.random.default_rng(1).integers(0, classes, len(labels))
    parameters = {"loss": loss, "alpha": 1e-3, "eta0": 0.3, "batch_size": 32}
    model = rp.SparseSGD(**parameters, max_iter=3, tol=None, random_state=SEED).fit(X, labels)
    assert model.n_iter_ == 3

    seed = np.random.RandomState(SEED).randint(SEED_LIMIT)
    W = reference_weights(X, labels, 1 if classes == 2 else classes, **parameters, epochs=3, seed=seed)
    np.testing.assert_allclose(model.coef_, W[:-1].T, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.intercept_, W[-1], rtol=1e-9, atol=1e-12)


@pytest.fixture(scope="module")
def digits() -> tuple[csr_matrix, np.ndarray, csr_matrix, np.ndarray, float]:
    """Return training rows and names, test rows and names, and the number that logistic regression gets right."""
    X, y = load_digits(return_X_y=True)
    X, names = csr_matrix(X / 16), np.array([f"digit {digit}" for digit in y])
    known = np.arange(len(y)) % 4 > 0
    theirs = LogisticRegression(max_iter=100).fit(X[known], names[known])
    return X[known], names[known], X[~known], names[~known], theirs.score(X[~known], names[~known])


@everywhere
def test_digits_are_classified_as_well_as_by_logistic_regression(digits, workers):
    X, names, other_X, other_names, theirs = digits
    model = rp.SparseSGD(eta0=0.3, batch_size=256, random_state=SEED, workers=workers).fit(X, names)

    assert model.score(other_X, other_names) > theirs - 0.02
    assert list(model.classes_) == sorted(set(names))


@everywhere
@pytest.mark.parametrize(("loss", "peer"), [("squared_error", RidgeClassifier), *exhaustively(("hinge", LinearSVC))])
def test_other_losses_classify_digits_without_probabilities(digits, workers, loss, peer, fitted):
    X, names, other_X, other_names, _ = digits
    theirs = peer().fit(X, names).score(other_X, other_names)
    model = fitted(workers, rp.SparseSGD(loss=loss, eta0=0.3, batch_size=256, random_state=SEED), X, names)

    assert model.score(other_X, other_names) > theirs - 0.03
    assert not hasattr(model, "predict_proba")
    with pytest.raises(AttributeError, match="has no attribute 'predict_log_proba'"):
        model.predict_log_proba(other_X)


@everywhere
def test_the_penalty_matches_the_mean_loss(workers, fitted):
    X, y = sparse_rows(400, 12)
    alpha = 0.02
    theirs = LogisticRegression(C=1 / (alpha * len(y)), tol=1e-8).fit(X, y)
    parameters = {"alpha": alpha, "eta0": 0.2, "max_iter": 20, "tol": None, "batch_size": 80}
    model = fitted(workers, rp.SparseSGD(**parameters, random_state=SEED), X, y)

    assert np.abs(model.coef_ - theirs.coef_).max() < 0.05 * np.abs(theirs.coef_).max()
    np.testing.assert_allclose(model.predict_proba(X), theirs.predict_proba(X), atol=0.05)


@everywhere
def test_files_produce_the_same_bits_as_their_rows(workers, fitted, tmp_path):
    X, y = sparse_rows()
    model = rp.SparseSGD(random_state=SEED, max_iter=5)
    # Text represents these values without rounding.
    X.data = np.round(64 * X.data) / 64
    paths = [tmp_path / name for name in ("a", "b")]
    for path, part in zip(paths, (slice(0, 100), slice(100, None)), strict=True):
        dump_svmlight_file(X[part], y[part], str(path), zero_based=False)
    from_files, again = (fitted(workers, model, paths) for _ in range(2))
    from_rows = clone(model).fit(X, y)

    np.testing.assert_array_equal(from_files.coef_, again.coef_)
    assert from_files.score(paths) == from_files.score(X, y) > from_rows.score(X, y) - 0.1
    if workers == 1:
        np.testing.assert_array_equal(from_files.coef_, from_rows.coef_)


def fit(comm, model, *rows):
    return model.fit(*rows, comm=comm)


@pytest.fixture
def fitted(world):
    """Return a copy of the model, fitted by existing workers."""

    def of(workers, model, *rows):
        if workers == 1:
            return clone(model).fit(*rows)
        return world(workers).run(fit, model, *rows)[0]

    return of


def fit_and_continue(comm, X, y):
    model = rp.SparseSGD(random_state=SEED, max_iter=3).fit(X, y, comm=comm)
    return model.coef_, model.partial_fit(X, y, comm=comm).coef_


def test_programs_give_the_model_of_started_workers(world):
    X, y = sparse_rows()
    model = rp.SparseSGD(random_state=SEED, max_iter=3, workers=2).fit(X, y)

    fitted, continued = zip(*world(2).run(fit_and_continue, X, y), strict=True)
    for coefficients in fitted:
        np.testing.assert_array_equal(coefficients, model.coef_)
    np.testing.assert_array_equal(continued[0], continued[1])


def test_every_line_of_a_file_is_read_once_for_any_division(tmp_path):
    lines = [f"{number % 2} {number + 1}:{number}.5 900:2 # a note\n" for number in range(9)]
    (tmp_path / "a").write_text("".join(lines[:5]))
    (tmp_path / "b").write_text("".join(lines[5:]).rstrip("\n"))
    (tmp_path / "c.gz").write_bytes(gzip.compress(b""))
    (tmp_path / "b.gz").write_bytes(gzip.compress((tmp_path / "b").read_bytes()))
    (tmp_path / "b").unlink()
    files = LibsvmFiles.open(tmp_path / "*")
    whole_file = files.read_share(0, 1)
    assert whole_file.points.shape[0] == len(lines)

    for world_size in (2, 3, 20, 100):
        shares = [files.read_share(rank, world_size) for rank in range(world_size)]
        assert (vstack([share.points for share in shares]) != whole_file.points).nnz == 0
        np.testing.assert_array_equal(np.concatenate([share.labels for share in shares]), whole_file.labels)


def test_rows_in_memory_are_divided_evenly():
    X, y = sparse_rows(10)
    shares = [InMemorySparse.of(X, y).read_share(rank, 3) for rank in range(3)]

    assert [len(share.labels) for share in shares] == [3, 3, 4]
    assert (vstack([share.points for share in shares]) != X).nnz == 0


@everywhere
def test_hashed_columns_classify_rows_in_little_space(workers, fitted):
    X, y = sparse_rows(400, 3000)
    wide = csr_matrix((X.data, X.indices.astype(np.int64) * 10**6, X.indptr), shape=(400, 3 * 10**9))
    model = fitted(workers, rp.SparseSGD(n_features=1 << 12, random_state=SEED), wide, y)

    assert model.coef_.shape == (1, 1 << 12)
    assert model.score(wide, y) > 0.95


def test_hashing_keeps_inner_products_in_the_mean():
    one, other = (csr_matrix(np.random.default_rng(seed).normal(size=(1, 2000))) for seed in range(2))
    wide = hashed(one, 1 << 20)

    assert wide.nnz > 1990 and (wide.data < 0).sum() > 800
    errors = [(hashed(one, n) @ hashed(other, n).T).sum() - (one @ other.T).sum() for n in range(400, 500)]
    assert abs(np.mean(errors)) < 3 * np.std(errors) / 10


def continue_fit(comm, X, y):
    whole = rp.SparseSGD(random_state=SEED, max_iter=1).fit(X, y, comm=comm)
    model = rp.SparseSGD(random_state=SEED)
    first = model.partial_fit(X, y, comm=comm).coef_
    losses = [whole.loss_, *(model.partial_fit(X, y, comm=comm).loss_ for _ in range(2))]
    return whole.coef_, first, losses, model.partial_fit(X[:3], y[:3], comm=comm).coef_


@everywhere
def test_a_partial_fit_continues_where_the_last_one_ended(workers, world):
    X, y = sparse_rows()
    whole, first, losses, last = continue_fit(None, X, y) if workers == 1 else world(workers).run(continue_fit, X, y)[0]

    np.testing.assert_array_equal(first, whole)
    assert losses[2] < losses[1] < losses[0]
    assert last.shape == whole.shape


@pytest.mark.parametrize(("tol", "epochs"), [(None, 12), (0.0, 12), (1e9, 4), (2e-2, None)])
def test_the_descent_ends_after_epochs_without_improvement(tol, epochs):
    model = rp.SparseSGD(max_iter=12, tol=tol, n_iter_no_change=3, random_state=SEED).fit(*sparse_rows())
    if epochs is None:
        assert 4 < model.n_iter_ < 12
    else:
        assert model.n_iter_ == epochs


def test_one_bad_epoch_is_not_the_end():
    histories = ([3.0], [3.0, 3.5, 3.0], [3.0, 3.5, 2.5])
    assert [_epochs_without_improvement(losses, 0.1) for losses in histories] == [0, 2, 0]
    assert _epochs_without_improvement([3.0, 2.0, 1.95, 1.8, 1.75], 0.1) == 1


def test_a_model_that_was_not_fitted_raises():
    X, y = sparse_rows()
    model = rp.SparseSGD()
    with pytest.raises(rp.InputError, match="class"):
        model.partial_fit(X, y, classes=[0])
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_features_absent_from_the_fit_have_no_weight(tmp_path):
    (tmp_path / "train").write_text("0 1:1\n1 2:1\n" * 20)
    (tmp_path / "test").write_text("0 1:1 77:5\n1 2:1\n")
    model = rp.SparseSGD(random_state=SEED).fit(tmp_path / "train")

    assert model.n_features_in_ == 2
    assert model.score(tmp_path / "test") == 1.0
    with pytest.raises(rp.InputError, match="test: index 77: expected 1 … 2"):
        model.partial_fit(tmp_path / "test")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks([rp.SparseSGD(), rp.SparseSGD(loss="hinge")])
def test_checks_of_scikit_learn_pass(estimator, check):
    check(estimator)


def test_epochs_are_reported_as_they_end_and_models_are_pickled():
    X, y = sparse_rows()
    events: list[dict] = []
    model = rp.SparseSGD(random_state=SEED, max_iter=3, tol=None, on_iteration=events.append).fit(X, y)

    assert [event["epoch"] for event in events] == [1, 2, 3]
    assert events[-1]["loss"] == model.loss_
    model.on_iteration = None
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))


def test_epochs_are_reported_on_rank_0_of_existing_ranks(world):
    X, y = sparse_rows()

    def fit_epochs(comm):
        events: list[dict] = []
        rp.SparseSGD(random_state=SEED, max_iter=3, tol=None, on_iteration=events.append).fit(X, y, comm=comm)
        return [event["epoch"] for event in events]

    assert world(2).run(fit_epochs) == [[1, 2, 3], []]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"loss": "log"}, "loss='log': expected one of log_loss, hinge, squared_error"),
        ({"n_features": 0}, "n_features=0: expected a whole number, 1 … 2147483647, or None"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"eta0": 0}, "eta0=0: expected a number > 0"),
        ({"n_iter_no_change": 0}, "n_iter_no_change=0: expected a whole number >= 1"),
        ({"tol": -1}, "tol=-1: expected a number >= 0"),
        ({"alpha": -1}, "alpha=-1: expected a number >= 0"),
    ],
)
def test_a_wrong_parameter_is_named(parameters, message):
    with pytest.raises(rp.InputError, match=message):
        rp.SparseSGD(**parameters).fit(*sparse_rows())


@pytest.mark.parametrize("parameters", [{"eta0": 1e300}, {"eta0": 1e155, "loss": "squared_error", "max_iter": 1}])
def test_a_descent_that_diverges_is_an_error(world, parameters):
    X, y = sparse_rows()

    def fit(comm):
        with pytest.raises(rp.InputError, match=r"epoch 1 are not finite: scale the columns, or lower eta0=1e\+"):
            rp.SparseSGD(random_state=SEED, **parameters).fit(X, y, comm=comm)

    world(2).run(fit)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 1:2\n0 two:3\n", "expected lines of 'label index:value …'"),
        ("1 1:2\n1 2:3\n", "rows has 1 class: expected at least 2"),
        ("# nothing\n", "rows has no rows"),
        ("", "rows has no rows"),
        ("1 1:2\n0 2:inf\n", "rows: index 2 has the value inf"),
        ("1 1:2\nnan 2:3\n", "rows: the label of a line is nan"),
        ("1 1:2\n0 3000000000:1\n", "rows: an index is above 2147483646"),
    ],
)
def test_wrong_files_are_reported(tmp_path, text, message):
    (tmp_path / "rows").write_text(text)
    with pytest.raises(rp.InputError, match=message):
        rp.SparseSGD().fit(tmp_path / "rows")
    with pytest.raises(rp.InputError, match="does not exist"):
        rp.SparseSGD().fit(tmp_path / "nothing")


def test_the_example_of_the_documentation_runs():
    assert doctest.testmod(sgd, optionflags=doctest.ELLIPSIS).failed == 0
