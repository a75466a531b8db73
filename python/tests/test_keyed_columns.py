"""Keys and values convert from and to NumPy, lists, Arrow and frames, without copies where layouts agree."""

from __future__ import annotations

import pickle

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import ripieno as rp
from numpy.testing import assert_array_equal
from ripieno.keyed import Emitter, columns

WORDS = ["", "é", "fig", "日本", "fig"]


def address(column: pa.Array | np.ndarray, buffer: int = 1) -> int:
    return column.ctypes.data if isinstance(column, np.ndarray) else column.buffers()[buffer].address


@pytest.mark.parametrize(
    "keys",
    [
        WORDS,
        tuple(WORDS),
        np.array(WORDS),
        np.array(WORDS, object),
        pa.array(WORDS),
        pa.array(WORDS, pa.large_string()),
        pa.array(WORDS).dictionary_encode(),
        pa.array(["x", *WORDS, "y"]).slice(1, 5),
        pa.chunked_array([WORDS[:2], [], WORDS[2:]]),
        pa.array(WORDS, pa.string_view()),
        pl.Series(WORDS),
        pl.Series(WORDS, dtype=pl.Categorical),
        pl.Series(WORDS, dtype=pl.Enum(sorted(set(WORDS)))),
        pl.concat(
            [pl.Series(WORDS[:2], dtype=pl.Categorical), pl.Series(WORDS[2:], dtype=pl.Categorical)], rechunk=False
        ),
        pd.Series(WORDS),
        pd.Series(WORDS, dtype="category"),
    ],
    ids=lambda keys: f"{type(keys).__module__}.{type(keys).__name__}",
)
def test_strings_are_read_from_any_column(keys):
    rows = rp.KeyValues(keys, np.arange(5))

    assert rows.keys.type == pa.large_string() and rows.keys.to_pylist() == WORDS
    assert rows.schema.keys == "string" and len(rows) == 5


@pytest.mark.parametrize("dtype", ["U4", "S4", np.dtypes.StringDType(), object], ids=str)
def test_strings_of_numpy_keep_inner_nuls(dtype):
    names = ["\0d", "a", "a\0b", "a\0c"]

    combined = rp.KeyValues(np.array(names, dtype), [4, 1, 2, 3]).combined().sorted()

    found = combined.keys.to_pylist()
    assert [key.decode() if dtype == "S4" else key for key in found] == names
    assert combined.values.tolist() == [4, 1, 2, 3]


@pytest.mark.parametrize("dtype", ["i1", "i4", "i8", "u2", "u8", ">i4"])
@pytest.mark.parametrize("convert", [np.asarray, pa.array, pl.Series, list], ids=lambda convert: convert.__name__)
def test_whole_numbers_become_int64(dtype, convert):
    if dtype == ">i4" and convert in (pa.array, pl.Series):
        pytest.skip("Arrow has this machine's byte order only")
    rows = rp.KeyValues(convert(np.array([3, 1, 2], dtype)), [1.5, 2.5, 3.5])

    assert rows.keys.dtype == np.int64 and rows.keys.tolist() == [3, 1, 2]
    assert rows.values.dtype == np.float64


def test_bytes_are_keys_of_another_kind_than_text():
    for keys in (
        [b"\xff", b""],
        np.array([b"\xff", b""]),
        pa.array([b"\xff", b""]),
        pa.array([b"\xff", b""]).cast("large_binary"),
    ):
        rows = rp.KeyValues(keys)
        assert rows.schema.keys == "binary" and rows.keys.to_pylist() == [b"\xff", b""] and rows.values is None
    fixed = rp.KeyValues(pa.array([b"ab", b"cd"], pa.binary(2)))
    assert fixed.keys.to_pylist() == [b"ab", b"cd"]


