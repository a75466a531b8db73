"""Splits of CSV, .npy and Parquet hold every record once, as in readers of whole files."""

from __future__ import annotations

import base64
import csv
import gzip
import pickle
import random
import re
import tracemalloc
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import ripieno as rp
from hypothesis import given, settings
from hypothesis import strategies as st
from ripieno.algorithms.als.table import opened
from ripieno.cli import main
from ripieno.files import matrix_market
from ripieno.graph import graph
from ripieno.input import cutting, divide, lines, splits
from ripieno.input.columns import COLUMNS, TableOptions, arrays
from ripieno.input.columns.libsvm import LibsvmText
from ripieno.input.columns.parquet import ParquetColumns
from ripieno.input.matrix import dataset, open_source
from scipy import sparse
from varied import exhaustively

COUNTS = range(1, 21)
CSVS = {
    "plain": "".join(f"{i},{i / 4},word {i}\n" for i in range(60)),
    "crlf": "".join(f"{i},{i / 4},word {i}\r\n" for i in range(60)),
    "no-end": "1,2.5,a\n2,3.5,b\n3,4.5,c",
    "line-ends-in-quotes": "".join(f'{i},{i / 4},"one\ntwo, ""three""\n\n{i}"\n' for i in range(40)),
    "giant": '1,0.5,a\n2,1.5,"' + "x\n" * 3000 + '"\n3,2.5,c\n4,3.5,d\n',
    "nulls": "1,,\n,2.5,\n,,c\n" * 9,
    "no-records": "",
}


def whole(text, **options):
    return pa.csv.read_csv(
        pa.BufferReader(text.encode()), parse_options=pa.csv.ParseOptions(newlines_in_values=True, **options)
    )


@pytest.mark.parametrize("name", CSVS)
@pytest.mark.parametrize("header", ["\N{BOM}n;x;word\n", None, *exhaustively("n,x,word\n", 'n\tx\t"word"\r\n')])
def test_splits_of_csv_are_all_records_once_and_in_order(tmp_path, name, header):
    delimiter = next((mark for mark in ";\t" if mark in (header or "")), ",")
    body = CSVS[name].replace(", ", " ").replace(",", delimiter)
    text = (header or "n,x,word\n").lstrip("\N{BOM}") + body
    path = tmp_path / "a.csv"
    path.write_bytes(((header or "") + body).encode())
    if not body and header is None:
        return
    expected = whole(text, delimiter=delimiter)
    if header is None:
        expected = expected.rename_columns(["f0", "f1", "f2"])

    for count in COUNTS:
        parts = splits(path, count=count, header=header is not None)

        assert len(parts) <= count
        if body:
            assert pa.concat_tables(part.read() for part in parts).equals(expected)
            blocks = pa.concat_tables(block for part in parts for block in part.blocks(100))
            assert blocks.equals(expected)
        else:
            assert parts == []


@pytest.mark.parametrize(
    ("name", "text", "delimiter", "names"),
    [
        ("a.csv", '"a,b,c";d\n1;2\n', None, ["a,b,c", "d"]),
        ("a.csv", '"a ""x"", b"\tc\n1\t2\n', None, ['a "x", b', "c"]),
        ("a.tsv", "name, first\tage\nx\t2\n", None, ["name, first", "age"]),
        ("a.csv", "a,b|c;d\n1|2\n", "|", ["a,b", "c;d"]),
        ("a.csv", "single\n1\n", None, ["single"]),
        ("a.csv", "\r\n\na;b\n1;2\n", None, ["a", "b"]),
    ],
)
def test_the_delimiter_separates_fields(tmp_path, name, text, delimiter, names):
    (tmp_path / name).write_text(text)
    (part,) = splits(tmp_path / name, delimiter=delimiter)
    divided = rp.input.divide(tmp_path / name, tmp_path / "parts", partitions=1, delimiter=delimiter)

    assert part.read().column_names == names and part.read().num_rows == 1
    assert rp.input.open_partitions(divided)[0].read().equals(part.read())


@pytest.mark.parametrize("delimiter", ["", "ab", '"', "\n", "é"])
def test_a_delimiter_is_one_character(tmp_path, delimiter):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(rp.InputError, match="delimiter="):
        splits(tmp_path / "a.csv", delimiter=delimiter)


WORDS = st.text(st.sampled_from('a,;"\n\r '), max_size=6)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=30), st.integers(2, 20), st.integers(1, 40))
def test_any_csv_is_read_once(tmp_path_factory, records, count, block_bytes):
    path = tmp_path_factory.getbasetemp() / "any.csv"
    with open(path, "w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([("one", "two"), *records])

    parts = splits(path, count=count, types={"one": "string", "two": "string"})

    for tables in ([part.read() for part in parts], [block for part in parts for block in part.blocks(block_bytes)]):
        table = pa.concat_tables(tables)
        assert list(zip(table["one"].to_pylist(), table["two"].to_pylist(), strict=True)) == records


def has_open_field(text):
    """Follow the rule of Arrow one character at a time: a quote opens a field only at its beginning."""
    is_open, is_begin, was_quote = False, True, False
    for character in text:
        if is_open:
            is_open = character != '"'
            was_quote = not is_open
        elif character == '"' and (is_begin or was_quote):
            is_open, was_quote = True, False
        else:
            was_quote = False
        is_begin = not is_open and character in ",\r\n"
    return is_open


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(st.sampled_from('",\na'), max_size=5), max_size=8))
def test_a_quote_opens_a_field_only_at_its_beginning_in_any_pieces(pieces):
    quotes, text = lines.QuoteState(","), ""
    for piece in pieces:
        quotes.add(piece.encode())
        text += piece
        assert quotes.is_open == has_open_field(text)


def test_a_quote_inside_a_field_does_not_hide_the_ends_of_records(tmp_path):
    path = tmp_path / "pipes.csv"
    path.write_text("pipe,note\n" + "".join(f'5" pipe {i},"two\nlines"\n3" pipe,x"y\n' for i in range(200)))

    parts = splits(path, count=7)

    table = pa.concat_tables([part.read() for part in parts])
    assert len(parts) == 7 and len(table) == 400 and table["note"].to_pylist()[:2] == ["two\nlines", 'x"y']


