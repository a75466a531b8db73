"""Benchmark from the JVM: sums of 80 MB, and K-means from Spark, compared with Spark, MLlib, Flink and Python.

Source: Ekanayake et al., "Java thread and process performance for parallel machine learning on multicore HPC clusters",
figures 15 and 16. Flink's program is its own example. The time of an iteration is the difference between a long and a
short fit, divided by their difference in iterations. Python's comes from its report.
"""

from __future__ import annotations

import os
import secrets
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import ripieno as rp
from effort import Effort, Measured
from ripieno.bench.figures import Figure, Measurements, Samples
from ripieno.bench.pages.kmeans import programs_chart
from ripieno.bench.toolchain import Skipped
from ripieno.comm.communicator import Communicator

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = Path(__file__).with_name("jvm")
JARS = ROOT / "target/jvm"
TIMEOUT_S = 900.0

LENGTH, QUICK_LENGTH = 10_000_000, 10_000
SUM_TURNS = 5
#: Upper limits relative to the native sum, for arrays and direct buffers, and relative to treeAggregate.
ARRAY_TARGET, AGGREGATE_TARGET = 1.5, 1 / 10

POINTS, QUICK_POINTS = 100_000, 2_000
CENTROIDS, QUICK_CENTROIDS = (1_000, 4_000, 16_000), (10,)
#: Iterations of a short fit, of a long fit, and of our long fit, which needs more iterations to be measurable.
FEW, MANY, MOST = 2, 7, 42
#: Upper limits of an iteration relative to MLlib's and Flink's, and to Python's.
PEER_TARGET, PYTHON_TARGET = 1 / 5, 1.05

#: JDK packages that Flink must access.
OPENED = ("java.lang", "java.util", "java.nio")


def cases(draw: Path | None) -> dict[str, Measured]:
    """Return the measurements by name; K-means draws kmeans.svg into a folder."""
    return {
        "array": _arrays,
        "aggregate": _aggregates,
        "kmeans": lambda report, effort: _kmeans(report, effort, draw),
    }


def _arrays(report: Measurements, effort: Effort) -> None:
    length = QUICK_LENGTH if effort.quick else LENGTH
    turns = 2 if effort.quick else SUM_TURNS
    in_array, in_buffer, native = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        path = _compiled("AllreduceTurns", Path(folder), [])
        for _ in range(effort.runs(3)):
            for line in _java_ranks(path, length, turns):
                array, buffer = map(float, line.split())
                in_array.append(array)
                in_buffer.append(buffer)
            with rp.launch(workers=2) as job:
                native.extend(job.run(_summed, length, turns)[0])
    for row, ours in (("double[]", in_array), ("direct buffer", in_buffer)):
        report.figures.append(
            Figure(
                case=f"allreduce of {8 * length / 1e6:g} MB, 2 ranks of Java",
                row=row,
                ours=Samples(tuple(ours)),
                peers={"2 ranks of Python": Samples(tuple(native))},
                limit_s=None,
                limit="",
                work=8 * length / 1e9,
                rate_unit="GB/s",
                targets={"peer": ARRAY_TARGET},
            )
        )


def _summed(comm: Communicator, length: int, turns: int) -> list[float]:
    values, seconds = np.ones(length), []
    for turn in range(-2, turns):
        values[:] = 1.0
        comm.barrier()
        begin = time.perf_counter()
        comm.allreduce(values, out=values)
        if turn >= 0:
            seconds.append(time.perf_counter() - begin)
    return seconds


