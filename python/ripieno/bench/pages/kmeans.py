"""Provide a chart of K-means iterations of several programs."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator

from ripieno.bench.figures import Samples
from ripieno.report import charts
from ripieno.units import duration_text


def programs_chart(
    data: str, seconds: Mapping[str, Mapping[int, Samples]], *, quantity: str = "an iteration takes"
) -> str:
    """Return a time by centroids: medians, and bars from minimum to maximum.

    Parameters
    ----------
    data
        Description of the data.
    seconds
        Seconds of each program, by the number of centroids.
    quantity
        Description of the time.
    """
    with matplotlib.rc_context(charts.STYLE | {"axes.grid.axis": "both"}):
        drawing = Drawing((charts.WIDTH_INCHES, 3.6), layout="constrained")
        axes = drawing.subplots()
        for color, (program, samples) in zip(charts.COLORS, seconds.items(), strict=False):
            medians = [each.median_s for each in samples.values()]
            spread = [
                [median - each.best_s for median, each in zip(medians, samples.values(), strict=True)],
                [each.worst_s - median for median, each in zip(medians, samples.values(), strict=True)],
            ]
            axes.errorbar(
                list(samples), medians, spread, color=color, linewidth=1.6, marker="o", markersize=4, label=program
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.xaxis.set_major_locator(FixedLocator(sorted({k for samples in seconds.values() for k in samples})))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda k, _: f"{k:,.0f}"))
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration_text(value)))
        axes.minorticks_off()
        axes.set_xlabel("centroids")
        axes.set_title(f"{data}: {quantity}")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8)
        text = (
            f"{program}: {', '.join(f'{duration_text(each.median_s)} of {k:,}' for k, each in samples.items())}"
            for program, samples in seconds.items()
        )
        return charts.standalone(charts.svg_of(drawing, "programs", f"{data}, {quantity}: {'; '.join(text)}"))