def test_splits_of_csv_have_even_sizes(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("n\n" + "1234567\n" * 10_000)

    parts = splits(path, count=8)

    assert len(parts) == 8 and all(abs(part.size_bytes - 10_000) < 10_000 / 32 for part in parts)


def test_columns_of_csv_have_the_same_types_in_all_splits(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("zip,day,when,n\n" + "01234,2020-01-01,2020-01-01T10:00:00Z,\n" * 50)

    parts = pickle.loads(pickle.dumps(splits(path, count=3, types={"zip": "string"}, columns=["when", "zip", "n"])))

    assert {part.read().schema for part in parts} == {
        pa.schema([("when", pa.timestamp("s", "UTC")), ("zip", pa.string()), ("n", pa.string())])
    }
    assert parts[1].read()["zip"][0].as_py() == "01234"
    (tmp_path / "b.csv").write_text("zip,day,when,n\n" + "01234,2020-01-01,2020-01-01T10:00:00Z,1.5\n")
    (tmp_path / "c.csv").write_text("zip,day,when,n\n" + "01234,2020-01-01,2020-01-01T10:00:00Z,2\n")
    several = splits([tmp_path / "c.csv", path, tmp_path / "b.csv"])
    assert pa.concat_tables(part.read() for part in several)["n"].to_pylist() == [2.0, *[None] * 50, 1.5]
    (tmp_path / "d.csv").write_text("zip,day,when,n\n" + "01234,2020-01-01,2020-01-01T10:00:00Z,word\n")
    with pytest.raises(rp.InputError, match=r"files have different types of columns: .*n.*; name one, as in types"):
        splits([tmp_path / "c.csv", tmp_path / "d.csv"])


def test_all_rows_of_a_file_decide_the_types_of_its_columns(tmp_path, monkeypatch):
    late = tmp_path / "late.csv"
    late.write_text("n,m\n" + "1,1\n" * 300_000 + "2.5,x\n")
    read = pa.concat_tables(part.read() for part in splits(late, count=2))
    assert read.schema.types == [pa.float64(), pa.string()]
    assert (read["n"][-1].as_py(), read["m"][-1].as_py(), len(read)) == (2.5, "x", 300_001)
    monkeypatch.setattr(cutting, "SAMPLE_BYTES", 1 << 20)
    with pytest.raises(
        rp.InputError,
        match=r"late.csv, line 300,002, column 'n' \(1 of 2\): '2.5' is not a whole number; name its type",
    ):
        [part.read() for part in splits(late, count=2)]


def test_a_single_number_beyond_int64_is_a_fraction(tmp_path):
    name = tmp_path / "rows.csv"
    name.write_text("k,v\n12345678901234567890,1\n5,3\n")

    assert splits(name)[0].read()["k"].to_pylist() == [1.2345678901234567e19, 5.0]


@pytest.mark.parametrize(
    ("text", "names", "rows"),
    [
        ("alice,book,3.5\nbob,pen,4\n", ["f0", "f1", "f2"], 2),
        ("NA,book,3.5\nbob,pen,4\n", ["f0", "f1", "f2"], 2),
        ("1,2\n3,4\n", ["f0", "f1"], 2),
        ("who,what\nbob,pen\n", ["who", "what"], 1),
        ('"a, b";"c\nd"\n1;2\n', ["a, b", "c\nd"], 1),
        ("a (x, y);b, c\n1;2\n3;4\n", ["a (x, y)", "b, c"], 2),
        ("\N{BOM}a,b\r1,2\r3,4\r", ["a", "b"], 2),
        ("0,1,target\n5,6,7\n", ["0", "1", "target"], 1),
        ('"2019","town"\n5,6\n', ["2019", "town"], 1),
    ],
)
def test_a_header_is_text_above_numbers_or_text_only(tmp_path, text, names, rows):
    (tmp_path / "a.csv").write_text(text, newline="")
    read = splits(tmp_path / "a.csv")[0].read()
    assert (read.column_names, len(read)) == (names, rows)


def test_a_split_is_read_at_once_as_in_blocks(tmp_path, monkeypatch):
    """Quotes and line ends at random places, in records longer than a block of Arrow, too."""
    chance, path, read_count = random.Random(4), tmp_path / "a.csv", 0
    monkeypatch.setattr("ripieno.input.columns.delimited.STREAM_BYTES", 64)
    for number in range(150):
        fields = [
            "".join(chance.choices('ab1,"\n\r .', k=chance.randint(0, 70 if number % 9 == 0 else 4))) for _ in range(12)
        ]
        quoted = ['"' + each.replace('"', '""' if chance.random() < 0.9 else '"') + '"' for each in fields]
        plain = [re.sub(r'[,"\n\r]' if chance.random() < 0.9 else "[,]", "", each) for each in fields]
        cells = [chance.choice(pair) for pair in zip(quoted, plain, strict=True)]
        end = chance.choice(["\n", "\r\n", "\r", "\n\n"])
        path.write_bytes(("x,y,z" + end + end.join(map(",".join, zip(*[iter(cells)] * 3, strict=True)))).encode())
        try:
            parts = splits(path, count=chance.randint(1, 3), header=True)
        except rp.InputError:
            continue
        for part in parts:
            try:
                expected = pa.concat_tables([part.empty(), *part.blocks()])
            except rp.InputError as error:
                with pytest.raises(rp.InputError, match=re.escape(str(error))):
                    part.read()
                continue
            read_count += 1
            assert part.read() == expected, path.read_bytes()
    assert read_count > 40


def test_a_line_of_spaces_is_a_record_in_blocks_too(tmp_path):
    (tmp_path / "a.csv").write_text("word\n  \n\n")
    (split,) = splits(tmp_path / "a.csv", header=True)
    assert split.read().to_pydict() == pa.concat_tables(split.blocks()).to_pydict() == {"word": ["  "]}


def test_a_folder_of_spark_is_its_data_files(tmp_path, monkeypatch):
    for name in ("_SUCCESS", "._SUCCESS.crc", ".part-0.csv.crc", "_committed_1.csv"):
        (tmp_path / name).write_text("crc")
    for name, text in (("part-0.csv", "a,b\n1,2\n"), ("part-1.csv", "a,b\n"), ("part-2.csv", "")):
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    for source in (tmp_path, f"{tmp_path}/*", f"file://{tmp_path}", ".", "*"):
        parts = splits(source)
        assert pa.concat_tables(part.read() for part in parts).to_pydict() == {"a": [1], "b": [2]}
        assert {part.path for part in parts} == {str(tmp_path / "part-0.csv")}
    assert open_source(f"{tmp_path}/*").names == [str(tmp_path / "part-0.csv")]


def test_names_of_folders_are_columns_of_tables(tmp_path):
    hive = tmp_path / "hive"
    for year, town, rows in ((2023, "a%20b", "1,2"), (2024, "__HIVE_DEFAULT_PARTITION__", "3,4\n5,6")):
        folder = hive / f"year={year}" / f"town={town}"
        folder.mkdir(parents=True)
        (folder / "part.csv").write_text(f"source,target\n{rows}\n")
    (hive / "year=2024" / "_temporary").mkdir()
    memory = fsspec.filesystem("memory")
    memory.put(str(hive), "/keyed", recursive=True)
    for source in (hive, f"{hive}/", "memory://keyed"):
        parts = pickle.loads(pickle.dumps(splits(source, count=2)))
        assert pa.concat_tables(part.read() for part in parts).to_pydict() == {
            "source": [1, 3, 5], "target": [2, 4, 6], "year": [2023, 2024, 2024], "town": ["a b", None, None],
        }  # fmt: skip
        assert splits(source, columns=["target", "year"])[0].read().to_pydict() == {"target": [2], "year": [2023]}
    memory.rm("/keyed", recursive=True)
    assert len(rp.Graph(hive).read_share(0, 1)) == 3
    (hive / "year=2024" / "more.csv").write_text("source,target\n7,8\n")
    with pytest.raises(rp.InputError, match=r"expected in folders year=…/town=…, as|expected in folders year=…, as"):
        open_source(hive)
    (tmp_path / "words" / "day=1").mkdir(parents=True)
    (tmp_path / "words" / "day=1" / "a.txt").write_text("a b\n")
    with pytest.raises(rp.InputError, match=r"the folder='day=1': .* is read as text; expected csv"):
        splits(tmp_path / "words")


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["01", "2"], "int64"),
        (["0.5", "2"], "double"),
        (["18446744073709551614", "18446744073709551615"], "string"),
        (["1000", "1e3"], "string"),
        (["inf", "nan"], "string"),
    ],
)
def test_different_names_of_folders_stay_different(tmp_path, texts, kind):
    for text in texts:
        (folder := tmp_path / f"k={text}").mkdir()
        (folder / "part.csv").write_text("a\n1\n")
    read = pa.concat_tables(part.read() for part in splits(tmp_path))
    assert read.schema.field("k").type == kind
    assert pc.count_distinct(read["k"]).as_py() == 2