def _java_ranks(path: str, length: int, turns: int) -> list[str]:
    """Run two ranks and return the output of rank 0."""
    with tempfile.TemporaryDirectory() as folder:
        token = secrets.token_hex(16)
        command = ["java", "-Xmx1g", "-XX:MaxDirectMemorySize=1g", "-cp", path, "AllreduceTurns", folder, token]
        ranks = [
            subprocess.Popen(
                [*command, str(rank), "2", str(length), str(turns)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            for rank in range(2)
        ]
        printed = [rank.communicate(timeout=TIMEOUT_S) for rank in ranks]
    for rank, (_, errors) in zip(ranks, printed, strict=True):
        if rank.returncode:
            raise RuntimeError(f"a rank of Java ended with {rank.returncode}: {errors.decode()}")
    return printed[0][0].decode().splitlines()


def _aggregates(report: Measurements, effort: Effort) -> None:
    length = QUICK_LENGTH if effort.quick else LENGTH
    turns = effort.runs(SUM_TURNS)
    found = np.array(_spark_turns("local-cluster[2,1,3072]", "3g", ["sum", str(length), str(turns)]))
    report.figures.append(
        Figure(
            case=f"sum of {8 * length / 1e6:g} MB between executors",
            row="double[]",
            ours=Samples(tuple(found[:, 0])),
            peers={"treeAggregate": Samples(tuple(found[:, 1]))},
            limit_s=None,
            limit="",
            work=8 * length / 1e9,
            rate_unit="GB/s",
            targets={"peer": AGGREGATE_TARGET},
        )
    )


def _kmeans(report: Measurements, effort: Effort, draw: Path | None) -> None:
    count = QUICK_POINTS if effort.quick else POINTS
    turns, most = effort.runs(3), MANY if effort.quick else MOST
    drawn: dict[str, dict[int, Samples]] = {}
    for k in QUICK_CENTROIDS if effort.quick else CENTROIDS:
        words = ["kmeans", *map(str, (count, k, FEW, MANY, most, turns))]
        ours, mllib = np.array(_spark_turns("local[2]", "3g", words)).T
        drawn.setdefault("Ripieno, Spark", {})[k] = Samples(tuple(ours))
        peers = {"MLlib": mllib, "Flink": _flink(report, count, k, turns), "Python": _python(count, k, turns)}
        for name, seconds in peers.items():
            if seconds is not None:
                drawn.setdefault("Ripieno, Python" if name == "Python" else name, {})[k] = Samples(tuple(seconds))
                report.figures.append(
                    Figure(
                        case=f"iteration of K-means, {count:,} × 2, 2 cores, beside {name}",
                        row=f"{k:,} centroids",
                        ours=Samples(tuple(ours)),
                        peers={name: Samples(tuple(seconds))},
                        limit_s=None,
                        limit="",
                        work=count * k / 1e9,
                        rate_unit="G distances/s",
                        targets={"peer": PYTHON_TARGET if name == "Python" else PEER_TARGET},
                    )
                )
    if draw is not None:
        draw.mkdir(parents=True, exist_ok=True)
        (draw / "kmeans.svg").write_text(programs_chart(f"K-means, {count:,} × 2, 2 cores", drawn), encoding="utf-8")


def _python(count: int, k: int, turns: int) -> list[float]:
    """Return the seconds of an iteration of each fit with two Python ranks."""
    rows = np.random.default_rng(0).random((count, 2))
    with rp.launch(workers=2, threads=1) as job:
        fits = [
            rp.KMeans(k, init="random", max_iter=MOST, tol=0, n_init=1, random_state=0, engine=job).fit(rows)
            for _ in range(turns)
        ]
    return [statistics.fmean(each.seconds for each in fit.report_.iterations[FEW:]) for fit in fits]


def _flink(report: Measurements, count: int, k: int, turns: int) -> list[float] | None:
    """Return the seconds of Flink's example, from the difference of two jobs; None without Flink."""
    try:
        jars = _flink_jars()
    except Skipped as skipped:
        report.remark(str(skipped))
        return None
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        points, centroids = Path(folder) / "points", Path(folder) / "centroids"
        np.savetxt(points, random.random((count, 2)), fmt="%.6f")
        np.savetxt(centroids, np.column_stack([np.arange(k), random.random((k, 2))]), fmt=["%d", "%.6f", "%.6f"])
        opened = [f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in OPENED]
        command = [
            "java",
            *opened,
            "-Xmx3g",
            "-cp",
            str(jars / "*"),
            "org.apache.flink.examples.java.clustering.KMeans",
        ]
        command += ["--points", str(points), "--centroids", str(centroids), "--output", str(Path(folder) / "out")]
        return [(_job_s(command, MANY) - _job_s(command, FEW)) / (MANY - FEW) for _ in range(turns)]


def _job_s(command: list[str], iterations: int) -> float:
    shutil.rmtree(command[-1], ignore_errors=True)
    begin = time.perf_counter()
    subprocess.run([*command, "--iterations", str(iterations)], check=True, capture_output=True, timeout=TIMEOUT_S)
    return time.perf_counter() - begin


def _flink_jars() -> Path:
    """Return the folder of Flink and its examples, after downloading them if missing."""
    jars = ROOT / "target/flink"
    if not list(jars.glob("flink-examples-batch*.jar")):
        if shutil.which("mvn") is None:
            raise Skipped("Flink is skipped: Maven fetches it (apt-get install maven)")
        command = ["mvn", "--quiet", "--batch-mode", "--no-transfer-progress", "package"]
        if subprocess.run(command, cwd=PROGRAMS, capture_output=True).returncode:
            raise Skipped(f"Flink is skipped: {' '.join(command)} in {PROGRAMS} fails")
    return jars


def _spark_turns(master: str, memory: str, words: list[str]) -> list[list[float]]:
    """Return the seconds of each turn of a program started with spark-submit."""
    home = _spark_home()
    with tempfile.TemporaryDirectory() as folder:
        _compiled("SparkTurns", Path(folder), sorted((home / "jars").glob("*.jar")))
        jar = Path(folder) / "turns.jar"
        subprocess.run(["jar", "--create", "--file", str(jar), "-C", folder, "."], check=True)
        options = ["--master", master, "--driver-memory", memory, "--jars", ",".join(map(str, _jars()))]
        for name, value in {
            "spark.ui.enabled": "false",
            "spark.executor.memory": memory,
            "spark.driver.maxResultSize": "0",
            "spark.local.dir": folder,
        }.items():
            options += ["--conf", f"{name}={value}"]
        command = [str(home / "bin/spark-submit"), *options, "--class", "SparkTurns", str(jar), *words]
        place = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | place, timeout=TIMEOUT_S)
    if done.returncode:
        raise RuntimeError(f"SparkTurns {' '.join(words)} ended with {done.returncode}: {done.stderr[-2000:]}")
    lines = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("turn ")]
    return [[float(word) for word in line] for line in lines]


def _spark_home() -> Path:
    try:
        import pyspark
    except ImportError as error:
        raise Skipped("PySpark is not installed: make bench installs it") from error
    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def _jars() -> list[Path]:
    found = sorted(JARS.glob("*/ripieno*.jar"))
    if not found or shutil.which("javac") is None:
        raise Skipped("the JVM is skipped: run make jvm, which needs a JDK and Maven")
    return found


def _compiled(program: str, folder: Path, jars: list[Path]) -> str:
    """Compile a program into a folder and return its class path."""
    path = os.pathsep.join(map(str, [*_jars(), *jars]))
    subprocess.run(["javac", "-cp", path, "-d", str(folder), str(PROGRAMS / f"{program}.java")], check=True)
    return os.pathsep.join([str(folder), *map(str, _jars())])