def test_numbers_and_large_strings_are_not_copied():
    numbers, values = np.arange(9), np.arange(18.0).reshape(9, 2)
    rows = rp.KeyValues(numbers, values)
    table = rows.to_arrow()
    assert address(rows.keys) == address(numbers) == address(table["key"].chunk(0))
    assert address(rows.values) == address(values) == address(table["value"].chunk(0).flatten())
    back = rp.KeyValues.from_arrow(table)
    assert address(back.keys) == address(numbers) and address(back.values) == address(values)
    assert back.values.shape == (9, 2)

    words = pa.array(["x", *WORDS], pa.large_string())
    for part in (words, words.slice(2)):
        rows = rp.KeyValues(part)
        assert rows.keys.to_pylist() == part.to_pylist()
        assert address(rows.keys, 2) == address(words, 2)
    assert address(rp.KeyValues(words).keys) == address(words)


def test_columns_that_are_not_aligned_are_copied_once():
    buffer = pa.py_buffer(bytes(1) + np.arange(4).tobytes()).slice(1)
    numbers = np.frombuffer(buffer, np.int64, 3)
    column = pa.Array.from_buffers(pa.int64(), 3, [None, buffer])
    words = pa.Array.from_buffers(pa.large_string(), 3, [None, buffer, pa.py_buffer(b"abc")])
    assert not numbers.flags.aligned

    for keys in (numbers, column, words):
        rows = rp.KeyValues(keys, numbers)
        assert getattr(rows.key_column, "offsets", rows.key_column).flags.aligned and rows.values.flags.aligned
        assert rows.combined().sorted().to_arrow().to_pydict() == {"key": rows.keys.tolist(), "value": [0, 1, 2]}


def test_characters_of_32_bit_strings_are_not_copied():
    words = pa.array(WORDS)

    assert address(rp.KeyValues(words).keys, 2) == address(words, 2)


def test_frames_round_trip():
    pandas = pd.DataFrame({"word": WORDS, "n": np.arange(5.0)})
    polars = pl.DataFrame({"word": WORDS, "n": np.arange(5.0)})
    for frame in (
        pandas,
        polars,
        duckdb.sql("select * from pandas"),
        pa.table(pandas),
        pa.table(pandas).to_batches()[0],
    ):
        rows = rp.KeyValues.from_arrow(frame, key="word", value="n")
        assert rows.keys.to_pylist() == WORDS and rows.values.tolist() == [0, 1, 2, 3, 4]
    rows = rp.KeyValues.from_arrow(polars, "word", "n")
    assert address(rows.values) == address(polars["n"].to_numpy())
    assert address(rp.KeyValues.from_arrow(pandas, "word", "n").values) == address(pandas["n"].to_numpy())
    assert pl.DataFrame(rows).equals(polars.rename({"word": "key", "n": "value"}))
    assert pa.table(rows).to_pandas().rename(columns={"key": "word", "value": "n"}).equals(pandas)
    assert duckdb.from_arrow(rows).aggregate("sum(value)").fetchall() == [(10.0,)]