def test_a_column_is_not_in_a_file_and_in_the_name_of_its_folder(tmp_path):
    for suffix, write in (("parquet", pq.write_table), ("csv", pa.csv.write_csv)):
        (folder := tmp_path / suffix / "k=1").mkdir(parents=True)
        write(pa.table({"k": [7], "b": [2.0]}), folder / f"part.{suffix}")
        for read in (splits, lambda path: rp.KMeans(1).fit(path, columns=["k"])):
            with pytest.raises(rp.InputError, match=r"has a column 'k', and so has the name of its folder"):
                read(tmp_path / suffix)


def test_whole_numbers_beyond_int64_stay_different(tmp_path):
    rows = "k,v\n18446744073709551615,1\n18446744073709551614,2\n5,3\n"
    (tmp_path / "wide.csv").write_text(rows)
    (tmp_path / "sums.csv").write_text("k,v\n1e20,1\n18446744073709551614,2\n")
    (read,) = [part.read() for part in splits(tmp_path / "wide.csv")]
    assert read.to_pydict() == {"k": [2**64 - 1, 2**64 - 2, 5], "v": [1, 2, 3]}
    assert open_source(tmp_path / "wide.csv").read_share(0, 1).points[0, 0] == 2.0**64
    assert splits(tmp_path / "sums.csv")[0].read()["k"].to_pylist() == [1e20, 2.0**64]
    (tmp_path / "small.csv").write_text("k,v\n1,1\n")
    with pytest.raises(rp.InputError, match=r"wide.csv, line 2, column 'k' .* is not a whole number; name its type"):
        [part.read() for part in splits([tmp_path / "wide.csv", tmp_path / "small.csv"])]


def test_a_fit_reads_names_of_folders_by_choice(tmp_path):
    price = [5, 7, 11, 13]
    for year, town, rows in ((1, "a", "1,5\n2,7"), (2, "b", "4,11\n3,13")):
        (folder := tmp_path / f"year={year}" / f"town={town}").mkdir(parents=True)
        (folder / "part.csv").write_text(f"x,price\n{rows}\n")
    means = [(["x", "price"], [2.5, 9]), (["x", "year"], [2.5, 1.5]), (["year"], [1.5])]
    estimator = rp.KMeans(1)
    for columns, mean in means:
        np.testing.assert_allclose(estimator.fit(tmp_path, columns=columns).cluster_centers_, [mean])
    assert estimator.fit(tmp_path, ignore=["year"], id="town").n_features_in_ == 2
    for ignore in ((), ["town"]):
        with pytest.raises(rp.InputError, match=r"column 'year' is from names of .* columns= .* ignore=\['year'\]"):
            estimator.fit(tmp_path, ignore=ignore)
    with pytest.raises(rp.InputError, match=r"column 'town' is from names of .* columns= .* ignore=\['town'\]"):
        estimator.fit(tmp_path, ignore=["year"])
    with pytest.raises(rp.InputError, match=r"column 'town': .* expected real numbers; pass ignore=\['town'\]"):
        estimator.fit(tmp_path, columns=["x", "town"])
    assert rp.PCA(1).fit(tmp_path, columns=["x", "year"]).mean_ == pytest.approx([2.5, 1.5])
    model = rp.Ridge(1e-9).fit(tmp_path, "price", columns=["x", "year"])
    expected = np.linalg.lstsq([[1, 1, 1], [2, 1, 1], [4, 2, 1], [3, 2, 1]], price)[0]
    np.testing.assert_allclose([*model.coef_, model.intercept_], expected, atol=1e-6)
    assert model.score(tmp_path, "price") == pytest.approx(
        model.score(np.array([[1, 1], [2, 1], [4, 2], [3, 2]]), price)
    )
    by_year = rp.Ridge(1e-9).fit(tmp_path, target="year", ignore=["town"])
    assert by_year.n_features_in_ == 2
    by_town = rp.LogisticRegression().fit(tmp_path, target="town", ignore=["year"])
    assert by_town.classes_.tolist() == ["a", "b"]
    assert by_town.predict(tmp_path).tolist() == ["a", "a", "b", "b"]
    (tmp_path / "sparse" / "day=1").mkdir(parents=True)
    (tmp_path / "sparse" / "day=1" / "a.svm").write_text("1 1:2\n")
    with pytest.raises(rp.InputError, match=r"such as day=1, .* which is only read with tables"):
        rp.KMeans(1).fit(tmp_path / "sparse")


