"""K-means of sparse matrices: equal to dense arrays of the same rows, for any number of workers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import ripieno as rp
from click.testing import CliRunner
from ripieno.algorithms.kmeans import divided
from ripieno.cli.kmeans import kmeans_command
from ripieno.cli.predict import predict_command
from ripieno.errors import InputError
from ripieno.input.matrix.sparse_files import SparseFiles
from scipy.sparse import coo_matrix, csc_matrix, csr_matrix, random_array, save_npz
from sklearn import cluster
from sklearn.datasets import dump_svmlight_file
from varied import exhaustively

SEED = 5
K = 40


@pytest.fixture(scope="module")
def matrix():
    """Return rows of few entries, some empty, and some repeated."""
    random = np.random.default_rng(SEED)
    rows = random_array((600, 90), density=0.08, format="lil", rng=random)
    rows[[3, 77]] = 0
    rows[[5, 400]] = rows[4]
    return csr_matrix(rows)


def fitted(X, workers=1, world=None, **parameters):
    engine = {} if world is None else {"engine": world(workers)}
    with warnings.catch_warnings(action="ignore"):
        return rp.KMeans(K, max_iter=8, tol=0, random_state=SEED, **engine, **parameters).fit(X)


@pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
@pytest.mark.parametrize("centroids", ["whole", "divided"])
def test_sparse_rows_produce_the_result_of_dense_rows(world, matrix, workers, centroids):
    start = np.random.default_rng(SEED).permutation(matrix.toarray())[:K]
    weights = np.random.default_rng(SEED).integers(0, 3, matrix.shape[0]).astype(float)
    with warnings.catch_warnings(action="ignore"):
        dense = rp.KMeans(K, init=start, max_iter=8, tol=0).fit(matrix.toarray(), sample_weight=weights)
        sparse = rp.KMeans(
            K, init=start, max_iter=8, tol=0, engine=world(workers), options=rp.KMeans.Options(centroids=centroids)
        )
        sparse.fit(matrix, sample_weight=weights)

    np.testing.assert_array_equal(sparse.labels_, dense.labels_)
    np.testing.assert_allclose(sparse.cluster_centers_, dense.cluster_centers_, rtol=1e-12, atol=1e-15)
    assert sparse.inertia_ == pytest.approx(dense.inertia_, rel=1e-12)
    assert sparse.n_iter_ == dense.n_iter_
    np.testing.assert_array_equal(sparse.predict(matrix), dense.predict(matrix.toarray()))
    np.testing.assert_allclose(sparse.transform(matrix), dense.transform(matrix.toarray()), atol=1e-7)
    assert sparse.score(matrix) == pytest.approx(dense.score(matrix.toarray()), rel=1e-12)


def test_labels_match_scikit_learn(matrix):
    start = np.random.default_rng(SEED).permutation(np.unique(matrix.toarray(), axis=0))[:K]
    ours = rp.KMeans(K, init=start, max_iter=20).fit(matrix)
    theirs = cluster.KMeans(K, init=start, n_init=1, max_iter=20).fit(matrix)

    np.testing.assert_array_equal(ours.labels_, theirs.labels_)
    assert ours.inertia_ == pytest.approx(theirs.inertia_, rel=1e-9)


@pytest.mark.parametrize("init", ["k-means||", *exhaustively("random", "k-means++")])
def test_every_start_is_the_same_for_any_number_of_workers(world, matrix, init):
    models = [fitted(matrix, workers, world, init=init, n_init=2) for workers in (1, 3)]
    np.testing.assert_array_equal(models[1].labels_, models[0].labels_)
    dense = fitted(matrix.toarray(), init=init, n_init=2)
    assert models[0].inertia_ == pytest.approx(dense.inertia_, rel=0.1)


def test_other_formats_of_a_matrix_are_the_same_rows(matrix):
    expected = fitted(matrix).labels_
    twice = coo_matrix(matrix)
    halves = coo_matrix((np.tile(twice.data / 2, 2), (np.tile(twice.row, 2), np.tile(twice.col, 2))), matrix.shape)
    for each in (csc_matrix(matrix), csr_matrix(halves), matrix.astype(np.float32).astype(np.float64)):
        np.testing.assert_allclose(fitted(each).inertia_, fitted(matrix).inertia_, rtol=1e-5)
    np.testing.assert_array_equal(fitted(csc_matrix(matrix)).labels_, expected)


def test_a_sparse_fit_resumes_from_its_checkpoint(matrix, tmp_path, monkeypatch):
    monkeypatch.setattr(divided, "BLOCK_BYTES", 4000)
    for number, centroids in enumerate(("whole", "divided")):
        parameters = {"init": matrix.toarray()[-K:], "tol": 0, "centroids": centroids}
        with warnings.catch_warnings(action="ignore"):
            rp.KMeans(K, **parameters, max_iter=3, checkpoint=tmp_path / str(number)).fit(matrix)
            resumed = rp.KMeans(K, **parameters, max_iter=6, checkpoint=tmp_path / str(number)).fit(matrix)
            whole = rp.KMeans(K, **parameters, max_iter=6).fit(matrix)
        assert resumed.resumed_from_ in (1, 2)
        np.testing.assert_array_equal(resumed.labels_, whole.labels_)


def test_batches_are_taken_from_sparse_rows(matrix):
    start = matrix.toarray()[-K:]
    models = [
        rp.MiniBatchKMeans(K, init=start, batch_size=64, random_state=SEED).fit(X) for X in (matrix, matrix.toarray())
    ]
    np.testing.assert_array_equal(models[0].labels_, models[1].labels_)
    more = [model.partial_fit(X[:50]) for model, X in zip(models, (matrix, matrix.toarray()), strict=True)]
    np.testing.assert_allclose(more[0].cluster_centers_, more[1].cluster_centers_, rtol=1e-12)


def test_an_invalid_number_is_reported_with_its_position(matrix):
    for value, name in ((np.nan, "NaN"), (np.inf, "infinity")):
        bad = matrix.tolil()
        bad[17, 30] = value
        with pytest.raises(rp.InputError, match=f"row 17, column 30: {name} where a finite number is expected"):
            rp.KMeans(3).fit(csr_matrix(bad))
    with pytest.raises(rp.InputError, match="assign='near': expected dense rows"):
        rp.KMeans(3, options=rp.KMeans.Options(assign="near")).fit(matrix)
    with pytest.raises(ValueError, match="90"):
        fitted(matrix).predict(matrix[:, :80])


@pytest.mark.parametrize("name", ["rows.libsvm", *exhaustively("rows.npz")])
def test_labels_of_sparse_files_match_their_matrix(tmp_path, matrix, name):
    path, start, out = tmp_path / name, tmp_path / "start.npy", tmp_path / "out"
    np.save(start, np.random.default_rng(SEED).permutation(matrix.toarray())[:K])
    if name.endswith(".npz"):
        save_npz(path, matrix)
    else:
        dump_svmlight_file(matrix, np.ones(matrix.shape[0]), str(path), zero_based=False)
    arguments = [str(path), "-k", str(K), "--start", str(start), "--max-iter", "8", "--tol", "0", "--out", str(out)]
    done = CliRunner().invoke(kmeans_command, arguments, catch_exceptions=False)

    assert done.exit_code == 0
    with warnings.catch_warnings(action="ignore"):
        expected = rp.KMeans(K, init=np.load(start), max_iter=8, tol=0).fit(matrix)
    np.testing.assert_array_equal(np.load(out / "labels.npy"), expected.labels_)

    again = tmp_path / "again.npy"
    done = CliRunner().invoke(predict_command, [str(out), str(path), "--out", str(again)], catch_exceptions=False)
    assert done.exit_code == 0
    np.testing.assert_array_equal(np.load(again), expected.labels_)


@pytest.mark.parametrize("zero_based", [False, True])
def test_sparse_text_is_predicted_with_the_first_column_of_the_fit(tmp_path, matrix, zero_based):
    whole, rest, beyond = (tmp_path / name for name in ("whole.svm", "rest.svm", "beyond.svm"))
    dump_svmlight_file(matrix, np.ones(matrix.shape[0]), str(whole), zero_based=zero_based)
    few = matrix[:, :60].tolil()
    few[:, :7] = 0
    dump_svmlight_file(csr_matrix(few), np.ones(matrix.shape[0]), str(rest), zero_based=zero_based)
    beyond.write_text(f"1 3:1 {matrix.shape[1] + 1}:2\n")
    save_npz(tmp_path / "rows.npz", matrix)

    model, of_matrix = fitted(str(whole)), fitted([tmp_path / "rows.npz"])
    assert (model.first_column_, of_matrix.first_column_) == (1 - zero_based, None)
    np.testing.assert_array_equal(model.labels_, of_matrix.labels_)
    padded = csr_matrix((few.tocsr().data, few.tocsr().indices, few.tocsr().indptr), shape=matrix.shape)
    np.testing.assert_array_equal(model.predict(rest), model.predict(padded))
    with pytest.raises(InputError, match=f"beyond.svm has index {matrix.shape[1] + 1}: expected {1 - zero_based} to"):
        model.predict(beyond)
    with pytest.raises(InputError, match="indices may start at 0 or at 1"):
        of_matrix.predict(str(whole))


def test_batches_of_sparse_files_are_fitted(tmp_path, matrix):
    save_npz(tmp_path / "rows.npz", matrix)
    start = matrix.toarray()[-K:]
    models = [rp.MiniBatchKMeans(K, init=start, random_state=SEED) for _ in range(2)]
    models[0].partial_fit(matrix).partial_fit(matrix[:50])
    models[1].partial_fit(str(tmp_path / "rows.npz")).partial_fit(matrix[:50])
    np.testing.assert_array_equal(models[0].cluster_centers_, models[1].cluster_centers_)


def test_dense_and_sparse_files_cannot_be_mixed(tmp_path, matrix):
    save_npz(tmp_path / "rows.npz", matrix)
    np.save(tmp_path / "rows.npy", matrix.toarray())

    assert SparseFiles.find([str(tmp_path / "rows.npy")]) is None
    with pytest.raises(InputError, match=r"rows\.npz and .*rows\.npy are of different kinds"):
        SparseFiles.find([str(tmp_path / "rows.npy"), str(tmp_path / "rows.npz")])


def test_64_bit_indices_produce_the_same_clusters(matrix):
    long = matrix.copy()
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    model = fitted(matrix)
    assert fitted(long).inertia_ == model.inertia_
    np.testing.assert_array_equal(model.predict(long), model.labels_)
    wide = csr_matrix(([1.0], ([0], [2**31])), shape=(1, 2**31 + 1))
    with pytest.raises(InputError, match="columns, expected at most"):
        rp.KMeans(1).fit(wide)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indices": [0, 10, 2]}, "indices must be < 10"),
        ({"indices": [0, -1, 2]}, "indices must be >= 0"),
        ({"indptr": [0, 1, 2**30]}, "index pointer"),
        ({"indptr": [0, 5, 3]}, "."),
        ({"indptr": [-5, 1, 3]}, "should start with 0"),
        ({"data": [1.0]}, "same size|length"),
        ({"shape": [2, -1]}, "shape"),
        ({"shape": [10**15, 10]}, "index pointer size"),
        ({"data": ["x", "y", "z"]}, "expected rows, columns and numbers"),
    ],
)
def test_a_sparse_file_is_checked_before_it_is_used(change, message, tmp_path):
    parts = {"data": [1.0, 2, 3], "indices": [0, 1, 2], "indptr": [0, 1, 3], "shape": [2, 10], "format": b"csr"}
    np.savez(tmp_path / "s.npz", **{name: np.array(part) for name, part in (parts | change).items()})
    with pytest.raises(InputError, match=rf"s\.npz is not a sparse matrix of SciPy: .*({message})"):
        rp.KMeans(1).fit(tmp_path / "s.npz")


@pytest.mark.parametrize("estimator", [rp.KMeans, rp.MiniBatchKMeans])
def test_centroids_have_the_type_of_the_entries(world, matrix, estimator):
    model = estimator(K, random_state=0, max_iter=2, engine=world(2)).fit(matrix.astype(np.float32))
    assert model.cluster_centers_.dtype == np.float32
    np.testing.assert_array_equal(model.predict(matrix.astype(np.float32)).shape, model.labels_.shape)
    if estimator is rp.MiniBatchKMeans:
        assert model.partial_fit(matrix.astype(np.float32)).cluster_centers_.dtype == np.float32
