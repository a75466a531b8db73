"""Spark internals that another version may lack: the error names the version and the missing part."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import ripieno as rp
import spark_programs as programs
from ripieno.errors import EngineError

pytest.importorskip("pyspark", reason="no pyspark: pip install 'ripieno[spark]'")

from py4j.protocol import Py4JNetworkError
from pyspark.ml.functions import array_to_vector
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from ripieno.launch.engines.spark import internals


@pytest.mark.parametrize("version", ["4.1.0", "4.1.0-SNAPSHOT", "4.10.2", "5.0.0.dev1"])
def test_a_version_with_all_used_attributes_is_accepted(version):
    internals.check_version(version)


@pytest.mark.parametrize("version", ["4.0.1", "3.5.6-amzn-1", "nightly"])
def test_an_older_version_is_refused(version):
    with pytest.raises(EngineError, match=rf"Spark 4\.1 or later is needed, this is {version}"):
        internals.check_version(version)


@pytest.mark.parametrize(
    ("schema", "rows"),
    [
        ("x double, s string, t struct<u: int>", 0),
        ("x double, v array<double>", internals.LIST_ROWS_MAX),
        ("v array<double> not null", 0),
        ("v array<array<double>> not null, m map<string, int>", internals.LIST_ROWS_MAX),
        ("t struct<v: array<double> not null> not null", 0),
        ("t struct<v: array<double> not null>", internals.LIST_ROWS_MAX),
    ],
)
def test_batches_are_bounded_by_rows_only_where_lists_may_be_null(spark_local, schema, rows):
    assert internals.rows_max(StructType.fromDDL(schema)) == rows


def test_batches_of_vectors_have_few_rows(spark_local):
    numbers = spark_local.range(0, 5000, 1, 2)
    frame = numbers.select(array_to_vector(F.array(numbers.id.cast("double"))).alias("point"))

    counts = rp.spark.run(frame, programs.rows_of_batches, workers=2)

    assert counts == [[1024, 1024, 452]] * 2


STARTS = {
    "a job": lambda spark: rp.launch(engine="spark", spark=spark),
    "a program": lambda spark: rp.spark.run(spark.range(4), programs.row_count),
}


@pytest.mark.parametrize("case", STARTS)
def test_an_older_session_is_refused_before_anything_starts(spark_local, case, monkeypatch):
    jobs = spark_local.sparkContext._jsc.sc().dagScheduler().numTotalJobs
    before = jobs()
    monkeypatch.setattr(spark_local, "version", "4.0.1")

    with pytest.raises(EngineError, match=r"Spark 4\.1 or later is needed, this is 4\.0\.1"):
        STARTS[case](spark_local)

    assert jobs() == before
    spark_local.range(1).count()
    assert jobs() > before


def test_a_missing_attribute_of_pyspark_is_reported_with_its_version():
    with pytest.raises(EngineError, match=r"^Spark 9\.9 lacks internals that ripieno .* uses \(.*'_temp_dir'\)"):
        internals.folder(SimpleNamespace(version="9.9"))


def test_a_closed_connection_is_not_reported_as_a_missing_attribute():
    def ended():
        raise Py4JNetworkError("Answer from Java side is empty")

    with pytest.raises(Py4JNetworkError):
        internals.slots(SimpleNamespace(version="9.9", _jsc=SimpleNamespace(sc=ended)))


MISSING = {
    "a method": (lambda spark: spark._jsc.sc().orchestra(), r"Method orchestra\(\[\]\) does not exist"),
    "a class": (
        lambda spark: spark._jvm.org.apache.spark.sql.Orchestra.ofRows(),
        "'JavaPackage' object is not callable",
    ),
    "a static method": (lambda spark: spark._jvm.org.apache.spark.sql.classic.Dataset.orchestra(), "orchestra"),
}


@pytest.mark.parametrize("case", MISSING)
def test_missing_classes_of_the_jvm_are_reported_with_its_version(spark_local, case):
    missing, reason = MISSING[case]
    spark = spark_local.sparkContext

    message = rf"^Spark {spark.version} lacks internals that ripieno .* uses \(.*{reason}.*\)"
    with pytest.raises(EngineError, match=message), internals._naming_version(spark):
        missing(spark)
