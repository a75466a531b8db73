"""Provide tables of figures for terminals."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from ripieno.bench.figures import Figure, Measurements, Samples
from ripieno.units import duration_text, unit_of

WIDTH = 180
VERDICTS = {True: "[green]reached[/]", False: "[red]missed[/]", None: ""}


def console() -> Console:
    """Return the console for tables, which is as wide as they need."""
    return Console(width=max(WIDTH, Console().width), highlight=False)


def show(target: Console, report: Measurements) -> None:
    """Print a table per case, and the remarks."""
    for case in dict.fromkeys(figure.case for figure in report.figures):
        figures = [figure for figure in report.figures if figure.case == case]
        target.print(f"[italic]{report.name}, {case}: median (least – greatest)[/]")
        target.print(_table(figures))
        target.print(f"limit: {figures[0].limit}")
    if report.counts:
        target.print(_counts(report))
    for remark in report.remarks:
        target.print(f"note: {remark}", markup=False)


def _table(figures: list[Figure]) -> Table:
    table = Table()
    table.add_column("")
    peers = list(dict.fromkeys(peer for figure in figures for peer in figure.peers))
    compared = ("of peer", "of best") if peers else ()
    judged = ("target", "") if any(figure.targets for figure in figures) else ()
    for heading in ("Ripieno", figures[0].rate_unit, *peers, *compared, "limit", "of limit", *judged):
        table.add_column(heading, justify="right")
    for figure in figures:
        table.add_row(*_cells(figure, peers, judged=bool(judged)))
    return table


def _counts(report: Measurements) -> Table:
    table = Table(title=report.name, title_justify="left")
    for heading in ("", "", "counted", "target", ""):
        table.add_column(heading)
    for count in report.counts:
        verdict = VERDICTS[count.reached]
        table.add_row(count.case, count.row, f"{count.value:.4g} {count.unit}", f"≤ {count.target:.4g}", verdict)
    return table


def _cells(figure: Figure, peers: list[str], *, judged: bool) -> list[str]:
    targets = ", ".join(_target(name, target) for name, target in figure.targets.items())
    return [
        figure.row,
        _samples(figure.ours),
        f"{figure.work / figure.ours.median_s:.3g}" if figure.work else "",
        *(_samples(figure.peers[peer]) if peer in figure.peers else "" for peer in peers),
        *((_ratio(figure.to_peer), _ratio(figure.best_to_peer)) if peers else ()),
        "" if figure.limit_s is None else duration_text(figure.limit_s),
        _ratio(figure.to_limit),
        *((targets, VERDICTS[figure.reached]) if judged else ()),
    ]


def _target(name: str, target: float) -> str:
    return f"≤ {duration_text(target)}" if name == "seconds" else f"≤ {target:.3g} {name}"


def _samples(samples: Samples) -> str:
    unit, factor = unit_of(samples.median_s)
    median, best, worst = (f"{s / factor:.3g}" for s in (samples.median_s, samples.best_s, samples.worst_s))
    return f"{median} {unit} ({best} – {worst})"


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.3f}"
