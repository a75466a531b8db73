"""The SparkSession of a benchmark, and Spark's own statistics of its stages."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ripieno.bench.toolchain import Skipped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local-cluster[2,2,3072]"
CONFIGURATION = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "3g",
    "spark.executor.memory": "3g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # Executors of another process register after the session starts; the number of cores determines how many to wait
    # for.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    # The stages of a whole fit are queried at its end.
    "spark.ui.retainedStages": "5000",
}


@contextmanager
def session(master: str, configuration: Mapping[str, str]) -> Iterator[SparkSession]:
    """Run Spark during the benchmark.

    Raises
    ------
    Skipped
        If Spark or Java is not installed.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise Skipped("PySpark is not installed: make bench installs it") from error
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise Skipped("Spark needs Java: apt-get install openjdk-17-jre-headless")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    cluster = re.match(r"local-cluster\[(\d+),\s*(\d+),", master)
    cores = {"spark.cores.max": str(int(cluster[1]) * int(cluster[2]))} if cluster else {}
    with tempfile.TemporaryDirectory() as folder:
        builder = SparkSession.builder.master(master).appName("ripieno")
        for name, value in {**CONFIGURATION, **cores, "spark.local.dir": folder, **configuration}.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        application = spark.sparkContext.applicationId
        try:
            yield spark
        finally:
            # Executors that shut down log errors about each other.
            spark.sparkContext.setLogLevel("OFF")
            spark.stop()
            _forget(application)


def slot_count(spark: SparkSession) -> int:
    """Return the number of concurrent tasks."""
    return spark.sparkContext.defaultParallelism


def task_seconds(spark: SparkSession) -> float:
    """Return the total run time of all tasks of the session so far: executorRunTime in Spark's status store."""
    jvm, gateway = spark.sparkContext._jvm, spark.sparkContext._gateway
    context = spark.sparkContext._jsc.sc()
    # Metrics reach the store through a queue.
    context.listenerBus().waitUntilEmpty()
    none = gateway.new_array(jvm.double, 0)
    stages = context.statusStore().stageList(None, False, False, none, jvm.java.util.ArrayList())
    return sum(stages.apply(at).executorRunTime() for at in range(stages.size())) / 1e3


def _forget(application: str) -> None:
    """Remove the executors' folders that a local cluster leaves in Spark's own folder."""
    import pyspark

    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    shutil.rmtree(home / "work" / application, ignore_errors=True)