def test_lists_of_one_length_are_rows():
    for kind in (pa.list_(pa.int32()), pa.large_list(pa.int32()), pa.list_(pa.int32(), 2)):
        column = pa.array([[9, 9], [1, 2], [3, 4]], kind)
        rows = rp.KeyValues(pa.array([5, 6, 7]).slice(1), column.slice(1))
        assert rows.values.tolist() == [[1, 2], [3, 4]] and rows.values.dtype == np.int32


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rp.KeyValues([1.5]), "keys: dtype float64"),
        (lambda: rp.KeyValues(np.zeros(2)), "keys: dtype float64"),
        (lambda: rp.KeyValues([True]), "keys: .* bool"),
        (lambda: rp.KeyValues([1, "a"]), "keys: "),
        (lambda: rp.KeyValues(["a", 1]), "keys: "),
        (lambda: rp.KeyValues([object()]), "keys: .* object"),
        (lambda: rp.KeyValues("word"), "keys: a str"),
        (lambda: rp.KeyValues({1: 2}), "keys: a dict"),
        (lambda: rp.KeyValues(np.zeros((2, 2), int)), r"keys: shape \(2, 2\)"),
        (lambda: rp.KeyValues(np.array([2**63], np.uint64)), "keys: 9223372036854775808: expected .* below"),
        (lambda: rp.KeyValues([2**63]), "keys: 9223372036854775808"),
        (lambda: rp.KeyValues([2**64]), "keys: "),
        (lambda: rp.KeyValues(pa.array([1.5])), "keys: double"),
        (lambda: rp.KeyValues(pa.array([1, None, 3])), "keys: 1 of 3 are null, the first in row 1"),
        (lambda: rp.KeyValues(["a", None]), "keys: 1 of 2 are null, the first in row 1"),
        (lambda: rp.KeyValues(pd.DataFrame({"a": [1]})), "keys: struct"),
        (lambda: rp.KeyValues(np.ma.array([1, 2], mask=[0, 1])), r"keys: 1 of 2 are masked, the first at \[1\]"),
        (lambda: rp.KeyValues([1], np.ma.array([[1, 2]], mask=[[0, 1]])), r"values: 1 of 2 .* first at \[0, 1\]"),
        (lambda: rp.KeyValues([1, 2], [1]), "values: 1 rows for 2 keys"),
        (lambda: rp.KeyValues([1, 2], [[1], [1, 2]]), "values: .* rows of equal length"),
        (lambda: rp.KeyValues([1, 2], pa.array([[1], [1, 2]])), "values: row 0 has 1 elements, row 1 has 2"),
        (lambda: rp.KeyValues([1, 2], pa.array([[1, 1], [None, 2]])), "values: 1 of 4 are null"),
        (lambda: rp.KeyValues([1, 2], pa.array([None, 2])), "values: 1 of 2 are null, the first in row 0"),
        (lambda: rp.KeyValues([1], np.array([object()])), "values: dtype object"),
        (lambda: rp.KeyValues([1], [1j]), "values: .*complex128"),
        (lambda: rp.KeyValues([1], ["a"]), "values: "),
        (lambda: rp.KeyValues([1], pa.array(["a"])), "values: string"),
        (lambda: rp.KeyValues([1], np.zeros((1, 0))), r"values: shape \(1, 0\)"),
        (lambda: rp.KeyValues([1], np.zeros((1, 1, 1))), r"values: shape \(1, 1, 1\)"),
        (lambda: rp.KeyValues.from_arrow(pa.table({"a": [1]})), "column 'key': expected one, there are 'a'"),
        (lambda: rp.KeyValues.from_arrow([1, 2]), "a list: expected a table"),
        (lambda: rp.KeyValues.joined([]), "no parts"),
        (lambda: rp.KeyValues.joined([rp.KeyValues([1]), rp.KeyValues(["a"])]), "string keys .* among int64 keys"),
        (lambda: rp.KeyValues([1]).sorted(by="size"), "by='size'"),
        (lambda: rp.KeyValues([1]).sorted(by="value"), "one value for each key"),
        (lambda: rp.KeyValues([1], [1]).top(-1), "k=-1"),
        (lambda: rp.KeyValues([1], [1]).take([0.7]), "take: rows of dtype float64"),
        (lambda: rp.KeyValues([1], [1]).combined(threads=0), "threads=0: expected a whole number, 1 … 4096"),
        (lambda: rp.KeyValues([1], [1]).combined(threads=-1), "threads=-1"),
    ],
)
def test_input_that_cannot_be_keys_or_values_is_rejected(make, message):
    with pytest.raises(rp.InputError, match=message):
        make()


