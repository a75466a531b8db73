"""Benchmarks of PageRank on this machine and on emulated hosts, and the chart of docs/estimator-measurements.md.

Commands::

    benches/pagerank.py host [--scale 20] [--graph FILES]… [--gap PR] [--quick] [--json FILE]
    benches/pagerank.py cluster [--hosts 1,2,4,8,16] [--rate 1gbit] [--scale 20] [--graph FILES]… [--quick]
                                 [--json FILE]
    benches/pagerank.py charts [--cluster FILE] [--out FOLDER]
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from blas import free_blas

# Call this before NumPy is imported.
free_blas()

import click  # noqa: E402
import command  # noqa: E402
import graphs  # noqa: E402
import numpy as np  # noqa: E402
import pagerank_host  # noqa: E402
from effort import Effort  # noqa: E402
from graphs import BenchGraph  # noqa: E402
from pagerank_host import QUICK_SCALE, SCALE  # noqa: E402
from rich.table import Table  # noqa: E402
from ripieno.bench import table  # noqa: E402
from ripieno.bench.figures import Measurements  # noqa: E402
from ripieno.bench.pages.pagerank import GraphScale, scaling_chart  # noqa: E402
from ripieno.lab import Lab  # noqa: E402
from ripieno.lab.cluster_spec import bits_per_s  # noqa: E402
from ripieno.units import bytes_text, duration_text  # noqa: E402

DOCS = Path(__file__).resolve().parent.parent / "docs" / "pagerank"
HOSTS, QUICK_HOSTS = "1,2,4,8,16", "1,2"
ITERATION_COUNT, QUICK_ITERATION_COUNT = 30, 3


@click.group()
def main() -> None:
    """Measure PageRank, and draw the chart of docs/estimator-measurements.md."""


def _of_a_graph(measure: Callable[..., None]) -> Callable[..., None]:
    """Add the options for the graph, the effort and the output."""
    for option in (
        command.json_option,
        command.quick_option,
        click.option("--graph", "files", multiple=True, help="Files of another graph, as for ripieno pagerank."),
        click.option("--scale", type=click.IntRange(1, 31), help=f"Scale of the RMAT graph. Default: {SCALE}."),
    ):
        measure = option(measure)
    return measure


@main.command()
@click.option(
    "--gap", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="GAP's program pr, to compare with."
)
@command.repetitions_option
@_of_a_graph
def host(
    gap: Path | None, repetitions: int | None, scale: int | None, files: Sequence[str], quick: bool, target: Path | None
) -> None:
    """Time an iteration by workers and threads, compared with SciPy and GAP."""
    report = Measurements("pagerank")
    pagerank_host.measured(report, Effort(quick, repetitions), graph=_graph(scale, files, quick=quick), gap=gap)
    command.show(report, target, quick=quick)


@main.command()
@click.option("--hosts", "host_counts", default=HOSTS, show_default=True, help="Numbers of hosts, ascending.")
@click.option("--rate", default="1gbit", show_default=True, help="Link rate of each host.")
@click.option("--iterations", type=click.IntRange(min=2), default=ITERATION_COUNT, show_default=True)
@click.option("--timeout", "timeout_s", type=float, default=900.0, show_default=True, help="Seconds of each run.")
@_of_a_graph
def cluster(
    host_counts: str, rate: str, iterations: int, timeout_s: float, scale: int | None, files: Sequence[str],
    quick: bool, target: Path | None,
) -> None:  # fmt: skip
    """Run `ripieno pagerank` on increasing numbers of emulated hosts, with one single-threaded rank on each."""
    command.need_lab()
    if quick:
        host_counts, iterations = QUICK_HOSTS, QUICK_ITERATION_COUNT
    counts = _counts(host_counts)
    graph = _graph(scale, files, quick=quick)
    with Lab(hosts=max(counts), rate=rate) as lab, tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "graph.npy", np.column_stack([graph.sources, graph.targets]))
        scales = [_scale(lab, count, rate, iterations, timeout_s, Path(folder)) for count in counts]
    found = {
        "graph": graph.name,
        "vertices": graph.vertex_count,
        "edges": graph.edge_count,
        "rate": rate,
        "iterations": iterations,
        "scales": scales,
    }
    _show(found)
    command.write(target, found, quick=quick)


@main.command()
@click.option(
    "--cluster",
    "cluster_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=DOCS / "cluster.json",
    help="What `cluster` wrote.",
)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=DOCS)
def charts(cluster_file: Path, out: Path) -> None:
    """Draw the scaling of an iteration over hosts."""
    found = json.loads(cluster_file.read_text())
    scales = [
        GraphScale(each["hosts"], each["iteration_s"], each["computing_s"], each["link_s"]) for each in found["scales"]
    ]
    out.mkdir(parents=True, exist_ok=True)
    (out / "scaling.svg").write_text(scaling_chart(_title(found), scales), encoding="utf-8")
    click.echo(out / "scaling.svg")


def _graph(scale: int | None, files: Sequence[str], *, quick: bool) -> BenchGraph:
    if files and scale is not None:
        raise click.UsageError("--scale and --graph: expected one of them")
    return graphs.of_files(files) if files else graphs.rmat(scale or (QUICK_SCALE if quick else SCALE))


def _counts(text: str) -> list[int]:
    counts = [int(word) for word in text.split(",") if word.isdecimal()]
    if len(counts) != text.count(",") + 1 or counts != sorted(set(counts)) or counts[0] < 1:
        raise click.BadParameter(f"{text}: expected ascending numbers of hosts, such as {HOSTS}", param_hint="--hosts")
    return counts


def _scale(lab: Lab, count: int, rate: str, iterations: int, timeout_s: float, folder: Path) -> dict[str, Any]:
    """Measure an iteration on `count` hosts, without the other traffic of a run."""
    first = _run(lab, count, 1, timeout_s, folder)
    all_iterations = _run(lab, count, iterations, timeout_s, folder)
    more = zip(all_iterations["ranks"], first["ranks"], strict=True)
    sent_bytes = max(rank["bytes_sent"] - before["bytes_sent"] for rank, before in more) / (iterations - 1)
    times = all_iterations["iterations"]
    seconds = [max(map(sum, zip(each["compute_s"], each["communication_s"], strict=True))) for each in times]
    computing_s = statistics.median(max(each["compute_s"]) for each in times)
    iteration_s = statistics.median(seconds)
    return {
        "hosts": count,
        "degrees": all_iterations["degrees"],
        "iteration_s": iteration_s,
        "computing_s": computing_s,
        "communicating_s": iteration_s - computing_s,
        "busiest_sent_bytes": sent_bytes,
        "link_s": 8 * sent_bytes / bits_per_s("rate", rate),
        "max_edges": max(all_iterations["edge_counts"]),
        "iterations_s": seconds,
        "load_s": all_iterations["load_s"],
        "configure_s": all_iterations["configure_s"],
    }


def _run(lab: Lab, count: int, iterations: int, timeout_s: float, folder: Path) -> dict[str, Any]:
    """Return the report of a run with this number of iterations."""
    report = folder / f"{count}-{iterations}.json"
    words = f"--threads 1 --tol 0 --max-iter {iterations} --top 0 --quiet".split()
    files = [str(folder / "graph.npy"), "--out", str(folder / "ranks.npz"), "--report", str(report), "--overwrite"]
    # The number of iterations is given, so the warning about the tolerance is suppressed.
    code = lab.run(
        [sys.executable, "-W", "ignore", "-m", "ripieno.cli", "pagerank", *words, *files],
        first=count,
        timeout_s=timeout_s,
        prefix=False,
    )
    if code != 0:
        raise click.ClickException(f"{count} hosts: the ranks ended with code {code}")
    return json.loads(report.read_text())


def _title(found: dict[str, Any]) -> str:
    return f"{found['graph']}, {found['vertices']:,} vertices, {found['edges']:,} edges, hosts x {found['rate']}"


def _show(found: dict[str, Any]) -> None:
    rows = Table(title=_title(found), title_justify="left")
    for heading in (
        "hosts", "degrees", "iteration", "computing", "communicating", "busiest sends", "over rate", "times as fast",
    ):  # fmt: skip
        rows.add_column(heading, justify="right")
    first_s = found["scales"][0]["iteration_s"]
    for each in found["scales"]:
        rows.add_row(
            str(each["hosts"]),
            each["degrees"] or "",
            *(duration_text(each[name]) for name in ("iteration_s", "computing_s", "communicating_s")),
            bytes_text(each["busiest_sent_bytes"]),
            duration_text(each["link_s"]) if each["link_s"] else "",
            f"{first_s / each['iteration_s']:.2f}",
        )
    table.console().print(rows)


if __name__ == "__main__":
    main()