PAIRS = pa.array([[1, 2], [3, 4]], pa.list_(pa.float32(), 2))


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([5, 7, 5]).dictionary_encode(), [5, 7, 5]),
        (pa.array([5.5, None, 5.5]).dictionary_encode(), [5.5, np.nan, 5.5]),
        (
            pa.array([Decimal(text) for text in ("0.1", "-2.675", "12345678901234567.89")]),
            [0.1, -2.675, 12345678901234567.89],
        ),
        (pa.array([Decimal(10**30), None], pa.decimal256(40, 2)), [1e30, np.nan]),
        (pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0], pa.int8())), [1, 0]),
        (pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float32(), [2]), PAIRS), [[1, 2], [3, 4]]),
        (pa.array([-0.0, 0.0]), [-0.0, 0.0]),
        (pa.array([2**53 + 1, -(2**62) - 1]), [2.0**53, -(2.0**62)]),
        (pa.array([2**64 - 1, 0], pa.uint64()), [2.0**64, 0]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_numbers_of_any_type_become_the_nearest_floats(tmp_path, column, expected):
    table = pa.table({"a": column})
    pq.write_table(table, tmp_path / "a.parquet")
    pa.feather.write_feather(table, tmp_path / "a.arrow", compression="uncompressed")
    for path in tmp_path.iterdir():
        points = open_source(path).read_share(0, 1).points
        np.testing.assert_array_equal(points, np.reshape(expected, points.shape))
        assert np.signbit(points).tolist() == np.signbit(np.reshape(expected, points.shape)).tolist()


@pytest.mark.parametrize("length", [0, -3])
def test_lists_of_a_length_below_one_are_refused(tmp_path, length):
    path, valid = tmp_path / "lists.parquet", 777
    pq.write_table(pa.table({"a": pa.array([[1] * valid], pa.list_(pa.float32(), valid))}), path)
    stored = pq.read_metadata(path).metadata[b"ARROW:schema"]
    lengths = (number.to_bytes(4, "little", signed=True) for number in (valid, length))
    changed = base64.b64encode(base64.b64decode(stored).replace(*lengths))
    path.write_bytes(path.read_bytes().replace(stored, changed))
    assert pq.read_schema(path).field("a").type.list_size == length
    with pytest.raises(rp.InputError, match=r"lists.parquet, column 'a': its first list has no values"):
        open_source(path)


def test_ids_are_categories_and_whole_decimals_in_all_formats(tmp_path):
    numbers, texts = [7, 2**53 + 1, 7], ["a", "b", "a"]
    weights = pa.array([Decimal("0.1"), Decimal("2.5"), Decimal(3)])
    for column, values in (
        (pa.array(list(map(Decimal, numbers))), numbers),
        (pa.array(numbers).dictionary_encode(), numbers),
        (pa.array(texts).dictionary_encode(), texts),
    ):
        edges = pa.table({"source": column, "target": pa.concat_arrays([column[1:], column[:1]]), "weight": weights})
        ratings = pa.table({"user": column, "item": column, "rating": weights})
        for write, suffix in ((pq.write_table, "parquet"), (pa.feather.write_feather, "arrow")):
            write(edges, tmp_path / f"edges.{suffix}", compression="zstd")
            write(ratings, tmp_path / f"ratings.{suffix}", compression="zstd")
            found = rp.ConnectedComponents().fit(tmp_path / f"edges.{suffix}")
            assert found.vertices_.tolist() == sorted(set(values))
            triples = opened(str(tmp_path / f"ratings.{suffix}"), None).read()
            assert triples.users.to_pylist() == triples.items.to_pylist() == values
            np.testing.assert_array_equal(triples.values, np.float32([0.1, 2.5, 3]))


def test_the_index_of_pandas_is_no_column_unless_it_is_named(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0, 4.0], "b": [3.0, 5.0, 6.0]}, index=pd.Index([7, 8, 9], name="key"))
    frame.to_parquet(tmp_path / "named.parquet")
    frame.rename_axis(None).to_parquet(tmp_path / "unnamed.parquet")
    frame.reset_index(drop=True).to_parquet(tmp_path / "range.parquet")
    for path in tmp_path.iterdir():
        assert splits(path)[0].read().column_names == ["a", "b"]
        assert open_source(path).column_names == ("a", "b")
        assert rp.KMeans(1).fit(path).cluster_centers_.shape == (1, 2)
    assert splits(tmp_path / "named.parquet", columns=["key"])[0].read()["key"].to_pylist() == [7, 8, 9]
    assert rp.KMeans(1).fit(pa.Table.from_pandas(frame)).n_features_in_ == 2
    model = rp.Ridge(0.0).fit(tmp_path / "named.parquet", "key")
    assert model.predict(tmp_path / "named.parquet") == pytest.approx([7, 8, 9])


def test_invalid_csv_is_reported(tmp_path):
    path = tmp_path / "a.csv"
    for text, message in [
        ("a,b\n1,2\n3\n", "a.csv, line 3: 1 values, expected 2"),
        ("a,a\n1,2\n", "several columns named 'a'"),
        ('a,b\n1,"2\n3,4\n5,6\n', "a quoted field is not closed in the records from byte 4 on"),
        ('a,"b\n1,2\n', "a quoted field is not closed in the records from byte 0 on"),
        ("\n", "a.csv has no record and no header: it holds nothing but line ends"),
    ]:
        path.write_text(text)
        with pytest.raises(rp.InputError, match=message):
            [part.read() for part in splits(path, count=2)]
    path.write_text("a,b\n1,2\n")
    for options, message in [
        ({"columns": ["c"]}, "columns='c': .*a.csv has no such column: expected one of a, b"),
        ({"types": {"c": "string"}}, "types='c': .*a.csv has no such column: expected one of a, b"),
        ({"types": {"a": "word"}}, "'word'.*expected the name of an Arrow type"),
        ({"columns": ["a"], "format": "text"}, "is read as text; expected csv or parquet or arrow"),
    ]:
        with pytest.raises(rp.InputError, match=message):
            splits(path, **options)


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("7,many,z", r"column 'count' \(2 of 3\): 'many' is not a whole number; name its type, as in types="),
        ("7,", "2 values, expected 3"),
        ("7,1,2,3", "4 values, expected 3"),
    ],
)
def test_an_invalid_record_is_reported_by_line_and_column(tmp_path, wrong, message, count, ending):
    # Line numbers count lines, not records: some are empty, and some are inside quotes.
    good = '1,2,"two\n\nlines"\n\n3,4,x\n' * 20
    text = f"id,count,word\r\n{good}{wrong}\n{good}".encode()
    (tmp_path / f"a.{ending}").write_bytes(gzip.compress(text) if ending.endswith("gz") else text)
    types = {"id": "int64", "count": "int64"}

    with pytest.raises(rp.InputError, match=rf"a.{ending}, line 102(, |: ){message}"):
        [part.read() for part in splits(tmp_path / f"a.{ending}", count=count, types=types, columns=["count", "id"])]


