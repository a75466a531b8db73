"""Provide a chart of logistic regression fits: distance of the objective from the optimum against seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FuncFormatter, LogLocator

from ripieno.report import charts
from ripieno.units import duration_text

COLORS = (charts.FIRST, charts.SECOND, charts.THIRD, charts.FOURTH, charts.FIFTH, charts.MUTED)
LINES = ("-", "--")


def descent_chart(name: str, descents: Mapping[str, Sequence[tuple[float, float]]], near: float) -> str:
    """Return a chart of fits with decreasing tolerances: seconds, and relative distance from the optimum.

    Parameters
    ----------
    name
        Description of the data.
    descents
        For each implementation, the seconds and the final distance of each fit.
    near
        The distance that counts as converged.
    """
    with matplotlib.rc_context(charts.STYLE | {"axes.grid.axis": "both"}):
        drawing = Drawing((charts.WIDTH_INCHES, 4.2), layout="constrained")
        axes = drawing.subplots()
        for number, (each, descent) in enumerate(descents.items()):
            seconds, distances = zip(*descent, strict=True)
            axes.plot(
                seconds, distances, LINES[number // len(COLORS)], color=COLORS[number % len(COLORS)],
                linewidth=1.6, marker="o", markersize=4, label=each,
            )  # fmt: skip
        axes.axhline(near, color=charts.INK, linewidth=0.8)
        axes.annotate(f"{near:g} of the optimum", (1, near), (-4, 4), xycoords=("axes fraction", "data"),
                      textcoords="offset points", ha="right", color=charts.INK, fontsize=8)  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: duration_text(seconds)))
        axes.minorticks_off()
        axes.set_xlabel("time of a whole fit")
        axes.set_title(f"{name}: relative distance of the objective from the optimum")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8)
        text = "; ".join(
            f"{each}: {duration_text(descent[-1][0])} to {descent[-1][1]:.1g}" for each, descent in descents.items()
        )
        return charts.standalone(charts.svg_of(drawing, "descent", f"{name}. {text}."))
