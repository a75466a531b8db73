"""Frames grouped by several keys: results equal pandas, and polars where nulls are kept."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import polars as pl
import polars.testing
import pyarrow as pa
import pytest
import ripieno as rp
from varied import exhaustively

AGGREGATIONS = {
    "total": ("amount", "sum"),
    "whole": ("count", "sum"),
    "mean": ("amount", "mean"),
    "least": ("amount", "min"),
    "latest": ("when", "max"),
    "any": ("flag", "max"),
    "known": ("amount", "count"),
    "lost": ("amount", "nulls"),
    "rows": "count",
}


def rows(seed: int, count: int = 500, null_keys: bool = True) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    day = [datetime.date(2024, 1, 1) + datetime.timedelta(days=int(each)) for each in rng.integers(0, 3, count)]
    frame = pl.DataFrame(
        {
            "city": rng.choice(["Bonn", "Köln", "", "a longer name of a city"], count),
            "day": day,
            "flag": rng.integers(0, 2, count).astype(bool),
            "level": rng.choice([0.0, -0.0, 1.5, np.nan], count),
            "amount": rng.integers(-50, 50, count) / 4,
            "count": rng.integers(0, 100, count).astype(np.int16),
            "when": [datetime.datetime(2024, 5, 1, int(each) % 24) for each in rng.integers(0, 24, count)],
        }
    )
    frame = frame.with_columns(amount=pl.when(pl.arange(0, count) % 7 == 0).then(None).otherwise(pl.col("amount")))
    if null_keys:
        frame = frame.with_columns(city=pl.when(pl.arange(0, count) % 11 == 0).then(None).otherwise(pl.col("city")))
    return frame


def expected(frame: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    return frame.group_by(keys).agg(
        total=pl.when(pl.col("amount").count() > 0).then(pl.col("amount").sum()),
        whole=pl.col("count").cast(pl.Int64).sum(),
        mean=pl.col("amount").mean(),
        least=pl.col("amount").min(),
        latest=pl.col("when").max(),
        any=pl.col("flag").any(),
        known=pl.col("amount").count().cast(pl.Int64),
        lost=pl.col("amount").null_count().cast(pl.Int64),
        rows=pl.len().cast(pl.Int64),
    )


def in_order(frame: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    return frame.with_columns(pl.col(pl.String).cast(pl.String)).sort(keys, nulls_last=True)


@pytest.mark.parametrize(
    "keys", [["city"], ["day", "flag"], ["city", "level"], ["when", "city", "day", "flag", "count"]]
)
def test_rows_of_a_key_aggregate_as_in_polars(keys):
    frame = rows(0)
    found = rp.KeyedFrame(frame, keys, nulls="keep").aggregated(AGGREGATIONS).to_polars()
    pl.testing.assert_frame_equal(in_order(found, keys), in_order(expected(frame, keys), keys), check_dtypes=True)


def test_frames_of_pandas_round_trip():
    frame = rows(1, null_keys=False).to_pandas()
    frame["city"] = frame["city"].astype("category")
    found = rp.KeyedFrame(frame, ["city", "flag"]).aggregated({"total": ("amount", "sum"), "n": "count"}).to_pandas()
    wanted = (
        frame.groupby(["city", "flag"], observed=True).agg(total=("amount", "sum"), n=("amount", "size")).reset_index()
    )
    wanted["city"] = wanted["city"].astype(str)
    found["city"] = found["city"].astype(str)
    pd.testing.assert_frame_equal(found.sort_values(["city", "flag"], ignore_index=True), wanted, check_dtype=False)


def over_ranks(comm, keys):
    mine = rows(comm.rank, 100 if comm.rank != 1 else 0)
    frame = rp.KeyedFrame(mine, keys, nulls="keep")
    at_home = comm.aggregate(frame, AGGREGATIONS)
    everywhere = comm.aggregate(frame, AGGREGATIONS, everywhere=True)
    return at_home.to_arrow(), everywhere.to_arrow()


@pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
def test_rows_of_all_ranks_are_grouped_by_several_keys(world, workers):
    keys = ["city", "day", "flag", "level"]
    results = world(workers).run(over_ranks, keys)
    frame = pl.concat([rows(rank, 100 if rank != 1 else 0) for rank in range(workers)])
    wanted = in_order(expected(frame, keys), keys)
    shares = pl.concat([pl.DataFrame(home) for home, _ in results])
    pl.testing.assert_frame_equal(in_order(shares, keys), wanted)
    for _, everywhere in results:
        pl.testing.assert_frame_equal(in_order(pl.DataFrame(everywhere), keys), wanted)


def test_keys_that_are_missing_are_refused_dropped_or_kept():
    frame = pa.table({"key": ["a", None, "a"], "value": [1, 2, None]})
    with pytest.raises(rp.InputError, match=r"1 of 3 are null, the first in row 1.*nulls=\"drop\""):
        rp.KeyedFrame(frame, "key")
    assert len(rp.KeyedFrame(frame, "key", nulls="drop")) == 2
    kept = rp.KeyedFrame(frame, "key", nulls="keep").aggregated({"n": "count", "v": ("value", "sum")})
    assert sorted(kept.to_arrow().to_pylist(), key=str) == [
        {"key": "a", "n": 2, "v": 1},
        {"key": None, "n": 1, "v": 2},
    ]


def test_frames_that_differ_are_reported(threads):
    def program(comm):
        frame = rp.KeyedFrame(pa.table({"key": [1], f"v{comm.rank}": [1]}), "key")
        with pytest.raises(rp.CollectiveMismatch, match=r"rank 0: .*v0 int64; rank 1: .*v1 int64"):
            comm.aggregate(frame, {"n": "count"})

    threads(2, program)


def test_wrong_arguments_of_frames_are_named():
    table = pa.table({"key": [1], "text": ["x"], "when": [datetime.date(2024, 1, 1)]})
    for call, message in [
        (lambda: rp.KeyedFrame(3, "key"), "expected a table or frame"),
        (lambda: rp.KeyedFrame(table, []), "expected names"),
        (lambda: rp.KeyedFrame(table, "kye"), "column 'kye'"),
        (lambda: rp.KeyedFrame(table, "key", nulls="ignore"), "nulls='ignore'"),
        (lambda: rp.KeyedFrame(table, "key").aggregated({"x": ("text", "sum")}), "column 'text' of string"),
        (lambda: rp.KeyedFrame(table, "key").aggregated({"x": ("when", "sum")}), "of times min, max"),
        (lambda: rp.KeyedFrame(table, "key").aggregated({"x": ("key", "median")}), 'expected "count"'),
        (lambda: rp.KeyedFrame(table, "key").aggregated({"x": ("none", "sum")}), "column 'none'"),
    ]:
        with pytest.raises(rp.InputError, match=message):
            call()
