"""Shared setup of tests on real engines: one fixture per engine, which starts it on first use."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import dask_cases
import hadoop
import launched
import pytest
import ray_network
import slurm_cluster
import spark_sessions
from conformance import WHOLE_SUITE
from ripieno.launch import limits
from spark_sessions import Sessions

# Engines by the fixtures that start them. A test with several engines counts for the longest, listed first.
ENGINES = {
    "mini_hadoop": "hadoop",
    "spark_yarn": "hadoop",
    "spark_cluster": "spark-cluster",
    "ray_started": "ray",
    "ray_nodes": "ray",
    "spark_local": "spark-local",
    "slurm": "slurm",
    "dask_started": "dask",
    "dask_client": "dask",
    "dask_threads": "dask",
    "spark_standalone": "spark-standalone",
    "open_mpi": "mpi",
    "hydra": "mpi",
}


#: Seconds of computing of each group, as recorded by `make times RECORD=1`.
RECORDED_S: dict[str, float] = json.loads((Path(__file__).parents[1] / "times.json").read_text())["engines"]


@pytest.fixture(scope="session", autouse=True)
def _longer_rendezvous() -> Iterator[None]:
    """Wait longer for ranks to join, because several engines start at the same time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "RENDEZVOUS_TIMEOUT_S", 3 * limits.RENDEZVOUS_TIMEOUT_S)
        yield


# Before xdist, which then looks for groups.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    spark_sessions.by_master(items)
    engines = {item: _engine(item) for item in items}
    # Longest groups first: a long group that starts last would delay the end of the run.
    items.sort(key=lambda item: -RECORDED_S.get(engines[item], 0.0))
    # Several processes may share the tests, but an engine starts in only one of them.
    for item in items:
        item.add_marker(pytest.mark.xdist_group(engines[item]))
        if _varies_the_engine_alone(item):
            item.add_marker(pytest.mark.exhaustive)


def _varies_the_engine_alone(item: pytest.Item) -> bool:
    """Return whether a test of the conformance suite also runs on another engine of the same kind."""
    engine = item.callspec.params.get("tested_engine") if hasattr(item, "callspec") else None
    return engine not in (None, *WHOLE_SUITE) and item.get_closest_marker("every_engine") is None


