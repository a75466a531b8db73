"""Aggregations by key, in blocks, over ranks and by command: equal to DuckDB on random tables."""

from __future__ import annotations

import datetime
import gzip
import re

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import ripieno as rp
from ripieno.cli import main
from ripieno.comm.frames import aggregated
from ripieno.keyed.aggregation import Aggregation
from varied import exhaustively

#: Columns that form the key: "one" has one value, and "row" has a different value in each row.
KEYS = [["city"], ["level"], ["whole"], ["flag"], ["day"], ["one"], ["row"], ["city", "day", "flag"], ["row", "level"]]
NUMBERS = ("whole", "small", "price", "single", "large")
AGGREGATIONS = {
    **{f"{name}_{op}": (name, op) for name in NUMBERS for op in ("sum", "mean", "min", "max")},
    **{f"{name}_distinct": (name, "distinct") for name in ("city", "whole", "price", "day")},
    "day_min": ("day", "min"),
    "day_max": ("day", "max"),
    "city_count": ("city", "count"),
    "city_nulls": ("city", "nulls"),
    "rows": "count",
}


def rows(seed: int, count: int = 400, nulls: bool = True) -> pa.Table:
    rng = np.random.default_rng(seed)
    days = [datetime.date(2024, 1, 1 + int(day)) for day in rng.integers(0, 5, count)]

    def column(values, kind, share=0.2):
        return pa.array(values, kind, mask=rng.random(count) < share if nulls else None)

    return pa.table(
        {
            "city": column(rng.choice(["Bonn", "Köln", "", "a longer name"], count).tolist(), pa.string()),
            "level": column(rng.choice([1.5, -2.0, np.nan, np.inf], count), pa.float64()),
            "whole": column(rng.integers(-3, 3, count), pa.int64()),
            "flag": column(rng.integers(0, 2, count).astype(bool), pa.bool_()),
            "day": column(days, pa.date32()),
            "one": pa.array(["all"] * count, pa.string()),
            "row": pa.array(rng.permutation(count) + seed * 1000),
            "small": column(rng.integers(0, 200, count), pa.uint8(), 0.9),
            "price": column(rng.choice([0.25, -8.0, np.nan, 3.5], count, p=[0.4, 0.3, 0.05, 0.25]), pa.float64()),
            "single": column(rng.integers(-9, 9, count) / 8, pa.float32()),
            "large": column(rng.integers(-(2**58), 2**58, count), pa.int64()),
        }
    )


def expected(table: pa.Table, keys: list[str], aggregations: dict = AGGREGATIONS) -> pa.Table:
    calls = {
        "sum": "sum({0})", "mean": "avg({0})", "min": "min({0})", "max": "max({0})", "count": "count({0})",
        "nulls": "count(*) - count({0})", "distinct": "count(distinct {0})",
    }  # fmt: skip
    terms = ["count(*) as rows" if of == "count" else f"{calls[of[1]].format(of[0])} as {name}"
             for name, of in aggregations.items()]  # fmt: skip
    order = ", ".join(f"{key} nulls last" for key in keys)
    given = duckdb.from_arrow(table)
    return given.query(
        "given", f"select {', '.join([*keys, *terms])} from given group by {', '.join(keys)} order by {order}"
    ).to_arrow_table()


def assert_same(found: pa.Table, wanted: pa.Table) -> None:
    assert found.column_names == wanted.column_names and len(found) == len(wanted)
    for name in found.column_names:
        pairs = zip(found[name].to_pylist(), wanted[name].to_pylist(), strict=True)
        for at, (ours, theirs) in enumerate(pairs):
            if isinstance(ours, float):
                assert ours == pytest.approx(float(theirs), rel=1e-12, nan_ok=True), (name, at)
            else:
                # DuckDB returns sums of integers as decimals.
                assert ours == theirs, (name, at)


