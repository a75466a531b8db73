"""Results and errors do not depend on the kind of input or on the number of workers."""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import ripieno as rp
from scipy.sparse import csr_matrix

ROWS = np.random.default_rng(0).integers(0, 100, (40, 3))
CLASSES = np.arange(40) % 2
STRIDED = np.zeros((80, 6), np.float32)
STRIDED[::2, ::2] = ROWS


def read_only(rows):
    rows.flags.writeable = False
    return rows


def with_one(value, dtype=np.float64):
    rows = ROWS.astype(dtype)
    rows[31, 2] = value
    return rows


GOOD = {
    "list": ROWS.tolist(),
    "read-only": read_only(ROWS.astype(np.float64)),
    "by columns": np.asfortranarray(ROWS.astype(np.float32)),
    "every other": STRIDED[::2, ::2],
    "backwards": np.ascontiguousarray(ROWS[::-1].astype(np.float64))[::-1],
    "float16": ROWS.astype(np.float16),
    "big-endian": ROWS.astype(">f8"),
    "int64": ROWS,
    "int8": ROWS.astype(np.int8),
    "uint8": ROWS.astype(np.uint8),
    "objects": ROWS.astype(object),
    "unmasked": np.ma.masked_array(ROWS.astype(np.float64)),
}
BAD = {
    "one dimension": (np.arange(9.0), "Expected 2D array, got 1D array"),
    "three dimensions": (np.zeros((9, 2, 2)), "dim 3"),
    "no columns": (np.zeros((9, 0)), r"Found array with 0 feature\(s\)"),
    "no rows": (np.zeros((0, 3)), r"Found array with 0 sample\(s\)"),
    "words": (np.array([["a", "b"], ["c", "d"]]), "could not convert string to float"),
    "complex": (ROWS + 1j, "Complex data not supported"),
    "ragged": ([[1.0, 2.0], [3.0]], "inhomogeneous"),
    "masked": (np.ma.masked_array(ROWS.astype(float), ROWS > 90), r"X: \d+ of 120 are masked"),
    "nothing": (None, "Expected 2D array, got scalar array"),
}
NOT_FINITE = {"NaN": np.nan, "infinity": np.inf}


TABLE = pa.table(dict(zip("abc", ROWS.T.astype(np.float64), strict=True)))
# Each test creates a new stream, because a stream can be read only once.
STREAMS = {
    "Arrow stream": TABLE.to_reader,
    "record batches": lambda: TABLE.to_batches(max_chunksize=7),
    "DuckDB relation": lambda: duckdb.from_arrow(TABLE),
    "Arrow capsules only": lambda: OnlyStream(TABLE),
}