ARRAYS = {
    "matrix": np.arange(60.0).reshape(20, 3),
    "line": np.arange(17, dtype=np.int16),
    "cube": np.arange(48, dtype=">u4").reshape(4, 6, 2),
    "no-rows": np.empty((0, 3)),
    "no-columns": np.empty((5, 0), np.float32),
    "bools": np.array([True, False, True]),
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("location", ["local", "memory", "compressed"])
def test_splits_of_npy_are_all_rows_once_and_in_order(tmp_path, name, location):
    paths = {"local": f"{tmp_path}/a.npy", "memory": f"memory://npy/{name}.npy", "compressed": f"{tmp_path}/a.npy.gz"}
    path = paths[location]
    with fsspec.open(path, "wb", compression="infer") as file:
        np.save(file, ARRAYS[name])

    for count in COUNTS:
        parts = splits(path, count=count)

        rows = [part.read() for part in parts]
        if location == "compressed":
            assert len(parts) == 1
        else:
            assert len(parts) == min(count, len(ARRAYS[name]))
            assert sum(part.size_bytes for part in parts) == ARRAYS[name].nbytes
        empty = ARRAYS[name][:0]
        np.testing.assert_array_equal(np.concatenate([empty, *rows]), ARRAYS[name])
        blocks = [block for part in parts for block in part.blocks(9)]
        np.testing.assert_array_equal(np.concatenate([empty, *blocks]), ARRAYS[name])
        assert all(block.dtype == ARRAYS[name].dtype for block in blocks)
        assert all(block.nbytes <= 9 or len(block) == 1 for block in blocks)


def test_a_compressed_array_is_unpacked_once_for_all_its_blocks(tmp_path, monkeypatch):
    with gzip.open(tmp_path / "a.npy.gz", "wb") as file:
        np.save(file, ARRAYS["matrix"])
    (part,) = splits(tmp_path / "a.npy.gz")
    opened_paths = []
    opened = arrays.opened
    monkeypatch.setattr(arrays, "opened", lambda path, *rest: opened_paths.append(path) or opened(path, *rest))

    assert len(list(part.blocks(24))) == 20
    assert len(opened_paths) == 1
    (tmp_path / "a.npy.gz").write_bytes(gzip.compress(gzip.decompress((tmp_path / "a.npy.gz").read_bytes())[:-1]))
    with pytest.raises(rp.InputError, match="shorter than it should be: rows 19 … 20 are incomplete"):
        list(part.blocks(24))


def test_invalid_npy_is_reported(tmp_path):
    path = tmp_path / "a.npy"
    for array, message in [
        (np.asfortranarray(np.ones((3, 4))), "column by column"),
        (np.float64(1), r"shape \(\)"),
        (np.array([{}]), "type object"),
    ]:
        np.save(path, array)
        with pytest.raises(rp.InputError, match=message):
            splits(path)
    path.write_bytes(b"nothing of this kind")
    with pytest.raises(rp.InputError, match=r"not a readable .npy file"):
        splits(path)
    for url in (str(path), "memory://npy/short.npy"):
        with fsspec.open(url, "wb") as file:
            np.save(file, np.ones((100, 3)))
        part = splits(url, count=2)[1]
        with fsspec.open(url, "rb") as file:
            head = file.read(1000)
        with fsspec.open(url, "wb") as file:
            file.write(head)
        with pytest.raises(rp.InputError, match=r"short.*rows 50 … 100 are incomplete"):
            part.read()


TABLE = pa.table({"n": range(100), "word": [f"word {i}" for i in range(100)], "x": np.arange(100) / 4})


@pytest.mark.parametrize("location", ["local", "memory"])
def test_splits_of_parquet_are_all_row_groups_once_and_in_order(tmp_path, location):
    path = f"{tmp_path}/a.parquet" if location == "local" else "memory://tables/a.parquet"
    with fsspec.open(path, "wb") as file:
        pq.write_table(TABLE, file, row_group_size=9)

    for count in COUNTS:
        parts = splits(path, count=count)

        assert len(parts) == min(count, 12)
        assert pa.concat_tables(part.read() for part in parts).equals(TABLE)
        blocks = [block for part in parts for block in part.blocks(80)]
        assert pa.concat_tables(blocks).equals(TABLE) and len(blocks) > 12
    some = splits(path, count=3, columns=["x"])
    assert pa.concat_tables(part.read() for part in some).equals(TABLE.select(["x"]))


def test_invalid_parquet_is_reported(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(b"nothing of this kind")
    with pytest.raises(rp.InputError, match=r"a.parquet is damaged, or not a readable Parquet file"):
        splits(path)
    pq.write_table(TABLE, path, row_group_size=10)
    with pytest.raises(rp.InputError, match="columns='y'"):
        splits(path, columns=["y"])
    part = splits(path, count=2)[1]
    pq.write_table(TABLE, path)
    with pytest.raises(rp.InputError, match="has 1 row groups, but had 10 when it was split"):
        part.read()
    packed = tmp_path / "b.parquet.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(rp.InputError, match="Parquet is compressed inside"):
        splits(packed)


def test_a_negative_number_of_rows_is_damage(tmp_path, monkeypatch):
    pq.write_table(TABLE, tmp_path / "a.parquet")
    monkeypatch.setattr(ParquetColumns, "_described", staticmethod(lambda file: (TABLE.schema, (101, -1))))
    with pytest.raises(rp.InputError, match=r"a.parquet is damaged: a group has -1 rows by its metadata"):
        ParquetColumns.open(str(tmp_path / "a.parquet"), TableOptions())


def test_fewer_rows_than_in_the_metadata_are_damage(tmp_path):
    pq.write_table(TABLE, tmp_path / "a.parquet")
    source = ParquetColumns.open(str(tmp_path / "a.parquet"), TableOptions())
    claimed = replace(source, groups=(len(TABLE) + 1,), size=len(TABLE) + 1)
    with pytest.raises(rp.InputError, match=r"a.parquet is damaged: group 0 has 100 rows, but 101 by its metadata"):
        claimed.read(0, claimed.size, pa.schema([TABLE.schema.field("x")]))


def test_the_file_name_selects_the_reader_unless_the_format_is_given(tmp_path):
    (tmp_path / "a.csv").write_text("n\n1\n2\n")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"n\n3\n"))
    (tmp_path / "c.log").write_text("line\n")

    parts = splits(tmp_path)

    assert [part.format.name for part in parts] == ["csv", "csv", "text"]
    assert [part.read()["n"].to_pylist() for part in parts[:2]] == [[1, 2], [3]]
    assert splits(tmp_path / "a.csv", format="text")[0].read() == b"n\n1\n2\n"
    (tmp_path / "d.csv").touch()
    assert splits(tmp_path / "d.csv") == []
    assert len(splits([tmp_path / "a.csv", tmp_path / "b.csv.gz"], count=3)) == 3


