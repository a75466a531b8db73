"""Column names: a fit stores the names of files and frames, and later calls compare them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ripieno as rp
from sklearn.cluster import KMeans as SklearnKMeans

ROWS = np.random.default_rng(0).normal(size=(30, 2))
TABLE = pa.table({"width": ROWS[:, 0], "height": ROWS[:, 1]})


def csv(table, path):
    table.to_pandas().to_csv(path, index=False)
    return path


def parquet(table, path):
    pq.write_table(table, path)
    return path


FORMS = {
    "pandas": lambda table, _: table.to_pandas(),
    "polars": lambda table, _: pl.from_arrow(table),
    "arrow": lambda table, _: table,
    "csv": lambda table, folder: csv(table, folder / f"{'-'.join(table.column_names)}.csv"),
    "parquet": lambda table, folder: parquet(table, folder / f"{'-'.join(table.column_names)}.parquet"),
}


@pytest.fixture(params=FORMS)
def given(request, tmp_path):
    """Return a table in one of the forms with column names."""
    return lambda table: FORMS[request.param](table, tmp_path)


def test_a_fit_keeps_the_names_and_works_on_input_with_the_same(given):
    model = rp.KMeans(3, random_state=0).fit(given(TABLE))

    assert model.feature_names_in_.tolist() == ["width", "height"]
    np.testing.assert_array_equal(model.predict(given(TABLE)), model.labels_)
    assert model.transform(given(TABLE)).shape == (30, 3) and model.score(given(TABLE)) < 0


@pytest.mark.parametrize("method", ["predict", "transform", "score"])
def test_swapped_and_renamed_columns_raise_the_errors_of_scikit_learn(given, method):
    model = rp.KMeans(3, random_state=0).fit(given(TABLE))
    reference = SklearnKMeans(3, random_state=0).fit(TABLE.to_pandas())

    for other in (TABLE.select(["height", "width"]), TABLE.rename_columns(["width", "depth"])):
        with pytest.raises(ValueError, match="feature names") as expected:
            getattr(reference, method)(other.to_pandas())
        with pytest.raises(ValueError, match="feature names") as found:
            getattr(model, method)(given(other))
        assert str(found.value) == str(expected.value)


def test_missing_column_names_cause_the_warnings_of_scikit_learn(given, tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    named, nameless = (rp.KMeans(3, random_state=0).fit(source) for source in (given(TABLE), tmp_path / "rows.npy"))

    assert not hasattr(nameless, "feature_names_in_")
    with pytest.warns(UserWarning, match="X does not have valid feature names, but KMeans was fitted with"):
        named.predict(tmp_path / "rows.npy")
    with pytest.warns(UserWarning, match="X has feature names, but KMeans was fitted without"):
        nameless.predict(given(TABLE))
    assert not hasattr(named.fit(ROWS), "feature_names_in_")


def test_files_with_different_column_names_are_reported(tmp_path):
    first, other = csv(TABLE, tmp_path / "a.csv"), parquet(TABLE.select(["height", "width"]), tmp_path / "b.parquet")

    with pytest.raises(rp.InputError, match=r"b\.parquet: column 0 is called 'height', but 'width' in .*a\.csv"):
        rp.KMeans(3).fit([first, other])

    np.savetxt(tmp_path / "bare.csv", ROWS, delimiter=",")
    assert rp.KMeans(3).fit([tmp_path / "bare.csv", first]).feature_names_in_.tolist() == ["width", "height"]


def test_an_error_in_a_column_is_reported_with_its_name(tmp_path):
    (tmp_path / "nan.csv").write_text("width,height\n1,2\n3,nan\n")
    (tmp_path / "word.csv").write_text("width,height\n1,2\n3,tall\n")
    heights = pa.array(np.where(np.arange(30) == 7, np.inf, 1.0))
    parquet(TABLE.set_column(1, "height", heights), tmp_path / "inf.parquet")

    for name, message in [
        ("nan.csv", r"nan\.csv, line 3, column 'height' \(2 of 2\): NaN"),
        ("word.csv", r"word\.csv, line 3, column 'height' \(2 of 2\): 'tall' is not a number"),
        ("inf.parquet", r"inf\.parquet, row 7, column 'height' \(2 of 2\): infinity"),
    ]:
        with pytest.raises(rp.InputError, match=message):
            rp.KMeans(1).fit(tmp_path / name)


def test_sparse_descent_compares_names_of_frames():
    classes = (ROWS[:, 0] > 0).astype(int)
    model = rp.SparseSGD(random_state=0, max_iter=2).fit(TABLE.to_pandas(), classes)

    assert model.feature_names_in_.tolist() == ["width", "height"]
    with pytest.raises(ValueError, match="must be in the same order"):
        model.predict(TABLE.select(["height", "width"]).to_pandas())