class OnlyStream:
    """An object that only supports Arrow's stream protocol."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def centers(rows, workers, world):
    return rp.KMeans(4, random_state=0, engine=world(workers)).fit(rows).cluster_centers_


@pytest.mark.parametrize("kind", STREAMS)
def test_streams_of_arrow_are_rows_with_names_of_columns(kind):
    expected = rp.KMeans(4, random_state=0).fit(TABLE)

    clustered = rp.KMeans(4, random_state=0).fit(STREAMS[kind]())
    fitted = rp.LogisticRegression().fit(STREAMS[kind](), CLASSES)

    assert np.array_equal(clustered.cluster_centers_, expected.cluster_centers_)
    assert list(clustered.feature_names_in_) == list(fitted.feature_names_in_) == ["a", "b", "c"]
    assert np.array_equal(fitted.predict(STREAMS[kind]()), rp.LogisticRegression().fit(TABLE, CLASSES).predict(TABLE))


def test_a_query_without_a_result_is_reported():
    with pytest.raises(rp.InputError, match=r"a LazyFrame has no rows yet: expected the result of its collect\(\)"):
        rp.KMeans(2).fit(pl.from_arrow(TABLE).lazy())


def test_every_rank_refuses_an_iterator_and_names_the_expected_types(world):
    def program(comm):
        batches = iter(TABLE.to_batches()) if comm.rank == 1 else TABLE
        with pytest.raises(rp.InputError, match=r"list_iterator has no columns .* record batches, or a pyarrow"):
            rp.KMeans(2).fit(batches, comm=comm, rows="own")

    with pytest.raises(rp.InputError, match=r"a generator has no columns before it is read"):
        rp.KMeans(2).fit(row for row in ROWS)
    world(2).run(program)


@pytest.mark.parametrize("kind", GOOD)
def test_rows_of_any_kind_produce_equal_models_for_any_number_of_workers(world, kind):
    rows = GOOD[kind]
    expected = centers(ROWS.astype(np.float64), 1, world)
    learned = rp.SparseSGD(max_iter=1, batch_size=40, random_state=0).fit(ROWS.astype(np.float64), CLASSES)

    for workers in (1, 2, 3):
        np.testing.assert_allclose(centers(rows, workers, world), expected, rtol=1e-5)
        model = rp.SparseSGD(max_iter=1, batch_size=40, random_state=0, engine=world(workers)).fit(rows, CLASSES)
        np.testing.assert_allclose(model.coef_, learned.coef_, rtol=1e-9)


def test_booleans_are_numbers_for_any_number_of_workers(world):
    rows = ROWS > 50

    for workers in (1, 2, 3):
        np.testing.assert_allclose(centers(rows, workers, world), centers(rows * 1.0, 1, world))


@pytest.mark.parametrize("kind", BAD)
def test_input_that_cannot_be_clustered_is_reported_alike_by_any_number_of_workers(kind):
    rows, message = BAD[kind]
    messages = []
    for workers in (1, 2, 3):
        with pytest.raises((ValueError, TypeError), match=message) as caught:
            rp.KMeans(2, workers=workers).fit(rows)
        messages.append(f"{caught.type.__name__}: {caught.value}")

    assert len(set(messages)) == 1


@pytest.mark.parametrize("kind", BAD)
def test_input_that_cannot_be_learned_from_is_reported(kind):
    rows, message = BAD[kind]

    with pytest.raises((ValueError, TypeError), match=message):
        rp.SparseSGD().fit(rows, np.arange(0 if rows is None else len(rows)) % 2)


def test_k_means_and_sgd_accept_sparse_rows():
    assert rp.KMeans(2, random_state=0).fit(csr_matrix(ROWS)).n_features_in_ == 3
    assert rp.SparseSGD(max_iter=1).fit(csr_matrix(ROWS), CLASSES).n_features_in_ == 3


@pytest.mark.parametrize("name", NOT_FINITE)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ">f8"])
def test_values_that_are_not_finite_are_found_in_any_type(name, dtype):
    with pytest.raises(rp.InputError, match=f"row 31, column 2: {name}"):
        rp.KMeans(2).fit(with_one(NOT_FINITE[name], dtype))


# A null among categories. PyArrow's own conversion to NumPy makes it the last category.
CODED = pa.DictionaryArray.from_arrays(pa.array([0, None, 1, 0]), pa.array([5.0, 7.0]))
NAMED = pa.DictionaryArray.from_arrays(pa.array([0, None, 1, 0]), pa.array(["x", "y"]))
CODES = pa.table({"a": CODED, "b": [1.0, 2.0, 3.0, 4.0]})
POINTS = np.arange(8.0).reshape(4, 2)


@pytest.mark.parametrize("given", [lambda: CODES, lambda: CODES.to_batches()[0], CODES.to_reader, CODES.to_pandas])
def test_a_null_among_categories_is_a_missing_value(given):
    with pytest.raises(rp.InputError, match="row 1, column 0: NaN"):
        rp.KMeans(1).fit(given())


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (lambda: rp.LogisticRegression().fit(POINTS, NAMED), "y: 1 of 4"),
        (
            lambda: rp.LogisticRegression().fit(pa.table({"a": POINTS[:, 0], "l": NAMED}), target="l"),
            "y, column 'l': 1",
        ),
        (lambda: rp.SparseSGD().fit(POINTS, NAMED), "y: 1 of 4"),
        (lambda: rp.SparseSGD().fit(POINTS, ["a", None, "b", "b"]), "y: 1 of 4"),
        (lambda: rp.LogisticRegression().fit(POINTS, pl.Series(["a", None, "b", "b"])), "y: 1 of 4"),
        (lambda: rp.LogisticRegression().fit(POINTS, np.array(["a", None, "b", "b"])), "y: 1 of 4"),
        (lambda: rp.Ridge().fit(CODES, target="a"), "y, column 'a': 1 of 4"),
        (lambda: rp.Ridge().fit(POINTS, CODED), "y: 1 of 4"),
        (lambda: rp.KMeans(1).fit(POINTS, sample_weight=CODED), "sample_weight: 1 of 4"),
        (lambda: rp.PageRank().fit((range(4), range(4), CODED)), "edges: weights: 1 of 4"),
        (lambda: rp.PageRank(personalization=(range(4), CODED)).fit(POINTS.astype(int)), "personalization: 1 of 4"),
        (lambda: rp.ALS(1).fit((range(4), range(4), CODED)), "ratings: ratings: 1 of 4"),
        (lambda: rp.ALS(1).fit((NAMED, range(4), range(4))), "ratings: users: 1 of 4"),
    ],
)
def test_a_null_among_targets_and_weights_is_refused(fit, message):
    with pytest.raises(rp.InputError, match=f"{message}.*missing"):
        fit()


def test_dates_are_no_features_and_no_targets():
    days = np.array(["2020-01-01"] * 4, "M8[ms]")
    for X in (pa.table({"a": days}), pd.DataFrame({"a": days}), pl.DataFrame({"a": days}), days[:, None]):
        with pytest.raises(rp.InputError, match=r"X.*: the type of the values is .*, expected real numbers"):
            rp.KMeans(1).fit(X)
    with pytest.raises(rp.InputError, match=r"y: the type of the values is datetime64.*, expected real numbers"):
        rp.Ridge().fit(POINTS, days)


def test_booleans_in_bytes_are_booleans():
    flags = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 1, -1, 2], pa.int8()))
    assert rp.KMeans(1).fit(pa.table({"a": flags})).cluster_centers_.tolist() == [[0.75]]


def test_equal_names_of_columns_are_refused():
    for frame in (pa.table([[1.0], [2.0]], ["a", "a"]), pd.DataFrame(POINTS, columns=["a", "a"])):
        for options in ({}, {"columns": ["a"]}):
            with pytest.raises(rp.InputError, match="X has several columns named 'a': expected different names"):
                rp.KMeans(1).fit(frame, **options)


def test_numbers_that_are_not_real_are_no_ratings_and_no_weights():
    for values in (np.array([1 + 2j, 3]), np.array(["2020-01-01", "2020-01-02"], "M8[D]")):
        with pytest.raises(rp.InputError, match=r"ratings: the type of the values is .*, expected numbers"):
            rp.ALS(1).fit(([1, 2], [1, 2], values))
        with pytest.raises(rp.InputError, match=r"edges: weights of type .*, expected real numbers"):
            rp.PageRank().fit(([1, 2], [1, 2], values))


HIDDEN = np.ma.masked_array(np.ones(40), np.arange(40) == 3)


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (lambda: rp.KMeans(2).fit(ROWS, sample_weight=HIDDEN), r"sample_weight: 1 of 40 are masked, .* at \[3\]"),
        (lambda: rp.SparseSGD().fit(ROWS, HIDDEN), "y: 1 of 40 are masked"),
        (lambda: rp.KMeans(2).fit(ROWS).predict(BAD["masked"][0]), "X: .* are masked"),
        (lambda: rp.SparseSGD().fit(ROWS, CLASSES).predict(BAD["masked"][0]), "X: .* are masked"),
        (lambda: rp.PageRank().fit(np.ma.masked_array([[0, 1], [1, 2]], [[0, 0], [0, 1]])), "edges: 1 of 2 are masked"),
        (lambda: rp.PageRank().fit(([0] * 40, range(40), HIDDEN)), "weights: 1 of 40 are masked"),
        (lambda: rp.PageRank(personalization=(range(40), HIDDEN)).fit(np.array([[0, 1]])), "personalization: 1 of 40"),
        (lambda: rp.KMeans(1, init=np.ma.masked_array([[1.0, 2, 3]], [0, 0, 1])).fit(ROWS), "init: 1 of 3 are masked"),
    ],
)
def test_masked_values_are_refused(fit, message):
    with pytest.raises(rp.InputError, match=message):
        fit()
