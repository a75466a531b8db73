"""Provide the chart of measurements inside Spark: seconds, and ratios of Spark's own methods to Ripieno's."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FuncFormatter

from ripieno.bench.figures import Figure
from ripieno.report import charts
from ripieno.units import duration_text

PEER_COLORS = (charts.SECOND, charts.THIRD)
BAR_INCHES, HEAD_INCHES = 0.19, 0.6


def spark_chart(figures: Sequence[Figure]) -> str:
    """Return the seconds of each figure on a logarithmic scale: a group of bars, Ripieno first, with ratios to it."""
    bar_count = sum(1.8 + len(figure.peers) for figure in figures)
    with matplotlib.rc_context(charts.STYLE | {"axes.grid.axis": "x"}):
        drawing = Drawing((charts.WIDTH_INCHES, HEAD_INCHES + BAR_INCHES * bar_count), layout="constrained")
        axes = drawing.subplots()
        names, middles = [], []
        top = 0.0
        for figure in figures:
            count = 1 + len(figure.peers)
            _draw(axes, figure, top)
            names.append(f"{figure.case}\n{figure.row}")
            middles.append(top + (count - 1) / 2)
            top += count + 0.8
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: duration_text(seconds)))
        axes.set_yticks(middles, names)
        axes.invert_yaxis()
        axes.margins(x=0.25, y=0.01)
        axes.minorticks_off()
        text = "; ".join(f"{each.case}, {each.row}: {duration_text(each.ours.median_s)}" for each in figures)
        return charts.standalone(charts.svg_of(drawing, "spark", f"Medians inside one Spark session. {text}."))


def _draw(axes: Axes, figure: Figure, top: float) -> None:
    bars = [("Ripieno", charts.FIRST, figure.ours)]
    for number, (name, samples) in enumerate(figure.peers.items()):
        bars.append((name, PEER_COLORS[number % len(PEER_COLORS)], samples))
    for place, (name, color, samples) in enumerate(bars):
        axes.barh(top + place, samples.median_s, height=0.85, color=color)
        axes.hlines(top + place, samples.best_s, samples.worst_s, color=charts.INK, linewidth=1)
        times = "" if place == 0 else f" = {samples.median_s / figure.ours.median_s:.3g} ×"
        axes.annotate(
            f"{name} {duration_text(samples.median_s)}{times}", (samples.worst_s, top + place), (4, 0),
            textcoords="offset points", color=charts.INK, va="center", fontsize=8,
        )  # fmt: skip