RECORDS = np.arange(60, dtype="<i4").reshape(10, 3, 2)


@pytest.mark.parametrize("location", ["local", "memory", "compressed"])
@pytest.mark.parametrize("count", [1, 2, 3, 10, 20])
@pytest.mark.parametrize(
    ("described", "expected"),
    [
        ({"record_bytes": 24}, RECORDS.view("u1").reshape(10, 24)),
        ({"record_bytes": 24, "dtype": "int32"}, RECORDS.reshape(10, 6)),
        ({"dtype": "<i4", "shape": (3, 2)}, RECORDS),
        ({"dtype": "int32", "shape": 6, "record_bytes": 24, "format": "binary"}, RECORDS.reshape(10, 6)),
        ({"dtype": ">i4", "shape": ()}, RECORDS.reshape(60).view(">i4")),
    ],
)
def test_splits_of_raw_records_are_all_records_once_and_in_order(tmp_path, described, expected, count, location):
    path = tmp_path / f"a.bin{'.gz' * (location == 'compressed')}"
    path.write_bytes(gzip.compress(RECORDS.tobytes()) if location == "compressed" else RECORDS.tobytes())
    if location == "memory":
        with fsspec.open("memory://records/a.bin", "wb") as file:
            file.write(RECORDS.tobytes())

    parts = splits("memory://records/a.bin" if location == "memory" else path, count=count, **described)

    read = [part.read() for part in parts]
    assert {part.format.name for part in parts} == {"binary"} and {rows.dtype for rows in read} == {expected.dtype}
    np.testing.assert_array_equal(np.concatenate(read), expected)
    np.testing.assert_array_equal(np.concatenate([rows for part in parts for rows in part.blocks(30)]), expected)
    assert len(parts) == (1 if location == "compressed" else min(count, len(expected)))


@pytest.mark.parametrize(
    ("described", "message"),
    [
        ({"record_bytes": 7}, r"a.bin: 240 bytes are 34 records of 7 bytes and 2 more: expected whole records"),
        ({"record_bytes": 1000}, r"240 bytes are 0 records of 1,000 bytes and 240 more"),
        ({"record_bytes": 0}, "record_bytes=0: expected"),
        ({"record_bytes": 6, "dtype": "float32"}, "record_bytes=6: no whole values of float32, of 4 bytes each"),
        ({"record_bytes": 24, "shape": (2, 2)}, r"record_bytes=24, but shape=\(2, 2\) of uint8 takes 4"),
        ({"shape": (0, 2)}, "shape=0: expected whole numbers >= 1"),
        ({"record_bytes": 8, "dtype": "object"}, "dtype='object': expected a type of numbers"),
        ({"record_bytes": 8, "dtype": "video"}, "dtype='video': NumPy knows no such type"),
        ({"dtype": "uint8"}, "dtype='uint8' does not give the length of a record"),
        ({"format": "binary"}, "format='binary': expected record_bytes"),
        ({"format": "text", "record_bytes": 24}, "record_bytes=24: .*a.bin is read as text; expected binary"),
    ],
)
def test_invalid_record_sizes_are_reported(tmp_path, described, message):
    (tmp_path / "a.bin").write_bytes(RECORDS.tobytes())

    for make in (splits, lambda path, **options: divide(path, tmp_path / "parts", partitions=2, **options)):
        with pytest.raises(rp.InputError, match=message):
            make(tmp_path / "a.bin", **described)
    assert not (tmp_path / "parts").exists()


@pytest.mark.parametrize("in_place", [False, True])
def test_partitions_of_raw_records_are_raw_records(tmp_path, in_place):
    for name, rows in (("a.bin", RECORDS[:7]), ("b.dat", RECORDS[7:])):
        (tmp_path / name).write_bytes(rows.tobytes())

    arguments = ["split", str(tmp_path / "*.*"), "-p", "4", "--record-bytes", "24", "--dtype", "int32"]
    assert main([*arguments, "--out", str(tmp_path / "parts"), *["--in-place"] * in_place]) == 0

    parts = splits(tmp_path / "parts")
    np.testing.assert_array_equal(np.concatenate([part.read() for part in parts]), RECORDS.reshape(10, 6))
    assert len(parts) == 4
    if not in_place:
        files = sorted((tmp_path / "parts").glob("part-*.bin"))
        assert b"".join(path.read_bytes() for path in files) == RECORDS.tobytes()


@pytest.mark.parametrize("name", ["a.bin", "a.pdf", "a.xyz.gz", "a.json"])
def test_an_unknown_file_name_is_reported_with_the_known_suffixes(tmp_path, name, capsys):
    (tmp_path / name).write_bytes(gzip.compress(b"1 2\n") if name.endswith("gz") else b"1 2\n")
    end = name.removesuffix(".gz")[1:]

    for make in (splits, lambda path: divide(path, tmp_path / "parts", partitions=2)):
        with pytest.raises(rp.InputError, match=rf"{name}: unknown suffix {end}, .*\.npy.*format="):
            make(tmp_path / name)
    assert main(["split", str(tmp_path / name), "-p", "1", "-o", str(tmp_path / "parts")]) == 2
    assert (
        "or name the format: --format text, csv, npy, parquet, arrow, npz, mtx, binary; records of"
        in capsys.readouterr().err
    )
    unknown = rf"{name}: unknown kind of graph file, {end}: expected .*\.txt.*or pass format=text, csv"
    with pytest.raises(rp.InputError, match=f"{name} is not a partition file" if end == ".json" else unknown):
        rp.Graph(tmp_path / name)
    assert main(["components", str(tmp_path / name)]) == 2

    # Functions that only read text need no format.
    assert splits(tmp_path / name, format="text")[0].read() == b"1 2\n"
    assert rp.count_words(tmp_path / name, workers=1).values.tolist() == [1, 1]
    assert rp.grep("1", tmp_path / name)["line"].to_pylist() == [1]
    assert main(["components", str(tmp_path / name), "--format", "text"]) == 0