@pytest.mark.parametrize("nulls", [True, False])
@pytest.mark.parametrize("keys", KEYS, ids=" ".join)
def test_blocks_of_rows_aggregate_as_in_duckdb(keys, nulls, monkeypatch):
    # Blocks have several slices. Arrow combines those in which keys repeat.
    monkeypatch.setattr("ripieno.keyed.aggregation._TRIAL_ROWS", 20)
    monkeypatch.setattr("ripieno.keyed.aggregation._SLICE_ROWS", 50)
    table = rows(0, nulls=nulls)
    aggregation = Aggregation(keys, AGGREGATIONS, table.schema)
    for start in range(0, len(table), 150):
        aggregation.add(table.slice(start, 150))
    assert_same(aggregation.result(), expected(table, keys))


@pytest.mark.parametrize("threads", [1, 2])
def test_nulls_and_large_numbers_may_begin_in_any_block(threads, monkeypatch):
    monkeypatch.setattr("ripieno.keyed.aggregation._TRIAL_ROWS", 20)
    kinds = [("city", pa.string()), ("whole", pa.int64()), ("huge", pa.uint64()), ("price", pa.float64())]
    plain = {"city": ["Bonn", "Köln"] * 20, "whole": range(40), "huge": range(40), "price": np.arange(40) / 4}
    large = plain | {"whole": [-(2**62), 2**62] * 20, "huge": [2**58] * 40}
    with_nulls = plain | {"city": ["Bonn", None] * 20, "price": [None, 0.5] * 20, "whole": [7, 5, None, 3] * 10}
    blocks = [pa.table(each, pa.schema(kinds)) for each in (plain, large, with_nulls, plain)]
    aggregations = {f"{name}_{op}": (name, op) for name, _ in kinds[1:] for op in ("sum", "mean", "max", "count")}
    del aggregations["whole_sum"]
    aggregation = Aggregation(["city"], aggregations, blocks[0].schema, threads=threads)
    for block in blocks:
        aggregation.add(block)
    assert_same(aggregation.result(), expected(pa.concat_tables(blocks), ["city"], aggregations))


def of_ranks(comm, keys, everywhere):
    # Rank 1 has no rows, and rank 0 has no nulls.
    table = rows(comm.rank, 0 if comm.rank == 1 else 300, nulls=comm.rank > 0)
    aggregation = Aggregation(keys, AGGREGATIONS, table.schema, world_size=comm.world_size)
    aggregation.add(table)
    return aggregated(comm, aggregation, everywhere=everywhere)


@pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
def test_rows_of_ranks_aggregate_as_in_duckdb(world, workers):
    table = pa.concat_tables([rows(rank, 0 if rank == 1 else 300, nulls=rank > 0) for rank in range(workers)])
    for keys in (["city"], ["level"], ["day"], ["city", "day", "flag"]):
        wanted = expected(table, keys)
        owned = pa.concat_tables(world(workers).run(of_ranks, keys, False))
        assert_same(owned.sort_by([(key, "ascending") for key in keys]), wanted)
    for whole in world(workers).run(of_ranks, keys, True):
        assert_same(whole, wanted)


@pytest.mark.parametrize("values", [[2**63 - 2, 1], [-(2**63) + 1, -1], [2**62] * 3 + [-(2**62)] * 2, [2**63, 5]])
def test_sums_of_integers_are_exact_up_to_their_last_bit(values):
    kind = pa.uint64() if max(values) == 2**63 else pa.int64()
    frame = rp.KeyedFrame(pa.table({"key": ["a"] * len(values), "value": pa.array(values, kind)}), "key")
    found = frame.aggregated({"sum": ("value", "sum"), "mean": ("value", "mean")}).to_arrow().to_pylist()
    assert found == [{"key": "a", "sum": sum(values), "mean": sum(values) / len(values)}]


def test_keys_that_are_no_columns_are_named():
    for keys, message in [(["town"], "column 'town': expected one, there are 'key'"), ([], "keys: none")]:
        with pytest.raises(rp.InputError, match=message):
            Aggregation(keys, {"rows": "count"}, pa.schema([("key", pa.string())]))


