"""The jars for Java and Spark from a user's view. Maven runs the tests that need no other process."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import ripieno as rp
import spark_sessions
from launcher_environments import TOKEN
from varied import exhaustively

ROOT = Path(__file__).resolve().parents[3]
BUILT = ROOT / "target" / "jvm"
PROGRAMS = Path(__file__).parent / "jvm"
#: Enough for a JVM to start and end on busy cores.
TIMEOUT_S = 300.0

# Each test starts several JVMs in sequence, in parallel with another engine's tests.
pytestmark = [
    pytest.mark.skipif(not list(BUILT.glob("*/*.jar")), reason="no jars: make jvm"),
    pytest.mark.timeout(900),
]


def _jars() -> list[Path]:
    return sorted(path for path in BUILT.glob("*/ripieno*.jar"))


def _jdks() -> list[str]:
    """Return the Java on the path, and a newer one if installed."""
    found = [shutil.which("java") or "java"]
    newer = sorted(Path("/usr/lib/jvm").glob("*25*/bin/java"))
    return [*found, *(str(java) for java in newer[:1])]


@pytest.fixture(
    scope="module",
    params=[*_jdks()[:1], *exhaustively(*_jdks()[1:])],
    ids=lambda java: "newer" if "25" in java else "path",
)
def java(request: pytest.FixtureRequest) -> str:
    """A Java machine."""
    return str(request.param)


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a jar of the programs next to this file."""
    folder = tmp_path_factory.mktemp("classes")
    spark = [str(path) for path in _spark_jars()]
    path = os.pathsep.join([*map(str, _jars()), *spark])
    sources = [str(source) for source in sorted(PROGRAMS.glob("*.java")) if spark or source.stem == "Rank"]
    subprocess.run(["javac", "-cp", path, "-d", str(folder / "made"), *sources], check=True)
    jar = folder / "programs.jar"
    subprocess.run(["jar", "--create", "--file", str(jar), "-C", str(folder / "made"), "."], check=True)
    return jar


def _spark_jars() -> list[Path]:
    if spark_sessions.missing() is not None:
        return []
    import pyspark

    return sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))


def _rank(java: str, classes: Path, folder: Path, rank: int, size: int, program: str) -> subprocess.Popen[str]:
    path = os.pathsep.join(map(str, [classes, *_jars()]))
    options = ["-Xcheck:jni", "-Xmx256m", "--enable-native-access=ALL-UNNAMED"]
    words = [java, *options, "-cp", path, "Rank", str(folder), TOKEN, str(rank), str(size), program]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.fixture