def test_raw_vectors_are_clustered_as_an_array(tmp_path, capsys):
    rows = np.random.default_rng(0).integers(0, 255, (200, 16), np.uint8)
    (tmp_path / "a.bin").write_bytes(rows[:90].tobytes())
    (tmp_path / "b.dat").write_bytes(rows[90:].tobytes())

    files = rp.input.BinaryFiles([tmp_path / "a.bin", tmp_path / "b.dat"], record_bytes=16)
    model = rp.KMeans(4, random_state=0).fit(files)
    np.testing.assert_array_equal(model.labels_, rp.KMeans(4, random_state=0).fit(rows).labels_)
    np.testing.assert_array_equal(model.predict(files), model.labels_)

    command = ["kmeans", str(tmp_path / "a.bin"), "-k", "2", "-o", str(tmp_path / "result")]
    assert main([*command, "--record-bytes", "32", "--dtype", "uint16"]) == 0
    assert np.load(tmp_path / "result" / "centroids.npy").shape == (2, 16)
    for options, message in [
        ([], "a.bin: unknown kind of file, expected one of .npy"),
        (["--record-bytes", "7"], "1,440 bytes are 205 records of 7 bytes and 5 more"),
        (["--dtype", "uint8"], "--dtype uint8 is for raw vectors: expected --record-bytes, too"),
    ]:
        assert main([*command, "--overwrite", *options]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", ["days", "waves", "square"])
def test_an_array_that_is_no_column_is_reported(name, tmp_path):
    arrays = {"days": np.zeros(2, "M8[D]"), "waves": np.zeros(2, complex), "square": np.zeros((2, 2))}
    np.savez(tmp_path / "x.npz", names=np.array(["a", "b"]), codes=np.array([b"c", b"de"]), **arrays)
    found = [part.read() for part in splits(tmp_path / "x.npz", columns=["names", "codes"])]
    assert [table.to_pydict() for table in found] == [{"names": ["a", "b"], "codes": [b"c", b"de"]}]
    (tmp_path / "x.npz.gz").write_bytes(gzip.compress((tmp_path / "x.npz").read_bytes()))
    with pytest.raises(rp.InputError, match=r"x\.npz\.gz: an archive is compressed inside"):
        splits(tmp_path / "x.npz.gz")
    with pytest.raises(rp.InputError, match=f"array '{name}' has .*: expected one dimension, and numbers or text"):
        splits(tmp_path / "x.npz", columns=["names", name])[0].read()


def test_a_file_with_only_a_header_has_no_records(tmp_path):
    for text in ("a,b", "a,b\n", "\N{BOM}a,b", "\n\na,b"):
        (tmp_path / "a.csv").write_text(text)
        assert splits(tmp_path / "a.csv", count=3) == []
        with pytest.raises(rp.InputError, match=r"a.csv has no records"):
            divide(tmp_path / "a.csv", tmp_path / "parts", partitions=1)


def test_rows_of_any_type_of_fixed_length_are_divided(tmp_path):
    for rows in (np.array(["2020-01-01", "2021-02-03"], "M8[D]"), np.array(["ab", "c"]), np.array([1j, 2])):
        np.save(tmp_path / "a.npy", rows)
        parts = splits(divide(tmp_path / "a.npy", tmp_path / "parts", partitions=2, overwrite=True))
        assert np.concatenate([part.read() for part in parts]).tolist() == rows.tolist()


def test_a_rank_without_splits_reads_an_empty_table_of_the_types_of_all(tmp_path, threads):
    (tmp_path / "a.csv").write_text("name,value\nx,1\n")
    pq.write_table(pa.table({"value": [0.5], "name": ["y"]}), tmp_path / "b.parquet")
    np.save(tmp_path / "c.npy", np.ones((2, 3), np.float32))

    def program(comm):
        tables = rp.input.read(rp.input.splits([tmp_path / "a.csv", tmp_path / "b.parquet"]), comm)
        return tables, rp.input.read(rp.input.splits(tmp_path / "c.npy", count=1), comm)

    found = threads(3, program)
    kinds = {name: {table.schema.field(name).type for table, _ in found} for name in ("name", "value")}
    assert kinds == {"name": {pa.string()}, "value": {pa.float64()}}
    assert sorted(row["name"] for table, _ in found for row in table.to_pylist()) == ["x", "y"]
    assert sorted(array.shape for _, array in found) == [(0, 3), (0, 3), (2, 3)]
    assert {array.dtype for _, array in found} == {np.dtype(np.float32)}


def test_a_last_record_of_one_byte_is_read(tmp_path):
    (tmp_path / "a.csv").write_text("n\n1\n2\n3")
    for count in (1, 2, 3):
        parts = splits(tmp_path / "a.csv", count=count)
        assert pa.concat_tables(part.read() for part in parts)["n"].to_pylist() == [1, 2, 3]
        assert pa.concat_tables(block for part in parts for block in part.blocks(2))["n"].to_pylist() == [1, 2, 3]


def test_arrays_of_several_types_are_read_in_the_type_of_all_on_every_rank(tmp_path, threads):
    # The first rank reads the largest file.
    np.save(tmp_path / "a.npy", np.full((9, 2), 3, np.int32))
    np.save(tmp_path / "b.npy", np.full((1, 2), 0.1, np.float64))

    found = threads(3, lambda comm: rp.input.read(rp.input.splits([tmp_path / "a.npy", tmp_path / "b.npy"]), comm))
    assert {array.dtype for array in found} == {np.dtype(np.float64)}
    assert [array.tolist() for array in found if len(array)] == [[[3.0, 3.0]] * 9, [[0.1, 0.1]]]


def test_splits_of_different_columns_or_kinds_are_not_read_together(tmp_path, threads):
    (tmp_path / "a.csv").write_text("name,value\nx,1\n")
    (tmp_path / "b.csv").write_text("name,price\nx,1\n")
    (tmp_path / "c.txt").write_text("words\n")
    pq.write_table(pa.table({"value": [2**53 + 1], "name": ["y"]}), tmp_path / "d.parquet")
    pq.write_table(pa.table({"value": [0.5], "name": ["y"]}), tmp_path / "e.parquet")

    def program(comm):
        with pytest.raises(rp.InputError, match=r"different types of columns: .*9007199254740993"):
            rp.input.read(rp.input.splits([tmp_path / "d.parquet", tmp_path / "e.parquet"]), comm)
        for other, message in [
            ("b.csv", "different columns: name, value; and name, price"),
            ("c.txt", "several kinds"),
        ]:
            with pytest.raises(rp.InputError, match=message):
                rp.input.read(rp.input.splits([tmp_path / "a.csv", tmp_path / other]), comm)

    threads(2, program)


def test_folders_are_read_recursively_unless_they_are_next_to_files(tmp_path):
    for name, text in [("2024/a.csv", "x\n1\n"), ("2025/region=1/b.csv", "x\n2\n"), ("2025/_log/c.csv", "x\n3\n")]:
        (tmp_path / "sales" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sales" / name).write_text(text)
    assert [split.path for split in splits(tmp_path / "sales" / "2024")] == [str(tmp_path / "sales/2024/a.csv")]
    (table,) = [split.read() for split in splits(tmp_path / "sales" / "2025")]
    assert table.to_pydict() == {"x": [2], "region": [1]}
    with pytest.raises(rp.InputError, match="in no folder key=value"):
        splits(tmp_path / "sales")

    (tmp_path / "sales" / "2025" / "region=1" / "b.csv").rename(tmp_path / "sales" / "2025" / "b.csv")
    (tmp_path / "sales" / "2025" / "region=1").rmdir()
    assert sum(len(split.read()) for split in splits(tmp_path / "sales")) == 2
    assert len(splits(f"file://{tmp_path}/sales")) == 2
    # A link to a folder that contains it has no other files.
    (tmp_path / "sales" / "2025" / "loop").symlink_to("..")
    assert len(splits(tmp_path / "sales")) == 2

    (tmp_path / "sales" / "all.csv").write_text("x\n4\n")
    with pytest.raises(rp.InputError, match=r"expected .*sales/\*\.\* for the files, or .*sales/\*\*/\*\.\* for all"):
        splits(tmp_path / "sales")
    assert len(splits(f"{tmp_path}/sales/*.*")) == 1 and len(splits(f"{tmp_path}/sales/**/*.*")) == 3


def test_the_page_says_which_formats_each_reader_takes():
    """A suffix may have several rows. A reader takes it unless all of them reject it."""
    page = (Path(__file__).parents[2] / "docs/input.md").read_text()
    readers = {
        "rows of estimators": {*dataset.SUFFIXES, *LibsvmText.suffixes},
        "graphs": {*graph.SUFFIXES},
        "ratings": {suffix for suffix, format in cutting.SUFFIXES.items() if format in cutting.TABLES},
        "splits": {*cutting.SUFFIXES} - {".text", ".log", ".md", ".jsonl", ".ndjson"},
    }
    listed = {name: set() for name in readers}
    for row in re.findall(r"^\| (?:\.|raw|FASTA|Arrow).*$", page.partition("### Memory")[0], re.MULTILINE):
        kind, *cells = row.strip("| ").split(" | ")
        for name, cell in zip(readers, cells, strict=True):
            no_suffix = {""} if "no suffix" in kind else set()
            listed[name] |= {*re.findall(r"(?<![\w`])\.\w+", kind.split(":")[0]), *no_suffix} if cell != "no" else set()
    assert listed == readers


def test_whole_numbers_of_matrices_stay_exact(tmp_path):
    large = 2**53 + 1
    name = tmp_path / "a.mtx"
    name.write_text(f"%%MatrixMarket matrix coordinate integer skew-symmetric\n3 3 1\n2 1 {large}\n")
    assert splits(name)[0].read().to_pydict() == {"row": [1, 0], "col": [0, 1], "weight": [large, -large]}
    name.write_text(f"%%MatrixMarket matrix coordinate unsigned-integer general\n3 3 1\n2 1 {2**64 - 1}\n")
    assert splits(name)[0].read()["weight"].to_pylist() == [2**64 - 1]
    name.write_text(f"%%MatrixMarket matrix coordinate integer general\n3 3 1\n2 1 {2**63}\n")
    with pytest.raises(rp.InputError, match=r"a\.mtx: an entry is out of the range of int64"):
        splits(name)[0].read()


def test_values_of_matrices_are_not_taken_from_other_lines(tmp_path):
    path, banner = tmp_path / "a.mtx", "%%MatrixMarket matrix coordinate"
    path.write_text(f"{banner} real general\n2 2 2\n1 1\n1 2 2 5\n")
    with pytest.raises(
        rp.InputError, match=r"a\.mtx is damaged: a line does not have the 3 values that its banner requires"
    ):
        matrix_market.read_matrix(str(path))
    path.write_text(f"{banner} pattern general\n\n2 2 2\n1\t1 \r\n\n 2  2", newline="")
    assert matrix_market.read_matrix(str(path)).toarray().tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_entries_of_a_sparse_archive_are_read_by_range(form, tmp_path):
    matrix = sparse.random(30, 20, 0.5, form, random_state=1)
    matrix.data = np.arange(matrix.nnz) + 2**53
    sparse.save_npz(tmp_path / "m.npz", matrix)
    source, entries = COLUMNS[".npz"].described(str(tmp_path / "m.npz")), matrix.tocoo()
    parts = [source.read(source.size * at // 3, source.size * (at + 1) // 3, source.own) for at in range(3)]
    found = pa.concat_tables(parts).to_pydict()
    assert found["weight"] == entries.data.tolist()
    assert (found["row"], found["col"]) == (entries.row.tolist(), entries.col.tolist())


def test_a_part_of_an_archive_takes_memory_in_proportion(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", source=np.arange(10**6), target=np.zeros(10**6))
    source = COLUMNS[".npz"].open(str(tmp_path / "a.npz"), TableOptions())
    tracemalloc.start()
    last = source.read(source.size * 15 // 16, source.size, source.own)
    assert (last["source"][-1].as_py(), len(last)) == (10**6 - 1, 62_500) and tracemalloc.get_traced_memory()[1] < 8e6
    tracemalloc.stop()