def test_a_sum_that_exceeds_64_bits_is_an_error_on_every_rank(threads):
    def program(comm):
        table = pa.table({"key": ["a", "b"], "value": [2**62, 1]})
        with pytest.raises(rp.InputError, match=rf"'value': 1 of . exceed 64 bits, such as {2**63} of key 'a'"):
            comm.aggregate(rp.KeyedFrame(table, "key"), {"sum": ("value", "sum")}, everywhere=True)

    threads(2, program)


def test_a_column_that_the_key_names_twice_is_an_error(tmp_path, threads):
    (tmp_path / "rows.csv").write_text("city,price\nBonn,3\n")

    def program(comm):
        with pytest.raises(rp.InputError, match=re.escape("keys=['city', 'city']: expected different columns")):
            rp.input.aggregate(tmp_path / "rows.csv", ["city", "city"], {"rows": "count"}, comm)

    threads(2, program)


def test_dictionary_encoded_strings_are_aggregated_like_others(tmp_path):
    """Aggregate Parquet files with few and many distinct strings; dictionaries differ between row groups."""
    names = [f"a longer name of city {at}" for at in range(1000)]
    tables = [
        pa.table({"city": ["Bonn", "Köln", None, "Bonn"] * 250, "street": names, "price": range(1000)}),
        pa.table({"city": pa.array(["Ulm", "Köln"] * 500).dictionary_encode(), "street": names, "price": range(1000)}),
    ]
    for at, table in enumerate(tables):
        pq.write_table(table, tmp_path / f"{at}.parquet", row_group_size=400)
    both = pa.concat_tables([tables[0], tables[1].cast(tables[0].schema)])
    aggregations = {"total": ("price", "sum"), "streets": ("street", "distinct"), "named": ("city", "count")}

    def program(comm):
        return [
            rp.input.aggregate(tmp_path, keys, aggregations, comm).to_arrow()
            for keys in (["city"], ["street"], ["street", "city"])
        ]

    with rp.launch(workers=1) as job:
        for keys, found in zip((["city"], ["street"], ["street", "city"]), job.run(program)[0], strict=True):
            assert_same(found, expected(both, keys, aggregations))


def test_chunks_with_more_strings_than_the_index_type_can_number_are_aggregated():
    kind = pa.dictionary(pa.int8(), pa.string())
    chunks = [pa.array([f"{name}{at}" for at in range(100)]).dictionary_encode().cast(kind) for name in "ab"]
    table = pa.table({"city": pa.chunked_array(chunks), "price": range(200)})
    aggregations = {"total": ("price", "sum"), "cities": ("city", "distinct")}

    found = Aggregation(["city"], aggregations, table.schema)
    found.add(table)

    assert_same(found.result(), expected(table, ["city"], aggregations))


@pytest.mark.parametrize("column", [[[1], [2]], [{"a": 1}, None], [None, None]], ids=["list", "struct", "null"])
def test_keys_of_lists_structs_and_nothing_but_nulls_are_refused(column):
    table = pa.table({"city": column, "price": [1, 2]})
    for keys in (["city"], ["price", "city"]):
        with pytest.raises(rp.InputError, match=r"key column 'city' of .*: expected integers, floats"):
            Aggregation(keys, {"rows": "count"}, table.schema)


MALFORMED = [
    ([("price", "sum")], "aggregations: a list: expected a dict"),
    ({"total": "sum"}, "aggregation 'sum': expected \"count\", or a column and one of"),
    ({"total": 5}, "aggregation 5: expected"),
    ({"total": ()}, 'expected "count"'),
    ({"total": ("price", ["sum"])}, 'expected "count"'),
    ({"total": (["price"], "sum")}, 'expected "count"'),
    ({"total": ("price", "total")}, 'expected "count"'),
    ({3: "count"}, "aggregation 3: expected a name"),
]


