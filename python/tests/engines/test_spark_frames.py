"""DataFrames for ranks: distribution of rows, number of reads by Spark, and results of the ranks."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from datetime import datetime
from importlib import import_module
from pathlib import Path

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest
import ripieno as rp
import spark_frame_programs as programs
from ripieno.errors import InputError
from varied import exhaustively

pyspark = pytest.importorskip("pyspark", reason="no pyspark: pip install 'ripieno[spark]'")
pandas = pytest.importorskip("pandas", reason="no pandas, which Spark needs: pip install 'ripieno[spark]'")

cloudpickle.register_pickle_by_value(programs)

ON_ALL = pytest.mark.parametrize("spark", ["spark_local", *exhaustively("spark_cluster")], indirect=True)


@pytest.fixture
def spark(request: pytest.FixtureRequest):
    return request.getfixturevalue(request.param)


@contextmanager
def setting(spark, name: str, value: str):
    """Change a setting of the session temporarily."""
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


@ON_ALL
def test_every_rank_has_its_partition_for_as_long_as_the_frame_is_the_same(spark, tmp_path):
    read = tmp_path / "read"
    frame = spark.range(0, 1000, 1, 4).mapInArrow(programs.noting_in(read), "id long")
    other = spark.range(0, 10, 1, 4)
    with rp.launch(engine="spark", workers=4) as job:
        first = job.run(programs.ids, frame)
        again = job.run(programs.ids, batches=frame)
        kept = job.run(programs.count_runs)
        others = job.run(programs.ids, other)
        restarted = job.run(programs.count_runs)

    assert first == again == [list(range(250 * rank, 250 * (rank + 1))) for rank in range(4)]
    assert len(read.read_text()) == 4, "each partition was read once"
    assert others == [[0, 1], [2, 3, 4], [5, 6], [7, 8, 9]]
    assert (kept, restarted) == ([3] * 4, [2] * 4)


@ON_ALL
def test_using_the_returned_frame_does_not_run_the_ranks_again(spark, tmp_path):
    ran = tmp_path / "ran"
    frame = spark.range(0, 1000, 1, 3)

    result = rp.spark.run(frame, programs.doubled, str(ran), workers=4, schema="rank int, doubled long")

    assert result.first().asDict() == {"rank": 0, "doubled": result.filter("rank = 0").first().doubled}
    assert result.count() == 1000 and result.rdd.getNumPartitions() == 4
    assert sorted(row.doubled for row in result.select("doubled").collect()) == list(range(0, 2000, 2))
    assert result.limit(3).count() == 3 and result.coalesce(1).rdd.getNumPartitions() == 1
    assert result.groupBy("rank").count().count() == 4
    assert result.join(result.select("doubled"), "doubled").count() == 1000
    assert "doubled" in result._show_string(5)
    by_partition = result.rdd.mapPartitions(programs.ranks_seen).collect()
    assert by_partition == [[0], [1], [2], [3]]
    assert len(ran.read_text()) == 4, "each rank ran once"
    assert result.sparkSession is spark
    assert spark.sparkContext.parallelize([(1,)], 1).toDF(["a"]).sparkSession is spark
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "10000"


def test_the_rows_of_a_rank_are_one_batch_and_numpy_views_the_memory_of_arrow(spark_local):
    frame = spark_local.range(0, 400_000, 1, 4).selectExpr("cast(id as double) as x", "array(1.0d, id) as v")

    rows = rp.spark.run(frame, programs.look)

    assert [row["batches"] for row in rows] == [1] * 4
    assert [row["rows"] for row in rows] == [100_000] * 4
    assert all(row["x is a view"] and row["v is a view"] for row in rows)
    assert sum(row["sum"] for row in rows) == sum(range(400_000))


def test_the_number_of_partitions_is_changed_only_if_it_is_another(spark_local):
    numbers = spark_local.range(0, 1000, 1, 7)
    by_key = numbers.repartition(4, (numbers.id % 4).alias("key"))
    cached = by_key.cache()
    try:
        for frame in (by_key, by_key.selectExpr("id + 4 as id"), cached):
            keys = rp.spark.run(frame, programs.keys)
            assert sum(map(len, keys)) == 4, "rows of a key stay together"
        sizes = rp.spark.run(numbers, programs.size)
        assert sum(sizes) == 1000 and max(sizes) - min(sizes) <= 7
        aggregated = numbers.groupBy((numbers.id % 10).alias("id")).count()
        assert sum(rp.spark.run(aggregated, programs.size)) == 10
    finally:
        cached.unpersist()


EMPTY = {
    "known to be": lambda numbers: numbers.limit(0),
    "found to be": lambda numbers: numbers.repartition(2).groupBy("id").count().where("count < 0").repartition(2),
}


@pytest.mark.parametrize("case", EMPTY)
def test_ranks_also_run_for_a_frame_without_rows(spark_local, case):
    assert rp.spark.run(EMPTY[case](spark_local.range(100)), programs.size, workers=2) == [0, 0]


CHANGED = {
    "by a limit": (100, lambda numbers: numbers.repartition(2).limit(100)),
    "by coalesce": (100, lambda numbers: numbers.repartition(2).filter("id >= 0").coalesce(1)),
    "in the same stage": (100, lambda numbers: numbers.coalesce(2)),
    "by a union": (101, lambda numbers: numbers.coalesce(1).union(numbers.limit(1))),
}


@pytest.mark.parametrize("case", CHANGED)
def test_a_frame_whose_partitions_change_is_repartitioned(spark_local, case):
    count, changed = CHANGED[case]

    sizes = rp.spark.run(changed(spark_local.range(0, 100, 1, 4)), programs.size, workers=2)

    assert len(sizes) == 2 and sum(sizes) == count


def joined(left, right):
    return left.join(right, left.id == right.id)


NAMES = {
    "with dots": (["a.b", "a_b", "c`d"], lambda ids: ids.selectExpr("id as `a.b`", "id as `a_b`", "id as `c``d`")),
    "twice": (["id", "more", "id"], lambda ids: joined(ids.selectExpr("id", "1 as more"), ids)),
    "none": ([], lambda ids: ids.select()),
}


@pytest.mark.parametrize("case", NAMES)
def test_every_rank_has_the_column_names_of_the_frame(spark_local, case):
    names, named = NAMES[case]

    rows = rp.spark.run(named(spark_local.range(20)), programs.columns, workers=2)

    assert all(each == names for _, found in rows for each in found)
    assert sum(count for count, _ in rows) == (20 if names else 0)


@pytest.mark.parametrize("large", ["false", "true"])
def test_a_rank_without_rows_has_the_columns(spark_local, large):
    linalg = import_module("pyspark.ml.linalg")
    columns = "id int, t timestamp, v array<float>, m map<string, int>, s struct<a: int, b: array<double>>"
    schema = pyspark.sql.types.StructType.fromDDL(columns).add("f", linalg.VectorUDT())
    row = (1, None, [1.0], {"a": 1}, (1, [2.0]), linalg.Vectors.dense([1.0, 2.0]))
    frame = spark_local.createDataFrame([row], schema).repartition(4)

    with setting(spark_local, "spark.sql.execution.arrow.useLargeVarTypes", large):
        rows = rp.spark.run(frame, programs.describe)

    assert sorted(size for size, _, _ in rows) == [0, 0, 0, 1]
    assert len({columns for _, columns, _ in rows}) == 1
    assert {shape for size, _, shape in rows if size} == {(1, 2)}


def test_vectors_of_spark_ml_are_arrays(spark_local):
    vectors = import_module("pyspark.ml.linalg").Vectors
    frame = spark_local.createDataFrame([(vectors.dense([float(i), 2.0 * i]),) for i in range(8)], ["features"])

    rows = np.concatenate(rp.spark.run(frame, programs.features, workers=2))

    assert np.array_equal(rows[rows[:, 0].argsort()], [[i, 2 * i] for i in range(8)])


def test_the_caller_gets_the_exception_of_the_program(spark_local):
    frame = spark_local.range(0, 100, 1, 4)

    with pytest.raises(ZeroDivisionError) as caught:
        rp.spark.run(frame, programs.divide, 2, schema="id long")

    assert caught.value.__cause__.rank == 2
    assert rp.spark.run(frame, programs.size) == [25] * 4


def test_a_rank_with_rows_that_ends_its_process_is_reported_with_the_message_of_spark(spark_local, tmp_path):
    job = rp.launch(engine="spark", workers=4)

    with pytest.raises(rp.RankFailed, match="Python worker exited unexpectedly") as caught:
        job.run(programs.exit_after_noting, spark_local.range(0, 4, 1, 4), str(tmp_path / "ran"), 1)

    assert caught.value.rank == 1


def test_a_failed_stage_is_not_retried(spark_local, tmp_path):
    """Spark would run a stage before a shuffle up to four times."""
    ran = tmp_path / "ran"
    with pytest.raises(rp.RankFailed):
        rp.spark.run(spark_local.range(0, 4, 1, 4), programs.exit_after_noting, str(ran), 1, schema="id long")

    assert rp.spark.run(spark_local.range(0, 4, 1, 4), programs.size) == [1] * 4
    assert Counter(ran.read_text()) == Counter("0123")


def test_ranks_of_a_restarted_spark_stage_do_not_connect_to_earlier_ranks(spark_local, tmp_path):
    """In the first attempt partition 1 cannot be read, while other ranks already wait for it."""
    failing = spark_local.range(0, 4, 1, 4).mapInArrow(programs.failing_once(tmp_path / "failed"), "id long")

    result = rp.spark.run(failing, programs.gathered_tasks, schema="pid long, tasks array<long>")

    rows = result.collect()
    assert Path(tmp_path / "failed").exists()
    assert len({row.pid for row in rows}) == 4
    assert {tuple(row.tasks) for row in rows} == {tuple(rows[0].tasks)}
    assert max(rows[0].tasks) - min(rows[0].tasks) == 3, "tasks of one attempt"


WRONG = {
    "another type": (pa.table({"id": ["a"]}), "not of schema="),
    "other columns": (pa.table({"x": [1]}), "the columns x: schema= has id"),
    "no Arrow": (7, "has returned a int: expected Arrow batches"),
}


@pytest.mark.parametrize(
    ("returned", "kind"),
    [
        ("text", "str of str"),
        ({"id": [1]}, "dict of str"),
        ([{"id": 1}], "list of dict"),
        ([[pa.table({"id": [1]})]], "list of list"),
        (pandas.DataFrame({"id": [1]}), "DataFrame of str"),
    ],
)
def test_values_without_arrow_type_are_reported_with_a_remedy(returned, kind):
    with pytest.raises(InputError, match=rf"has returned a {kind}: expected .*Table\.from_pandas"):
        import_module("ripieno.spark.programs")._as_batches(returned, pa.schema({"id": pa.int64()}))


@pytest.mark.parametrize("case", WRONG)
def test_rows_that_are_not_of_the_schema_are_refused(spark_local, case):
    returned, message = WRONG[case]

    with pytest.raises(InputError, match=message):
        rp.spark.run(spark_local.range(4), programs.returning, returned, schema="id long")


def test_castable_values_are_cast_to_the_schema(spark_local):
    returned = [pa.record_batch({"b": [1.0], "a": pa.array([2], pa.int8())}), None, pa.table({"a": [3], "b": [4]})]

    result = rp.spark.run(spark_local.range(4), programs.returning, returned, workers=1, schema="a long, b double")

    assert [tuple(row) for row in result.collect()] == [(2, 1.0), (3, 4.0)]


def test_timestamps_without_a_zone_match_the_session(spark_local):
    at = [datetime(2026, 7, 1, 12), datetime(2026, 11, 1, 1, 30), None]
    naive, known = pa.array(at, pa.timestamp("ms")), pa.array(at, pa.timestamp("us", "UTC"))
    schema = "naive timestamp, known timestamp, local timestamp_ntz"
    returned = pa.table({"naive": naive, "known": known, "local": naive})

    with setting(spark_local, "spark.sql.session.timeZone", "America/New_York"):
        result = rp.spark.run(spark_local.range(4), programs.returning, returned, workers=2, schema=schema)
        expected = spark_local.createDataFrame(pandas.DataFrame({"naive": at}), "naive timestamp").collect()
        assert sorted(result.select("naive").collect(), key=str) == sorted(expected, key=str)
        shown = result.selectExpr("string(naive)", "string(known)", "string(local)").collect()

    assert {tuple(row) for row in shown} == {
        ("2026-07-01 12:00:00", "2026-07-01 08:00:00", "2026-07-01 12:00:00"),
        ("2026-11-01 01:30:00", "2026-10-31 21:30:00", "2026-11-01 01:30:00"),
        (None, None, None),
    }


NAIVE = pa.array([datetime(2026, 3, 8, 2, 30)], pa.timestamp("us"))
NAIVES = pa.array([NAIVE.to_pylist()], pa.list_(NAIVE.type))


@pytest.mark.parametrize(
    ("returned", "kind", "message"),
    [
        (NAIVE, pa.timestamp("us", "America/New_York"), "not of schema=: Timestamp doesn't exist in timezone"),
        (NAIVES, pa.list_(pa.timestamp("us", "UTC")), "without a time zone inside of column 't'"),
    ],
)
def test_timestamps_with_an_ambiguous_zone_are_rejected(returned, kind, message):
    with pytest.raises(InputError, match=message):
        import_module("ripieno.spark.programs")._as_batches(pa.table({"t": returned}), pa.schema({"t": kind}))


def test_two_frames_among_the_arguments_are_refused(spark_local):
    with rp.launch(engine="spark", workers=2) as job:
        with pytest.raises(InputError, match="2 DataFrames among the arguments: expected one"):
            job.run(programs.ids, spark_local.range(4), spark_local.range(5))

        assert sum(job.run(programs.size, spark_local.range(4))) == 4


def test_a_stream_is_refused(spark_local):
    stream = spark_local.readStream.format("rate").load()

    with pytest.raises(InputError, match="a streaming DataFrame has no end"):
        rp.spark.run(stream, programs.size)


def test_a_frame_that_spark_cannot_compute_is_reported_with_the_reason(spark_local):
    frame = spark_local.range(0, 4, 1, 4).selectExpr("raise_error('no such row') as id")

    with pytest.raises(rp.RipienoError, match="no such row"):
        rp.spark.run(frame, programs.size)

    assert rp.spark.run(spark_local.range(0, 4, 1, 4), programs.size) == [1] * 4


@pytest.mark.parametrize("spark", ["spark_local"], indirect=True)
@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_ranks_that_take_long_hold_their_slots_however_spark_plans(spark, adaptive):
    with setting(spark, "spark.sql.adaptive.enabled", adaptive):
        # Computing the rows, behind a shuffle, takes longer than `slots_timeout_s`, and so does the program of a rank.
        pairs = spark.sparkContext.parallelize([(1, 2), (3, 4)], 2).mapPartitions(programs.taking(1.5)).groupByKey(4)
        frame = pairs.map(programs.key_alone).toDF("key int")
        options = {"workers": 4, "schema": "rows double", "slots_timeout_s": 0.5}
        result = rp.spark.run(frame, programs.counting_after(1.5), **options)
        assert sum(row.rows for row in result.collect()) == 2


@pytest.mark.parametrize("spark", ["spark_local"], indirect=True)
def test_a_result_may_have_a_column_of_any_name(spark):
    result = rp.spark.run(
        spark.range(4), programs.named_like_ours, workers=2, schema="ripieno_rank int, `rank a.b` int"
    )
    assert sorted(map(tuple, result.collect())) == [(0, 7), (1, 7)]
