"""Spark for tests: one session at a time, because a process can have only one, each in a separate JVM.

Tests with the same master run one after another (`by_master`), so each master starts once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[4]"
CLUSTER = "local-cluster[2,2,1024]"

# Test JVMs are many and short-lived: little memory, one garbage collection thread, no optimizing compiler.
SMALL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
CONFIGURATION = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": SMALL_JVM,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": SMALL_JVM,
    "spark.sql.shuffle.partitions": "4",
    # A session is ready when all its executors are, so their number must be known.
    "spark.cores.max": "4",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    # Functions of test modules are pickled by name.
    "spark.executorEnv.PYTHONPATH": str(Path(__file__).parent),
}
ENVIRONMENT = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": SMALL_JVM}
# Time for a JVM to end after a request.
END_S = 20.0


def missing() -> str | None:
    """Return the reason why Spark cannot start here, or None."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        return "no Java: install a JDK 17 or 21"
    try:
        import pyspark  # noqa: F401
    except ImportError:
        return "no pyspark: pip install 'ripieno[spark]'"
    return None


class Sessions:
    """The session of the most recently requested master."""

    def __init__(self) -> None:
        self._master: str | None = None
        self._session: SparkSession | None = None

    def of(self, master: str, **configuration: str) -> SparkSession:
        """Return a session there; `configuration` adds to `CONFIGURATION`, with ``_`` for the dots of a name."""
        if self._session is None or self._master != master or not _alive(self._session):
            self.close()
            self._master = master
            names = {name: name if "." in name else name.replace("_", ".") for name in configuration}
            self._session = _start(master, {names[name]: value for name, value in configuration.items()})
        return self._session

    def close(self) -> None:
        """End the session and its JVM."""
        session, self._session = self._session, None
        if session is not None:
            _end(session)


@contextmanager
def standalone(folder: Path, workers: int = 2, cores: int = 2) -> Iterator[str]:
    """A master and its workers, each a JVM on loopback; yields the master's address."""
    daemons: list[subprocess.Popen[str]] = []
    deploy = "org.apache.spark.deploy"
    try:
        line = _daemon(
            daemons, folder, [f"{deploy}.master.Master", "--port", "0"], until="Starting Spark master at spark://"
        )
        master = line.rpartition(" ")[2].strip()
        for _ in range(workers):
            arguments = ["--cores", str(cores), "--memory", "1g", "--work-dir", str(folder), master]
            _daemon(daemons, folder, [f"{deploy}.worker.Worker", *arguments], until="Successfully registered")
        yield master
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            _wait(daemon)


def by_master(items: list[pytest.Item]) -> None:
    """Sort tests by the fixture of their Spark session, and otherwise keep their order."""
    items.sort(key=_sessions)


def _sessions(item: pytest.Item) -> list[str]:
    """Return the session fixtures that a test names, or has as a parameter."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    names = {*getattr(item, "fixturenames", ()), *(each for each in parameters if isinstance(each, str))}
    return sorted(name for name in names - {"spark_sessions_of"} if name.startswith("spark_"))


def _start(master: str, configuration: dict[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ.update(ENVIRONMENT, PYSPARK_PYTHON=sys.executable)
    builder = SparkSession.builder.master(master).appName("tests")
    for name, value in (CONFIGURATION | configuration).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _alive(session: SparkSession) -> bool:
    return session.sparkContext._jsc is not None and not session.sparkContext._jsc.sc().isStopped()


def _end(session: SparkSession) -> None:
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    session.stop()
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    # It ends when all writers of its standard input are closed.
    gateway.proc.stdin.close()
    _wait(gateway.proc)


def _daemon(daemons: list[subprocess.Popen[str]], folder: Path, arguments: list[str], *, until: str) -> str:
    """Start a daemon and return the line by which it reports that it is ready."""
    import pyspark

    home = Path(pyspark.__file__).parent
    daemon = subprocess.Popen(
        [home / "bin" / "spark-class", arguments[0], "--host", "127.0.0.1", "--webui-port", "0", *arguments[1:]],
        env=os.environ | ENVIRONMENT | {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable},
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    daemons.append(daemon)
    lines = []
    for line in daemon.stderr:
        lines.append(line)
        if until in line:
            threading.Thread(target=daemon.stderr.read, daemon=True).start()
            return line
    raise RuntimeError(f"{arguments[0]} ended before it was ready:\n{''.join(lines[-20:])}")


def _wait(process: subprocess.Popen) -> None:
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