def _engine(item: pytest.Item) -> str:
    """Return the engine of a test, from a fixture or parameter that names one; else its file."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    requested = {*getattr(item, "fixturenames", ()), *(each for each in parameters if isinstance(each, str))}
    return next((engine for fixture, engine in ENGINES.items() if fixture in requested), item.path.stem)


@pytest.fixture(scope="session")
def spark_sessions_of() -> Iterator[Sessions]:
    """Start Spark sessions, one at a time: a request for another master ends the previous session."""
    reason = spark_sessions.missing()
    if reason is not None:
        pytest.skip(reason)
    sessions = Sessions()
    yield sessions
    sessions.close()


@pytest.fixture(scope="session")
def standalone_master(tmp_path_factory: pytest.TempPathFactory, spark_sessions_of: Sessions) -> Iterator[str]:
    """The address of a standalone master with 2 workers of 2 cores."""
    with spark_sessions.standalone(tmp_path_factory.mktemp("standalone")) as master:
        yield master


# The following fixtures are function-scoped: each request gets a live session, even if another test ended it.
@pytest.fixture
def spark_local(spark_sessions_of: Sessions):
    """A SparkSession with 4 slots in one JVM."""
    return spark_sessions_of.of(spark_sessions.LOCAL)


@pytest.fixture
def spark_cluster(spark_sessions_of: Sessions):
    """A SparkSession with 2 executors of 2 slots, each a process of its own."""
    return spark_sessions_of.of(spark_sessions.CLUSTER)


@pytest.fixture
def spark_standalone(spark_sessions_of: Sessions, standalone_master: str):
    """A SparkSession with 2 executors of 2 slots at a standalone master."""
    return spark_sessions_of.of(standalone_master)


@pytest.fixture(scope="session")
def mini_hadoop() -> Iterator[hadoop.Hadoop]:
    """HDFS, and YARN with two nodes."""
    reason = hadoop.missing()
    if reason is not None:
        pytest.skip(reason)
    with hadoop.started() as started:
        yield started


@pytest.fixture(scope="session")
def yarn_sessions(mini_hadoop: hadoop.Hadoop, spark_sessions_of: Sessions) -> Iterator[Sessions]:
    """Start sessions on YARN; they end before YARN does."""
    yield spark_sessions_of
    spark_sessions_of.close()


@pytest.fixture
def spark_yarn(yarn_sessions: Sessions, mini_hadoop: hadoop.Hadoop, monkeypatch: pytest.MonkeyPatch):
    """A SparkSession with 2 executors of 2 slots, each in a container of YARN."""
    # Spark's JVM reads it at its start, and sessions of other masters must not have it.
    monkeypatch.setenv("HADOOP_CONF_DIR", mini_hadoop.variables["HADOOP_CONF_DIR"])
    return yarn_sessions.of("yarn", **hadoop.spark_configuration(mini_hadoop.logs))


@pytest.fixture(scope="session")
def ray_started() -> Iterator[ray_network.Nodes]:
    """A Ray of two nodes with two CPUs each, in a network of its own."""
    reason = ray_network.missing()
    if reason is not None:
        pytest.skip(reason)
    with ray_network.started() as nodes:
        yield nodes


@pytest.fixture
def ray_nodes(ray_started: ray_network.Nodes) -> Iterator[ray_network.Nodes]:
    """Run the test in Ray's network, in a process that has joined Ray."""
    with ray_started.joined():
        yield ray_started


@pytest.fixture(scope="session")
def dask_started():
    """A client of a Dask cluster with 4 workers of one thread, each a process with a nanny."""
    distributed = pytest.importorskip("distributed", reason="needs Dask: pip install 'ripieno[dask]'")
    import dask

    options = {"n_workers": 4, "threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with (
        # Tests kill workers. Forks of a process that has imported Dask restart faster.
        dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}),
        # After the loss of a worker, a cluster waits this long for its return. A worker that returned and died again
        # within this time would be given up for good.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"}),
        distributed.LocalCluster(**options, memory_limit="1GB") as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def dask_client(dask_started):
    """Provide the same client with all its workers, whatever earlier tests did to them."""
    dask_started.wait_for_workers(4, timeout=60)
    return dask_started


@pytest.fixture(scope="session")
def dask_threads():
    """Provide a client of a Dask cluster with 2 workers in this process, without nannies, with 2 threads each."""
    distributed = pytest.importorskip("distributed", reason="needs Dask: pip install 'ripieno[dask]'")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=2, **dask_cases.INSIDE) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[slurm_cluster.SlurmCluster]:
    """A Slurm of 2 nodes with 2 CPUs each."""
    reason = slurm_cluster.missing()
    if reason is not None:
        pytest.skip(reason)
    with slurm_cluster.started(tmp_path_factory.mktemp("slurm")) as cluster, pytest.MonkeyPatch.context() as patch:
        for name, value in cluster.variables.items():
            patch.setenv(name, value)
        yield cluster


@pytest.fixture(scope="session")
def open_mpi() -> Iterator[str]:
    """Return the path of Open MPI's launcher, configured for this machine and loopback."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in launched.OPEN_MPI.items():
            patch.setenv(name, value)
        yield _installed("mpirun.openmpi", "openmpi-bin")


@pytest.fixture(scope="session")
def hydra() -> str:
    """MPICH's launcher."""
    return _installed("mpiexec.hydra", "mpich")


def _installed(program: str, package: str) -> str:
    if shutil.which(program) is None:
        pytest.skip(f"{program} not installed: apt-get install {package}")
    return program
