"""Twister's problem on this machine: 7.42 million vectors of 512 bytes into a million clusters.

benches/million.py FOLDER [--count N] [--clusters K] [--iterations I] [--workers W] [--json FILE] [--draw FILE]

benches/descriptors.py makes the vectors, and `ripieno kmeans --assign near` clusters them with a checkpoint, all in
FOLDER. After an interruption of any kind, the same command resumes. At the end it prints the time of each iteration by
stage, the loss of near assignment, measured on 1,024 rows, the memory and the processor time. It also simulates the
iteration on the cluster of the paper. FOLDER needs space for the vectors and for three times the centroids.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import command
import descriptors
import numpy as np
from ripieno import kernels
from ripieno.bench import table
from ripieno.report import charts
from ripieno.simulation import Cluster
from ripieno.simulation.kmeans import SimulatedIteration, kmeans_iteration
from ripieno.units import bytes_text, duration_text

CLUSTERS, ITERATIONS, WORKERS = 1_000_000, 2, 2
#: The fit has converged if the inertia changes by less than this part of it.
CONVERGED = 1e-3
QUICK_COUNT, QUICK_CLUSTERS = 6_000, 600
#: The cluster of the paper: hosts, cores of each, and their network links.
HOSTS, CORES, RATE = 125, 8, 1e9
#: The paper's statement on its iteration.
PAPER = "over 60 min of map, 169 s of communication (Qiu, 125 hosts)"
SAMPLE_S = 0.5
KIB = 1024


@dataclass
class ResourceUsage:
    """Usage of the processes: maximum private memory, processor time, and the load of the machine."""

    peak_bytes: int = 0
    with_files_bytes: int = 0
    processor_s: float = 0.0
    wall_s: float = 0.0
    loads: tuple[float, ...] = ()


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--count", type=click.IntRange(min=1), help=f"Vectors; by default {descriptors.COUNT}.")
@click.option("--clusters", type=click.IntRange(min=1), help=f"By default {CLUSTERS}.")
@click.option("--iterations", type=click.IntRange(min=1), default=ITERATIONS, show_default=True)
@click.option("--workers", type=click.IntRange(min=1), default=WORKERS, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--draw", "chart", type=click.Path(dir_okay=False, path_type=Path), help="SVG of the convergence.")
@command.json_option
@command.quick_option
def main(
    folder: Path,
    count: int | None,
    clusters: int | None,
    iterations: int,
    workers: int,
    seed: int,
    chart: Path | None,
    target: Path | None,
    quick: bool,
) -> None:
    """Cluster the vectors in FOLDER, or resume an interrupted run."""
    count = count or (QUICK_COUNT if quick else descriptors.COUNT)
    clusters = clusters or (QUICK_CLUSTERS if quick else CLUSTERS)
    folder.mkdir(parents=True, exist_ok=True)
    vectors = folder / f"vectors-{count}-{seed}.u8.npy"
    if not vectors.exists():
        descriptors.main([str(vectors), "--count", str(count), "--seed", str(seed)], standalone_mode=False)
    words = [str(vectors), "--clusters", str(clusters), "--assign", "near", "--init", "random", "--tol", "0"]
    words += ["--max-iter", str(iterations), "--workers", str(workers), "--seed", str(seed)]
    words += ["--checkpoint", str(folder / "checkpoint"), "--out", str(folder / "result"), "--overwrite"]
    used = _run(["kmeans", *words, "--centroids", "divided"])
    report = json.loads((folder / "result" / "model.json").read_text())
    simulated = _simulated(report, count, clusters)
    _show(report, used, simulated)
    if chart is not None:
        chart.write_text(charts.standalone(_convergence(report["iterations"])), encoding="utf-8")
    command.write(target, {"fit": report, "used": asdict(used), "simulated": simulated.as_json()}, quick=quick)


def _run(words: list[str]) -> ResourceUsage:
    """Run `ripieno` with these arguments, and monitor it and its workers."""
    begin, used = time.monotonic(), ResourceUsage()
    process = subprocess.Popen([sys.executable, "-m", "ripieno", *words])
    try:
        while process.poll() is None:
            own, with_files = (sum(each) for each in zip(*map(_memory, _family(process.pid)), strict=True))
            used.peak_bytes, used.with_files_bytes = max(used.peak_bytes, own), max(used.with_files_bytes, with_files)
            used.loads += (os.getloadavg()[0],)
            time.sleep(SAMPLE_S)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
    if process.returncode:
        raise click.ClickException(f"ripieno kmeans ended with code {process.returncode}; repeat the command to resume")
    times = os.times()
    used.processor_s, used.wall_s = times.children_user + times.children_system, time.monotonic() - begin
    return used


def _family(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    found = [pid]
    for each in found:
        try:
            threads = [path.read_text().split() for path in Path(f"/proc/{each}/task").glob("*/children")]
        except OSError:
            continue
        found += [int(child) for children in threads for child in children]
    return found


def _memory(pid: int) -> tuple[int, int]:
    """Return the anonymous memory of a process, and its proportional share of all mapped memory, in bytes."""
    try:
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    except OSError:
        return 0, 0
    own, with_files = (int(lines[name].split()[0]) * KIB for name in ("Anonymous", "Pss"))
    return own, with_files


def _simulated(text: dict[str, Any], count: int, clusters: int) -> SimulatedIteration:
    """Return the last iteration on the cluster of the paper, with cores as fast as one core here in that iteration."""
    last = text["iterations"][-1]
    operations = 2.0 * count * text["column_count"] * clusters * _compared(last["compared"], clusters)
    stages = last["stages"]
    seconds = stages["probe_s"] + stages["compare_s"]
    rate = operations / seconds / text["parameters"]["workers"] / _threads(text)
    return kmeans_iteration(
        Cluster(nodes=HOSTS, rate_bits_per_s=RATE),
        points=count,
        dim=text["column_count"],
        clusters=clusters,
        cores=CORES,
        operations_per_s=rate,
        compared=_compared(last["compared"], clusters),
        divided=True,
    )


def _threads(text: dict[str, Any]) -> int:
    return text["parameters"]["threads"] or max(1, len(os.sched_getaffinity(0)) // text["parameters"]["workers"])


def _compared(compared: float, clusters: int) -> float:
    """Return the fraction of all pairs that a near pass compares, including the means of its groups."""
    return min(1.0, compared + kernels.NearIndex.group_count(clusters) / clusters)


def _show(text: dict[str, Any], used: ResourceUsage, simulated: SimulatedIteration) -> None:
    console = table.console()
    pairs = text["row_count"] * float(len(text["cluster_sizes"]))
    before = None
    for number, each in enumerate(text["iterations"], text["iteration_count"] - len(text["iterations"]) + 1):
        products = pairs * text["column_count"] * _compared(each["compared"], len(text["cluster_sizes"]))
        compared_s = each["stages"]["probe_s"] + each["stages"]["compare_s"]
        stages = ", ".join(f"{name.removesuffix('_s')} {duration_text(s)}" for name, s in each["stages"].items())
        console.print(
            f"iteration {number}: {duration_text(_seconds(each))}; {stages}; inertia {each['inertia']:.8g}, recall "
            f"{each['recall']:.2%}, gap {each['gap']:.3%}; {products / compared_s / 1e9:.0f} G "
            f"multiply-adds/s{_change(before, each)}"
        )
        before = each
    sizes = np.array(text["cluster_sizes"])
    console.print(
        f"inertia {text['inertia']:.8g}, on 1,024 rows {text['inertia_gap']:.3%} more than exact; "
        f"{np.count_nonzero(sizes == 0):,} clusters are empty, the largest has {sizes.max():,} rows"
    )
    console.print(
        f"{bytes_text(used.peak_bytes)} of memory at most, {bytes_text(used.with_files_bytes)} with the files that are "
        f"mapped; {duration_text(used.wall_s)}, {duration_text(used.processor_s)} of processors, load "
        f"{np.median(used.loads) if used.loads else 0:.1f}"
    )
    console.print(f"{simulated}\nthe paper: {PAPER}")


def _convergence(iterations: list[dict[str, Any]]) -> str:
    """Return a chart of the inertia, its relative change, and the seconds of each iteration."""
    inertia = [each["inertia"] for each in iterations]
    change = [np.nan, *(_relative_change(*pair) for pair in itertools.pairwise(inertia))]
    seconds = [_seconds(each) for each in iterations]
    series = {"inertia": inertia, "relative change of the inertia": change, "seconds": seconds}
    return charts.line_chart("convergence", series, log=True)


def _seconds(iteration: dict[str, Any]) -> float:
    """Return the time of the slowest worker."""
    return max(map(sum, zip(iteration["compute_s"], iteration["communication_s"], strict=True)))


def _relative_change(before: float, after: float) -> float:
    return abs(before - after) / before


def _change(before: dict[str, Any] | None, each: dict[str, Any]) -> str:
    """Return the text of the relative change of the inertia since the iteration before."""
    if before is None:
        return ""
    change = _relative_change(before["inertia"], each["inertia"])
    return f"; inertia changed by {change:.3%}{' (converged)' if change < CONVERGED else ''}"


if __name__ == "__main__":
    main()
