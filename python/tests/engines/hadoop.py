"""Hadoop for tests: HDFS and YARN in one process, started by the script that users run."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import fsspec
import spark_sessions

ROOT = Path(__file__).resolve().parents[3]
JARS = ROOT / "target" / "hadoop"
START = ROOT / "tools" / "mini-hadoop" / "start"
RACK = "/north"
# Maximum time for the services to end.
END_S = 30.0


@dataclass(frozen=True)
class Hadoop:
    """A running Hadoop cluster, and the environment variables that it exports."""

    variables: dict[str, str]

    @property
    def files(self) -> fsspec.AbstractFileSystem:
        """Return HDFS as an fsspec file system."""
        return fsspec.url_to_fs(self.variables["WEBHDFS"] + "/")[0]

    @property
    def logs(self) -> Path:
        """Return the folder with the logs of each node."""
        return Path(self.variables["HADOOP_CONF_DIR"]).parent


def missing() -> str | None:
    """Return the reason why Hadoop cannot start here, or None."""
    if shutil.which("javac") is None:
        return "no Java compiler: install a JDK 17 or 21"
    if not (JARS / ".fetched").exists():
        return f"no jars of Hadoop in {JARS}: run 'make engines', which needs Maven"
    try:
        import requests  # noqa: F401
    except ImportError:
        return "no requests: pip install 'ripieno[hdfs]'"
    return None


@contextmanager
def started() -> Iterator[Hadoop]:
    """Start Hadoop, and end it on exit by closing its standard input."""
    process = subprocess.Popen([START], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        variables = {}
        for line in process.stdout:
            if line == "ready\n":
                break
            name, _, value = line.removeprefix("export ").strip().partition("=")
            variables[name] = value
        else:
            raise RuntimeError(f"{START} ended before it was ready, with {process.wait()}")
        yield Hadoop(variables)
    finally:
        process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def spark_configuration(folder: Path) -> dict[str, str]:
    """Return Spark's configuration: 2 executors of 2 cores. A script in `folder` assigns all hosts to `RACK`."""
    import pyspark

    topology = folder / "topology"
    topology.write_text(f'#!/bin/sh\nfor host; do echo "{RACK}"; done\n')
    topology.chmod(0o755)
    return {
        "spark.hadoop.net.topology.script.file.name": str(topology),
        # Otherwise Spark copies all jars to HDFS for each application.
        "spark.yarn.jars": f"local:{Path(pyspark.__file__).parent}/jars/*",
        "spark.executor.instances": "2",
        "spark.executor.cores": "2",
        "spark.yarn.am.memory": "384m",
        "spark.yarn.am.extraJavaOptions": spark_sessions.SMALL_JVM,
        "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
        "spark.yarn.report.interval": "200ms",
        "spark.yarn.scheduler.heartbeat.interval-ms": "200",
        "spark.yarn.scheduler.initial-allocation.interval": "100ms",
        # On a busy machine containers take some time to start.
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "90s",
        # Containers do not inherit variables. OpenBLAS rounds differently with the kernels of another processor.
        **{f"spark.executorEnv.{name}": value for name, value in os.environ.items() if name.startswith("OPENBLAS_")},
    }
