"""Update the page of Spark measurements: the table between its markers, the chart and the data as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import command
from ripieno.bench.figures import Figure, FigureCount, Measurements, Samples, machine
from ripieno.bench.pages.spark import spark_chart
from ripieno.units import duration_text

BEGIN, END = "<!-- figures: filled by benches/spark.py --page -->", "<!-- end of figures -->"


def fill(page: Path, report: Measurements) -> None:
    """Write the table into `page`, PAGE.svg and PAGE.json, and keep existing figures of other cases.

    Raises
    ------
    ValueError
        If the page lacks the two marks.
    """
    text = page.read_text()
    head, found, rest = text.partition(BEGIN)
    _, ended, tail = rest.partition(END)
    if not (found and ended):
        raise ValueError(f"{page}: expected the lines {BEGIN!r} and {END!r}")
    report = _with_earlier(page.with_suffix(".json"), report)
    page.with_suffix(".svg").write_text(spark_chart(report.figures))
    command.write(page.with_suffix(".json"), {"reports": [report.as_json()]}, quick=False)
    page.write_text(f"{head}{BEGIN}\n\n{_filled(page, report)}\n{END}{tail}")


def _with_earlier(path: Path, report: Measurements) -> Measurements:
    """Return the report, preceded by the other cases of the report at `path`."""
    merged = Measurements(report.name)
    if path.exists():
        (earlier,) = json.loads(path.read_text())["reports"]
        cases = {each.case for each in (*report.figures, *report.counts)}
        merged.figures += [_figure(each) for each in earlier["figures"] if each["case"] not in cases]
        counts = [{name: value for name, value in each.items() if name != "reached"} for each in earlier["counts"]]
        merged.counts += [FigureCount(**each) for each in counts if each["case"] not in cases]
        merged.remarks += [each for each in earlier["remarks"] if each.partition(":")[0] not in cases]
    for remark in report.remarks:
        merged.remark(remark)
    merged.figures += report.figures
    merged.counts += report.counts
    return merged


def _figure(values: dict[str, Any]) -> Figure:
    names = {each.name for each in fields(Figure)}
    own = {name: value for name, value in values.items() if name in names}
    peers = {name: Samples(tuple(each["seconds"])) for name, each in values["peers"].items()}
    return Figure(**own | {"ours": Samples(tuple(values["ours"]["seconds"])), "peers": peers})


def _filled(page: Path, report: Measurements) -> str:
    about = ", ".join(f"{name} {value}" for name, value in machine().items())
    lines = [_table(report.figures), _counts(report.counts), f"![Seconds of each]({page.stem}.svg)\n"]
    return "\n".join([*lines, *(f"- {remark}" for remark in (*report.remarks, about))]) + "\n"


def _table(figures: Sequence[Figure]) -> str:
    lines = ["| | | Ripieno | times the limit | Spark | times as fast | target |", "|---|---|---|---|---|---|---|"]
    for figure in figures:
        theirs = "; ".join(f"{name}: {_text(samples)}" for name, samples in figure.peers.items())
        times = f"{1 / figure.to_peer:.3g}" if figure.to_peer else ""
        limit = f"{figure.to_limit:.3g}" if figure.to_limit else ""
        target = f"≥ {1 / figure.targets['peer']:.3g}" if "peer" in figure.targets else ""
        lines.append(
            f"| {figure.case} | {figure.row} | {_text(figure.ours)} | {limit} | {theirs} | {times} | {target} |"
        )
    return "\n".join(lines) + "\n"


def _counts(counts: Sequence[FigureCount]) -> str:
    lines = [f"- {each.case}, {each.row} {each.value:.3g} {each.unit} (target ≤ {each.target:.3g})" for each in counts]
    return "\n".join(lines) + "\n"


def _text(samples: Samples) -> str:
    ends = f" ({duration_text(samples.best_s)} – {duration_text(samples.worst_s)})" if len(samples.seconds) > 1 else ""
    return duration_text(samples.median_s) + ends
