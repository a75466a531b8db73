"""Benchmark from the JVM: sums of 80 MB, and K-means from Spark, compared with Spark, MLlib, Flink and Python.

Source: Ekanayake et al., "Java thread and process performance for parallel machine learning on multicore HPC clusters",
figures 15 and 16. A fit of K-means includes all steps from a CSV file to the centroids, in a job or session that has
started before. With each fit Flink starts its local cluster, in a JVM that has run before. The total time and the
computation of a core are measured separately. The computation is the search of nearest centroids in Flink, this search
and the sums in Ripieno, and all tasks in Spark. Ripieno runs with and without bounds, to separate the effects of the
algorithm and of the runtime.
"""

from __future__ import annotations

import os
import secrets
import shutil
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import ripieno as rp
from effort import Effort, Measured
from numpy.typing import NDArray
from ripieno import kernels
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
ITERATIONS, QUICK_ITERATIONS = 10, 3
#: Upper limits of the total and the computation relative to a peer's.
PEER_TARGET = 1 / 5
#: Largest relative difference of the inertias of fits from different random rows, and from equal centroids.
SIMILAR, EQUAL = 0.15, 1e-6
OURS = BOUNDED, UNBOUNDED, ON_SPARK = "Ripieno", "Ripieno without bounds", "Ripieno on Spark"

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


@dataclass(frozen=True)
class _Fits:
    """The whole fits of a program.

    Parameters
    ----------
    total, computed
        Seconds of each fit, and mean seconds of a core that computes.
    inertia
        Inertia of the last fit.
    """

    total: tuple[float, ...]
    computed: tuple[float, ...]
    inertia: float


def _kmeans(report: Measurements, effort: Effort, draw: Path | None) -> None:
    count = QUICK_POINTS if effort.quick else POINTS
    iterations = QUICK_ITERATIONS if effort.quick else ITERATIONS
    turns = effort.runs(3)
    drawn: dict[str, dict[str, dict[int, Samples]]] = {"total": {}, "computed": {}}
    for k in QUICK_CENTROIDS if effort.quick else CENTROIDS:
        fits = _programs(report, count, k, iterations, turns)
        for measure, programs in drawn.items():
            for name, each in fits.items():
                programs.setdefault(name, {})[k] = Samples(getattr(each, measure))
            peers = {name: programs[name][k] for name in fits if name not in OURS}
            report.figures.extend(
                Figure(
                    case=f"{ours}: K-means {measure}, {count:,} × 2, {iterations} iterations, 2 cores",
                    row=f"{k:,} centroids",
                    ours=programs[ours][k],
                    peers=peers,
                    limit_s=None,
                    limit="",
                    work=iterations * count * k / 1e9,
                    rate_unit="G distances/s",
                    targets={"peer": PEER_TARGET},
                )
                for ours in OURS
            )
    if draw is not None:
        draw.mkdir(parents=True, exist_ok=True)
        for measure, name, quantity in (
            ("total", "kmeans", "a fit takes in all"),
            ("computed", "kmeans-computation", "a core computes"),
        ):
            chart = programs_chart(
                f"K-means, {count:,} × 2, {iterations} iterations", drawn[measure], quantity=quantity
            )
            (draw / f"{name}.svg").write_text(chart, encoding="utf-8")


def _programs(report: Measurements, count: int, k: int, iterations: int, turns: int) -> dict[str, _Fits]:
    """Return the fits of each program; a program with another result is left out with a remark."""
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        points, centroids = Path(folder) / "points.csv", Path(folder) / "centroids.csv"
        rows = random.random((count, 2)).round(6)
        start = rows[random.choice(count, k, replace=False)]
        np.savetxt(points, rows, fmt="%.6f", delimiter=",")
        np.savetxt(centroids, np.column_stack([np.arange(k), start]), fmt=["%d", "%.6f", "%.6f"], delimiter=",")
        fits = {
            name: _python(points, start, iterations, turns, bounds)
            for name, bounds in ((BOUNDED, "auto"), (UNBOUNDED, "none"))
        }
        words = ["kmeans", str(points), *map(str, (k, iterations, turns))]
        ours, mllib = np.split(np.array(_spark_turns("local[2]", "3g", words)), 2, axis=1)
        fits |= {ON_SPARK: _fits(ours), "MLlib": _fits(mllib)}
        try:
            fits["Flink"] = _flink(rows, points, centroids, iterations, turns)
        except Skipped as skipped:
            report.remark(str(skipped))
    expected = fits[UNBOUNDED].inertia
    for name in list(fits):
        # Programs on Spark start from random rows of their own.
        tolerance = SIMILAR if name in (ON_SPARK, "MLlib") else EQUAL
        if abs(fits[name].inertia - expected) > tolerance * expected:
            report.remark(f"{name} is left out at {k} centroids: inertia {fits[name].inertia:g}, not {expected:g}")
            del fits[name]
    return fits


def _fits(turns: NDArray[np.float64]) -> _Fits:
    """Return the fits of lines with total, computation and inertia."""
    return _Fits(tuple(turns[:, 0]), tuple(turns[:, 1]), float(turns[-1, 2]))


def _python(
    points: Path, start: NDArray[np.float64], iterations: int, turns: int, bounds: Literal["auto", "none"]
) -> _Fits:
    """Return the fits of two Python ranks; the first one is not counted."""
    total, computed = [], []
    with rp.launch(workers=2, threads=1) as job:
        for _ in range(1 + turns):
            model = rp.KMeans(
                len(start),
                init=start,
                max_iter=iterations,
                tol=0,
                n_init=1,
                engine=job,
                options=rp.KMeans.Options(bounds=bounds),
            )
            begin = time.perf_counter()
            model.fit(str(points))
            total.append(time.perf_counter() - begin)
            computed.append(sum(statistics.fmean(each.compute_s) for each in model.report_.iterations))
    return _Fits(tuple(total[1:]), tuple(computed[1:]), model.inertia_)


def _flink(rows: NDArray[np.float64], points: Path, centroids: Path, iterations: int, turns: int) -> _Fits:
    """Return the jobs of Flink's own example.

    Raises
    ------
    Skipped
        Flink cannot be fetched.
    """
    jars = sorted(_flink_jars().glob("*.jar"))
    with tempfile.TemporaryDirectory() as folder:
        path = _compiled("FlinkTurns", Path(folder), jars)
        opened = [f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in OPENED]
        found = Path(folder) / "found.csv"
        words = ["2", str(points), str(centroids), str(iterations), str(turns), str(found)]
        command = ["java", *opened, "-Xmx3g", "-cp", os.pathsep.join([path, *map(str, jars)]), "FlinkTurns", *words]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S)
        total, computed = np.array(_turns(done.stdout)).T
        last = np.loadtxt(found, delimiter=",", ndmin=2)
    return _Fits(tuple(total), tuple(computed), _inertia(rows, last))


def _inertia(rows: NDArray[np.float64], centroids: NDArray[np.float64]) -> float:
    labels, distances = np.empty(len(rows), np.int32), np.empty(len(rows))
    kernels.assign(rows, centroids, labels, distances, threads=2)
    return float(distances.sum())


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
    return _turns(done.stdout)


def _turns(printed: str) -> list[list[float]]:
    """Return the numbers of each line that begins with "turn"."""
    lines = [line.split()[1:] for line in printed.splitlines() if line.startswith("turn ")]
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
