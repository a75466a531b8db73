"""Hashed features compared with scikit-learn's FeatureHasher."""

from __future__ import annotations

import numpy as np
import pytest
import ripieno as rp
from sklearn.feature_extraction import FeatureHasher

WORDS = [["good", "film", "good"], [], ["straße", "雪", "a", "ab", "abc", "abcd", "abcde"]]
NAMED = [{"rating": 2.5, "genre": "drama", "none": 0}, {"rating": -1, "year": 1999}, {}]


@pytest.mark.parametrize("alternate_sign", [True, False])
@pytest.mark.parametrize("n_features", [1, 7, 16, 2**20, 2**31 - 1])
@pytest.mark.parametrize(("kind", "rows"), [("string", WORDS), ("dict", NAMED)])
def test_rows_match_scikit_learn(kind, rows, n_features, alternate_sign):
    theirs = FeatureHasher(n_features, input_type=kind, alternate_sign=alternate_sign).transform(rows)
    ours = rp.hash_features(rows, n_features, alternate_sign=alternate_sign)
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    for actual, expected in [(ours.indptr, theirs.indptr), (ours.indices, theirs.indices), (ours.data, theirs.data)]:
        np.testing.assert_array_equal(actual, expected)


def test_pairs_equal_dicts_and_bytes_equal_strings():
    pairs = [[*row.items()] for row in NAMED]
    np.testing.assert_array_equal(rp.hash_features(pairs, 64).toarray(), rp.hash_features(NAMED, 64).toarray())
    as_bytes = [[word.encode() for word in row] for row in WORDS]
    np.testing.assert_array_equal(rp.hash_features(as_bytes, 64).toarray(), rp.hash_features(WORDS, 64).toarray())


@pytest.mark.parametrize(
    ("rows", "words"),
    [(["a string"], "row 0 is a string"), ([["a"], [3]], "row 1 has 3"), ([[("a", None)]], "a number or string")],
)
def test_an_invalid_feature_is_reported_with_its_row(rows, words):
    with pytest.raises(rp.InputError, match=words):
        rp.hash_features(rows)


def test_a_classifier_learns_from_hashed_categories():
    colors = np.random.default_rng(0).choice(["red", "green", "blue"], (400, 3))
    rows = rp.hash_features([{f"at {i}": color for i, color in enumerate(row)} for row in colors], 64)
    is_red = colors[:, 1] == "red"
    model = rp.SparseSGD(max_iter=20, random_state=0).fit(rows, is_red)
    assert model.score(rows, is_red) == 1