def test_rows_are_sorted_by_key_or_value():
    rows = rp.KeyValues(["b", "é", "a", "", "c"], [2, 5, 2, 9, 1])
    assert rows.sorted().keys.to_pylist() == sorted(["b", "é", "a", "", "c"])
    assert rows.sorted(descending=True).keys.to_pylist() == sorted(["b", "é", "a", "", "c"], reverse=True)
    assert rows.sorted("value").keys.to_pylist() == ["c", "a", "b", "é", ""]
    assert rows.sorted("value", descending=True).keys.to_pylist() == ["", "é", "a", "b", "c"]
    for k in range(7):
        assert rows.top(k).keys.to_pylist() == ["", "é", "a", "b", "c"][:k]

    numbers = np.random.default_rng(1).integers(-50, 50, 1000)
    for dtype in ("i1", "u8", "f4", "?"):
        values = (numbers % 20).astype(dtype)
        rows = rp.KeyValues(numbers, values)
        frame = pd.DataFrame({"k": numbers, "v": values}).sort_values(["v", "k"], ascending=[False, True])
        assert_array_equal(rows.sorted("value", descending=True).keys, frame.k)
        assert_array_equal(rows.top(17).keys, frame.k[:17])
    nans = rp.KeyValues([1, 2, 3], [np.nan, 1.0, 2.0])
    assert nans.sorted("value").keys.tolist() == [2, 3, 1]
    assert [nans.top(k).keys.tolist() for k in (1, 2, 3)] == [[3], [3, 2], [3, 2, 1]]


def test_parts_are_joined_and_rows_taken():
    parts = [rp.KeyValues(pa.array(["x", "é", ""]).slice(1), [1, 2]), rp.KeyValues([]), rp.KeyValues(["日"], [3])]
    joined = rp.KeyValues.joined(parts)
    assert joined.keys.to_pylist() == ["é", "", "日"] and joined.values.tolist() == [1, 2, 3]
    assert joined.take([2, 0, 2]).keys.to_pylist() == ["日", "é", "日"]
    assert joined.take(joined.values > 1).keys.to_pylist() == ["", "日"]
    assert rp.KeyValues.joined([rp.KeyValues([1]), rp.KeyValues([2, 3])]).keys.tolist() == [1, 2, 3]
    assert len(rp.KeyValues.joined([rp.KeyValues([])])) == 0


def test_a_pickle_holds_only_its_own_rows_without_copies():
    words = pa.array(["long" * 1000, "a", "é"], pa.large_string()).slice(1)
    buffers: list[pickle.PickleBuffer] = []
    rows = rp.KeyValues(words, np.arange(2.0))
    pickled = pickle.dumps(rows, protocol=5, buffer_callback=buffers.append)
    back = pickle.loads(pickled, buffers=buffers)

    assert back.keys.to_pylist() == ["a", "é"] and back.values.tolist() == [0, 1]
    assert len(pickled) < 1000 and sum(buffer.raw().nbytes for buffer in buffers) == 3 * 8 + 3 + 2 * 8
    assert address(back.values) == address(rows.values)


@pytest.mark.parametrize("keys", [[3, 1, 3], ["c", "a", "c"]], ids=["numbers", "strings"])
@pytest.mark.parametrize("combine", ["sum", "concat", np.hypot], ids=["op", "concat", "function"])
def test_columns_that_have_been_checked_are_not_checked_again(monkeypatch, keys, combine):
    rows = rp.KeyValues(keys, [1.0, 2.0, 4.0])
    for check in ("keys_of", "values_of"):
        monkeypatch.setattr(columns, check, lambda *given: pytest.fail("checked again"))

    emitter = Emitter(1, combine=combine)
    emitter.add(rows)
    found = emitter.combined()

    assert len(found) == 2 and len(rows.take([0, 1]).sorted("value")) == 2
    assert len(rp.KeyValues.joined([rows, rows])) == 6


def test_whole_numbers_of_a_list_are_not_rounded():
    assert rp.KeyValues([1, 2], [2**53, 0.5]).values.tolist() == [2**53, 0.5]
    for values in ([1, 2**63 + 1], [0.5, 2**53 + 1], [[1, 2], [-1, 2**63 + 1]]):
        with pytest.raises(rp.InputError, match=r"values: \d+ is not exact as a float64: expected an array of one"):
            rp.KeyValues([1, 2], values)
    assert rp.KeyValues([1], np.array([2**63 + 1], np.uint64)).values.tolist() == [2**63 + 1]


def test_a_mask_of_another_length_is_refused():
    with pytest.raises(rp.InputError, match=r"take: booleans of shape \(1,\): expected one for each of 3 rows"):
        rp.KeyValues([1, 2, 3]).take([True])
