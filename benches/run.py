"""Measurements of Ripieno's performance targets, each figure compared with its peer and its limit.

benches/run.py [aggregate|als|csv|faults|host|cluster|dashboard|encryption|jvm|mds|memory|replicas|kmeans|
                linear|logistic|networkx|objects|own-rows|pagerank|regroup|seeding|sgd|shuffle|spark|unauthenticated|torch|
                vertices|wordcount|all] [--case NAME]… [--quick] [--json FILE]
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from blas import free_blas

# Call this before NumPy is imported.
free_blas()

import aggregate  # noqa: E402
import als  # noqa: E402
import click  # noqa: E402
import cluster  # noqa: E402
import command  # noqa: E402
import csv_splits  # noqa: E402
import dashboard  # noqa: E402
import encryption  # noqa: E402
import faults  # noqa: E402
import host  # noqa: E402
import jvm  # noqa: E402
import kmeans  # noqa: E402
import linear  # noqa: E402
import logistic  # noqa: E402
import mds  # noqa: E402
import memory  # noqa: E402
import networkx_functions  # noqa: E402
import objects  # noqa: E402
import own_rows  # noqa: E402
import pagerank_host  # noqa: E402
import regroup  # noqa: E402
import replicas  # noqa: E402
import seeding  # noqa: E402
import sgd  # noqa: E402
import shuffle  # noqa: E402
import spark  # noqa: E402
import torch_steps  # noqa: E402
import unauthenticated  # noqa: E402
import vertices  # noqa: E402
import wordcount  # noqa: E402
from effort import Effort, Measured  # noqa: E402
from ripieno.bench import figures, table  # noqa: E402
from ripieno.bench.figures import Measurements  # noqa: E402
from ripieno.bench.toolchain import Skipped  # noqa: E402
from ripieno.errors import RipienoError  # noqa: E402

NAMES = (
    "aggregate",
    "als",
    "csv",
    "faults",
    "host",
    "cluster",
    "dashboard",
    "encryption",
    "jvm",
    "memory",
    "replicas",
    "kmeans",
    "linear",
    "logistic",
    "mds",
    "networkx",
    "objects",
    "own-rows",
    "pagerank",
    "regroup",
    "seeding",
    "sgd",
    "shuffle",
    "spark",
    "unauthenticated",
    "torch",
    "vertices",
    "wordcount",
)


@click.command()
@click.argument("name", type=click.Choice([*NAMES, "all"]), default="all")
@click.option("--case", "only", multiple=True, help="Case of a benchmark with several cases; --list prints them.")
@click.option("--list", "listing", is_flag=True, help="Print the cases of NAME and exit.")
@command.quick_option
@click.option("--repetitions", type=click.IntRange(min=1), help="Alternating runs of each case. Default: five or more.")
@click.option(
    "--data",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="als: a tar of lines user item rating, or a table; kmeans: float32 .npy rows; "
    "logistic, sgd: libsvm text, or a tar of reviews in folders pos and neg; "
    "mds: dissimilarities, .npy of int16, or FASTA.",
)
@click.option(
    "--draw",
    type=click.Path(file_okay=False, path_type=Path),
    help="jvm, kmeans, linear, logistic: a folder for charts.",
)
@click.option("--gap", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="pagerank: GAP's program pr.")
@command.json_option
def main(
    name: str,
    only: Sequence[str],
    listing: bool,
    quick: bool,
    repetitions: int | None,
    data: Path | None,
    draw: Path | None,
    gap: Path | None,
    target: Path | None,
) -> None:
    """Measure NAME. Peers that are not installed are left out, with a hint on how to install them.

    If a measurement fails, the others are still measured and written, and the exit status is 1.
    """
    names = NAMES if name == "all" else (name,)
    if listing:
        for each in names:
            click.echo(f"{each}: {' '.join(_cases(each, data, draw, gap)[0])}")
        return
    chosen = {each: _chosen(each, only, data, draw, gap, quick=quick) for each in names}
    console = table.console()
    machine = figures.machine()
    console.print("  ".join(f"{key} {value}" for key, value in machine.items()))
    if quick:
        console.print("quick: unoptimized or too short, so these figures are not measurements", style="yellow")
    reports, effort, has_failed = [], Effort(quick, repetitions), False
    for each, measured in chosen.items():
        report = Measurements(each)
        for one in measured:
            try:
                one(report, effort)
            except Skipped as skipped:
                report.remark(str(skipped))
            except (RuntimeError, RipienoError, subprocess.SubprocessError) as error:
                has_failed = True
                report.remark(f"a measurement failed: {error}")
        table.show(console, report)
        reports.append(report)
    command.write(target, {"reports": [report.as_json() for report in reports]}, quick=quick)
    if has_failed:
        sys.exit(1)


def _cases(
    name: str, data: Path | None, draw: Path | None, gap: Path | None
) -> tuple[dict[str, Measured], Sequence[str]]:
    """Return the measurements by name, and the names that together form the whole."""
    undivided: dict[str, Measured] = {
        "aggregate": aggregate.measured,
        "csv": csv_splits.measured,
        "als": lambda report, effort: als.measured(report, effort, data=data),
        "linear": lambda report, effort: linear.measured(report, effort, draw=draw),
        "logistic": lambda report, effort: logistic.measured(report, effort, data=data, draw=draw),
        "networkx": networkx_functions.measured,
        "objects": objects.measured,
        "own-rows": own_rows.measured,
        "pagerank": lambda report, effort: pagerank_host.measured(report, effort, gap=gap),
        "regroup": regroup.measured,
        "seeding": seeding.measured,
        "sgd": lambda report, effort: sgd.measured(report, effort, data=data),
        "spark": spark.measured,
        "unauthenticated": unauthenticated.measured,
        "vertices": vertices.measured,
        "wordcount": wordcount.measured,
    }
    if name in undivided:
        return {name: undivided[name]}, [name]
    if name == "mds":
        return mds.cases(data), mds.ALL_CASES
    if name == "kmeans":
        found = kmeans.cases(data, draw)
        return found, list(found)
    if name == "jvm":
        found = jvm.cases(draw)
        return found, list(found)
    module = {
        "faults": faults,
        "host": host,
        "cluster": cluster,
        "dashboard": dashboard,
        "encryption": encryption,
        "memory": memory,
        "replicas": replicas,
        "shuffle": shuffle,
        "torch": torch_steps,
    }[name]
    found = module.cases()
    return found, getattr(module, "ALL_CASES", list(found))


def _chosen(
    name: str, only: Sequence[str], data: Path | None, draw: Path | None, gap: Path | None, *, quick: bool
) -> list[Measured]:
    if quick and name == "cluster" and not only:
        return [lambda report, effort: cluster.quick(report)]
    found, default_names = _cases(name, data, draw, gap)
    for case in only:
        if case not in found:
            raise click.UsageError(f"--case {case}: expected one of {', '.join(found)}")
    return [found[case] for case in only or default_names]


if __name__ == "__main__":
    main()
