"""Measures what Ripieno promises, each figure beside its peer and its limit.

benches/run.py [allreduce|kmeans|chain|all] [--quick] [--json FILE]
"""

from __future__ import annotations

import json
from pathlib import Path

import allreduce
import chain
import click
import measure
from measure import Figure, Report, Samples
from rich.console import Console
from rich.table import Table

NAMES = ("allreduce", "kmeans", "chain")
WIDTH = 180


@click.command()
@click.argument("name", type=click.Choice([*NAMES, "all"]), default="all")
@click.option("--quick", is_flag=True, help="Small and short: shows that everything runs, measures nothing.")
@click.option("--data", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="kmeans: float32 .npy rows.")
@click.option("--json", "target", type=click.Path(path_type=Path), help="Write the figures to this file, too.")
def main(name: str, quick: bool, data: Path | None, target: Path | None) -> None:
    """Measure NAME; peers that are not installed are left out, and it is said how to get them."""
    console = Console(width=max(WIDTH, Console().width))
    machine = measure.machine()
    console.print("  ".join(f"{key} {value}" for key, value in machine.items()), highlight=False)
    if quick:
        console.print("quick: unoptimized or too short, so these figures say nothing about speed", style="yellow")
    reports = [_measured(each, quick, data) for each in (NAMES if name == "all" else (name,))]
    for report in reports:
        _show(console, report)
    if target is not None:
        found = {"machine": machine, "quick": quick, "reports": [report.as_json() for report in reports]}
        target.write_text(json.dumps(found, indent=2) + "\n")


def _measured(name: str, quick: bool, data: Path | None) -> Report:
    if name == "kmeans":
        measure.free_blas()
        import kmeans

        return kmeans.measured(quick=quick, data=data)
    return {"allreduce": allreduce, "chain": chain}[name].measured(quick=quick)


def _show(console: Console, report: Report) -> None:
    for case in dict.fromkeys(figure.case for figure in report.figures):
        figures = [figure for figure in report.figures if figure.case == case]
        console.print(_table(f"{report.name}, {case}", figures))
        console.print(f"limit: {figures[0].limit}", highlight=False)
    for remark in report.remarks:
        console.print(f"note: {remark}", highlight=False)


def _table(title: str, figures: list[Figure]) -> Table:
    table = Table(title=f"{title}: median (least – greatest)", title_justify="left")
    table.add_column("")
    peers = list(figures[0].peers)
    for heading in ("Ripieno", figures[0].rate_unit, *peers, "of peer", "of best", "limit", "of limit", "target", ""):
        table.add_column(heading, justify="right")
    for figure in figures:
        table.add_row(*_cells(figure, peers))
    return table


def _cells(figure: Figure, peers: list[str]) -> list[str]:
    verdict = {True: "[green]reached[/]", False: "[red]missed[/]", None: ""}[figure.reached]
    return [
        figure.row,
        _samples(figure.ours),
        f"{figure.work / figure.ours.median_s:.3g}",
        *(_samples(figure.peers[peer]) for peer in peers),
        _ratio(figure.to_peer),
        _ratio(figure.best_to_peer),
        "" if figure.limit_s is None else measure.duration_text(figure.limit_s),
        _ratio(figure.to_limit),
        ", ".join(f"≤ {target:.3g} {name}" for name, target in figure.targets.items()),
        verdict,
    ]


def _samples(samples: Samples) -> str:
    unit, factor = measure.unit_of(samples.median_s)
    median, best, worst = (f"{s / factor:.3g}" for s in (samples.median_s, samples.best_s, samples.worst_s))
    return f"{median} {unit} ({best} – {worst})"


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.3f}"


if __name__ == "__main__":
    main()