def test_malformed_aggregations_are_errors_with_the_expected_form(tmp_path):
    (tmp_path / "rows.csv").write_text("city,price\nBonn,3\n")
    frame = rp.KeyedFrame(pa.table({"city": ["Bonn"], "price": [3]}), "city")

    def program(comm):
        for aggregations, message in MALFORMED:
            with pytest.raises(rp.InputError, match=re.escape(message)):
                rp.input.aggregate(tmp_path / "rows.csv", "city", aggregations, comm)
            with pytest.raises(rp.InputError, match=re.escape(message)):
                frame.aggregated(aggregations)

    with rp.launch(workers=1) as job:
        job.run(program)


@pytest.fixture(scope="module")
def sales(tmp_path_factory):
    """Return a folder of tables of several formats by year, and all of its rows."""
    folder, tables = tmp_path_factory.mktemp("data") / "sales", []
    for year in (2024, 2025):
        table = rows(year, nulls=year == 2025).drop_columns("level").set_column(0, "city", [["Köln", "Bonn"] * 200])
        # In text, NaN and null are the same.
        price = pc.if_else(pc.is_nan(table["price"]), None, table["price"])
        table = table.set_column(table.column_names.index("price"), "price", price)
        tables.append(table.append_column("year", pa.array([year] * len(table))))
        (folder / f"year={year}").mkdir(parents=True)
        if year == 2025:
            pq.write_table(table, folder / "year=2025" / "part.parquet", row_group_size=90)
        else:
            pa.csv.write_csv(table, part := folder / "year=2024" / "part.csv")
            (folder / "year=2024" / "part.csv.gz").write_bytes(gzip.compress(part.read_bytes()))
            part.unlink()
    return folder, pa.concat_tables(tables)


@pytest.mark.parametrize("end", ["parquet", *exhaustively("csv", "tsv", "arrow")])
def test_the_command_aggregates_a_folder_of_tables(sales, end, tmp_path):
    folder, table = sales
    out = tmp_path / f"result.{end}"
    words = ["--sum", "whole,price", "--mean", "single", "--max", "day", "--distinct", "whole", "--count", "-n", "2"]

    assert main(["aggregate", str(folder), "--by", "city,year", *words, "--out", str(out)]) == 0

    names = [("whole", "sum"), ("price", "sum"), ("single", "mean"), ("day", "max"), ("whole", "distinct")]
    wanted = expected(table, ["city", "year"], {"_".join(each): each for each in names} | {"rows": "count"})
    read = {"parquet": pq.read_table, "arrow": lambda path: pa.ipc.open_file(path).read_all()}.get(end)
    delimiter = "\t" if end == "tsv" else ","
    options = pa.csv.ParseOptions(delimiter=delimiter)
    found = read(out) if read else pa.csv.read_csv(out, parse_options=options)
    assert_same(found.rename_columns([*found.column_names[:-1], "rows"]), wanted)


def test_the_command_prints_the_largest_keys_first(sales, capfd):
    folder, table = sales

    assert main(["aggregate", str(folder), "--by", "day", "--sum", "whole", "--top", "2"]) == 0

    wanted = expected(table, ["day"], {"sum": ("whole", "sum")}).sort_by([("sum", "descending"), ("day", "ascending")])
    printed = [
        line.split(maxsplit=1) if line[0] != " " else ["", line.strip()] for line in capfd.readouterr().out.splitlines()
    ]
    assert printed == [
        ["day", "whole_sum"], *([str(row["day"] or ""), str(row["sum"])] for row in wanted.slice(0, 2).to_pylist()),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--by", "town"], "--by town: .* has no such column: expected one of city"),
        (["--by", "city", "--max", "amnt"], "--max amnt: .* has no such column: expected one of city"),
        (["--by", "city", "--sum", "day"], "sum of column 'day' of date32"),
        (["--by", "city", "--min", "one"], "column 'one' of string: expected numbers"),
        (["--by", "city", "--sum", "whole", "--out", "x.npz"], "x.npz: unknown kind of file, expected one of .parquet"),
    ],
)
def test_wrong_columns_and_formats_are_named(sales, words, message, capfd):
    assert main(["aggregate", str(sales[0]), *words]) == 2
    assert re.search(message, capfd.readouterr().err)