def ranks(java: str, classes: Path, tmp_path: Path) -> Iterator[Iterator[subprocess.Popen[str]]]:
    """Start ranks of Java, which end with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(rank: int, size: int, program: str) -> subprocess.Popen[str]:
        started.append(_rank(java, classes, tmp_path, rank, size, program))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def _output_lines(process: subprocess.Popen[str]) -> list[str]:
    """Return the output lines of a rank, which must succeed."""
    out, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, out
    assert "WARNING" not in out and "FATAL" not in out, out
    return out.splitlines()


PYTHON_RANK = """
import struct
import numpy as np, ripieno as rp
comm = rp.init()
values = comm.allreduce(np.arange(1000) + 0.1 * comm.rank)
root = comm.broadcast(np.array([comm.rank * 7, 3], np.int32), comm.world_size - 1, out=np.zeros(2, np.int32))
largest = comm.allreduce(np.array([comm.rank, -1], np.float32), op="max")
comm.barrier()
print(struct.pack(">d", values[999]).hex(), root.tolist(), list(map(float, largest)))
"""


def test_ranks_of_java_and_of_python_compute_together(ranks, tmp_path):
    size = 3
    java = [ranks(rank, size, "sums") for rank in (0, 2)]
    place = {"RIPIENO_DIRECTORY": str(tmp_path), "RIPIENO_TOKEN": TOKEN, "RANK": "1", "WORLD_SIZE": str(size)}
    python = subprocess.run(
        [sys.executable, "-c", PYTHON_RANK],
        env=os.environ | place,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert python.returncode == 0, python.stderr
    bits = python.stdout.split()[0]
    for process in java:
        assert _output_lines(process) == [f"{bits} [14, 3] [2.0, -1.0]"]


def _drawn(count: int, columns: int) -> np.ndarray:
    """Return the same random rows as `Rank.java`."""
    state, values = 7, np.empty(count * columns, np.float32)
    for at in range(len(values)):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        values[at] = np.float32(state) / np.float32(1048576)
    return values.reshape(count, columns)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_kmeans_of_java_has_the_bits_of_pythons(ranks, size):
    rows = _drawn(3000, 5)
    model = rp.KMeans(20, init=rows[:20].copy(), max_iter=40, tol=1e-4, workers=size).fit(rows)
    java = [ranks(rank, size, "kmeans") for rank in range(size)]
    printed = [_output_lines(process)[-1].split() for process in java]
    wanted = [struct.pack(">d", value).hex() for value in (model.inertia_, *model.cluster_centers_.ravel())]
    assert printed[0][0] == str(model.n_iter_)
    assert all(each[2:] == wanted for each in printed)
    labels = np.array_split(model.labels_, size)
    for each, own in zip(printed, labels, strict=True):
        number = 1
        for label in own.tolist():
            number = (31 * number + label) & 0xFFFFFFFF
        assert int(each[1]) & 0xFFFFFFFF == number


@pytest.mark.parametrize("size", [1, 3])
def test_pagerank_of_java_equals_pythons(ranks, size):
    state, edges, weights = 7, [], []
    for edge in range(3000):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        source = (state >> 8) % 90
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        edges.append((source, (state >> 8) % 120 + edge % 2 * 10_000_000_000))
        weights.append((state >> 20) % 5)
    edges = np.array(edges)
    java = [ranks(rank, size, "pagerank") for rank in range(size)]
    printed = [_output_lines(process) for process in java]
    graphs = [edges, (edges[:, 0], edges[:, 1], np.array(weights, float))]
    for graph, lines in zip(graphs, zip(*printed, strict=True), strict=True):
        model = rp.PageRank(workers=size).fit(rp.Graph(graph))
        found = {
            int(vertex): float(rank)
            for line in lines
            for vertex, rank in (pair.split("=") for pair in line.split()[1:])
        }
        assert sorted(found) == model.vertices_.tolist()
        assert [found[vertex] for vertex in model.vertices_.tolist()] == pytest.approx(model.ranks_, abs=1e-9, rel=1e-9)
        assert {line.split()[0] for line in lines} == {str(model.n_iter_)}


@pytest.mark.parametrize("size", [1, 3])
def test_als_of_java_finds_the_optimum_of_pythons(ranks, size):
    state, rows = 7, []
    for user in range(60):
        for item in range(40):
            state = (state * 1103515245 + 12345) & 0x7FFFFFFF
            if (state >> 8) % 5 < 3:
                rating = 1 + user % 5 + user % 3 * (item % 4) + ((state >> 16) % 8) / 8
                rows.append((user * 1_000_000_007, item - 20, rating))
    users, items, ratings = (np.array(column) for column in zip(*rows, strict=True))
    java = [ranks(rank, size, "als") for rank in range(size)]
    printed = [_output_lines(process) for process in java]
    # The initial factors differ; both fits converge to the same optimum.
    model = rp.ALS(rank=2, max_iter=150, reg=0.1, random_state=0).fit((users, items, ratings))
    expected = [model.objective_, np.square(model.user_factors_).sum(), np.square(model.item_factors_).sum()]
    for (line,) in printed:
        assert [float(number) for number in line.split()] == pytest.approx(expected, rel=1e-4)


def test_a_rank_that_is_killed_is_named_to_ranks_of_java(ranks):
    size = 3
    java = [ranks(rank, size, "failing") for rank in range(size)]
    assert java[2].stdout is not None
    assert java[2].stdout.readline() == "here\n"
    java[2].send_signal(signal.SIGKILL)
    for process in java[:2]:
        assert _output_lines(process)[1].startswith(f"rank 2 on host {socket.gethostname()} failed: ")
    assert java[2].wait() == -signal.SIGKILL


@pytest.mark.parametrize("master", ["local[4]", *exhaustively("local-cluster[2,2,1024]")])
def test_programs_and_kmeans_run_on_spark(classes, tmp_path, master):
    reason = spark_sessions.missing()
    if reason is not None:
        pytest.skip(reason)
    jars = ",".join(map(str, _jars()))
    options = ["--master", master, "--jars", jars, "--class", "SparkPrograms", "--driver-memory", "512m"]
    home = _spark_jars()[0].parents[1]
    command = [str(home / "bin/spark-submit"), *options, str(classes), str(tmp_path)]
    place = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    ran = subprocess.run(command, capture_output=True, text=True, env=os.environ | place, timeout=800)
    assert ran.returncode == 0, ran.stderr[-4000:]
    printed = [line for line in ran.stdout.splitlines() if line.split()[0] in KINDS]
    assert printed[0] == "sums [499500.0, 1000.0, 4.0] [499500.0, 1000.0, 4.0]"
    assert printed[1] == "shared [80.0, 80.0] 4"
    centers, peers, cost, peer_cost = (line.split(maxsplit=1)[1] for line in printed[2:6])
    # Spark's random draws depend on the placement of rows on executors, and may end in a worse optimum.
    is_same = float(cost) == pytest.approx(float(peer_cost), rel=1e-9)
    assert centers == peers if is_same else float(cost) < float(peer_cost)
    assert printed[6] == "summary true [400, 400, 400, 400, 400] x,y,id,point,label"
    assert printed[7] == "summary false true"
    assert printed[8] == "pairs of labels 5"
    assert printed[9].startswith("read ") and printed[9].endswith(" 5")
    assert float(printed[10].split()[1]) < 1e-5
    assert printed[11:13] == ["weighted 2.0", "missing true"]
    ranks = rp.PageRank().fit(np.array([[0, 2], [1, 2], [2, 0]])).ranks_
    for line in printed[13:15]:
        found = [float(pair.split("=")[1]) for pair in line.split()[1:]]
        assert found == pytest.approx(ranks, abs=1e-9)
    assert printed[15:17] == ["pagerank true false", "pagerank false true"]
    assert "after maxIter=3 iterations the ranks still changed" in ran.stderr
    assert printed[17] == "pagerank srcCol=from: expected one of src, to"
    rmse, peer_rmse = (float(number) for number in printed[18].split()[1:])
    assert rmse == pytest.approx(peer_rmse, rel=0.1) and rmse < 1
    assert printed[19:22] == ["als NaN 0", "als true 2", "als true"]
    assert printed[22] == "arrow true column 0 has 1 nulls: expected none"
    assert "expected vectors" in printed[23] and "expected one of features" in printed[24]
    # Spark itself would ask for the slots for ten minutes.
    few = re.fullmatch(
        r"slots (\d+) Spark has too few slots for 99 ranks: 4 in all; request fewer workers, .*", printed[25]
    )
    assert few is not None and int(few[1]) < 60, printed[25]
    assert printed[26] == "failed true"
    if master != "local[4]":
        # An executor is lost; the remaining ranks do not wait for its ranks' heartbeat timeout.
        assert int(printed[27].removeprefix("killed ")) < 60


KINDS = {
    "sums",
    "shared",
    "centers",
    "cost",
    "summary",
    "pairs",
    "read",
    "float",
    "weighted",
    "missing",
    "pagerank",
    "als",
    "arrow",
    "refused",
    "slots",
    "failed",
    "killed",
}


#: Preconditions of the page's example.
GIVEN = """
import org.apache.spark.ml.feature.VectorAssembler
import org.apache.spark.sql.functions.col
val numbers = spark.sparkContext.parallelize((0 until 1000).map(_.toDouble), 4)
val columns = spark.range(3000).select((col("id") % 50).cast("double") as "x", (col("id") % 77).cast("double") as "y")
val df = new VectorAssembler().setInputCols(Array("x", "y")).setOutputCol("point").transform(columns)
"""
SHOWN = """
println("sums " + sums.get(0).mkString(" "))
println("centers " + model.getClusterCenters.length)
System.exit(0)
"""


@pytest.mark.exhaustive
def test_the_example_of_the_page_runs_in_a_spark_shell(tmp_path):
    if spark_sessions.missing() is not None:
        pytest.skip(str(spark_sessions.missing()))
    page = (ROOT / "docs/jvm.md").read_text()
    (example,) = re.findall(r"```scala\n(.*?)```", page, re.DOTALL)
    script = tmp_path / "example.scala"
    script.write_text(GIVEN + example + SHOWN)
    home = _spark_jars()[0].parents[1]
    options = ["--master", "local[8]", "--jars", ",".join(map(str, _jars())), "--conf", "spark.ui.enabled=false"]
    place = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "TERM": "dumb"}
    ran = subprocess.run(
        [str(home / "bin/spark-shell"), *options, "-i", str(script)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=os.environ | place,
        timeout=800,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert "sums 499500.0 1000.0" in ran.stdout and "centers 1000" in ran.stdout, ran.stdout


@pytest.mark.parametrize("case", exhaustively("array", "aggregate", "kmeans"))
def test_the_jvm_is_compared_with_spark_and_flink(tmp_path, case):
    if spark_sessions.missing() is not None:
        pytest.skip(str(spark_sessions.missing()))
    target = tmp_path / "figures.json"
    command = [sys.executable, str(ROOT / "benches/run.py"), "jvm", "--case", case, "--quick", "--json", str(target)]
    command += ["--draw", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stderr
    (report,) = json.loads(target.read_text())["reports"]
    peers = [peer for figure in report["figures"] for peer in figure["peers"]]
    wanted = {
        "array": ["2 ranks of Python"] * 2,
        "aggregate": ["treeAggregate"],
        "kmeans": ["MLlib", "Flink"] * 6,
    }
    assert case != "kmeans" or "MLlib" in (tmp_path / "kmeans.svg").read_text()
    # Flink is downloaded, so it may be missing.
    assert peers == wanted[case] or "Flink is skipped" in str(report["remarks"])
