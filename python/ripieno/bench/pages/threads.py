"""Provide the page of `ripieno bench threads`: costs as bars, K-means as lines over threads × processes."""

from __future__ import annotations

import re
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FuncFormatter

from ripieno.bench.figures import machine
from ripieno.bench.threads import SHARE_BOUND, FitCost, ThreadsResults, samples_text
from ripieno.report import charts
from ripieno.report.filling import fill
from ripieno.units import duration_text

#: Colors of the patterns Q R U and T V S.
COLORS = {
    "Q": charts.THIRD,
    "R": charts.FOURTH,
    "U": charts.FIFTH,
    "T": charts.FIRST,
    "V": charts.INK,
    "S": charts.SECOND,
}
STYLES = {"fork-join": "--", "bsp": "-"}
MARKERS = {"fork-join": "s", "bsp": "o"}
BAR_INCHES = 0.28


def page(found: ThreadsResults) -> str:
    """Return the self-contained page."""
    headings, rows = found.usage_table()
    return fill(
        "threads.html",
        {"samples": samples_text},
        found=found,
        costs=[(case, cost_chart(found, case)) for case in found.cases],
        grids=[(found.grid_title(count), grid_chart(found, count), count) for count in found.request.sizes],
        headings=headings,
        rows=rows,
        machine=machine(),
    )


def drawings(found: ThreadsResults) -> dict[str, str]:
    """Return the drawings of the page as separate SVGs by name: `barrier-2.svg` for two threads, `kmeans-100.svg`."""
    threads = {cost.case: cost.threads for cost in found.costs}
    drawn = {f"{re.split(' of |,', case)[0]}-{threads[case]}.svg": cost_chart(found, case) for case in found.cases}
    drawn |= {f"{found.request.algorithm}-{size}.svg": grid_chart(found, size) for size in found.request.sizes}
    return {name: charts.standalone(svg) for name, svg in drawn.items()}


def cost_chart(found: ThreadsResults, case: str) -> str:
    """Return a bar for the median of each method, with a line from minimum to maximum over it."""
    selected = [cost for cost in found.costs if cost.case == case]
    spread = max(cost.phase.worst_s for cost in selected) / min(cost.phase.best_s for cost in selected)
    with matplotlib.rc_context({**charts.STYLE, "axes.grid.axis": "x"}):
        drawing = Drawing((charts.WIDTH_INCHES, 0.7 + BAR_INCHES * len(selected)), layout="constrained")
        axes = drawing.subplots()
        _bars(axes, selected)
        if spread > 10:
            axes.set_xscale("log")
        bound = next((cost.phase.median_s for cost in selected if cost.way == SHARE_BOUND), None)
        if bound is not None:
            axes.axvline(bound, color=charts.INK, linestyle="--", linewidth=1.2)
        axes.xaxis.set_major_formatter(FuncFormatter(_duration))
        axes.minorticks_off()
        fastest = min(selected, key=lambda cost: cost.phase.median_s)
        caption = f"{case}: {fastest.way} takes {duration_text(fastest.phase.median_s)}, the least."
        return charts.svg_of(drawing, f"cost{found.cases.index(case)}", caption)


def grid_chart(found: ThreadsResults, size: int) -> str:
    """Return seconds per iteration over threads × processes: a line per pattern and model, a panel per affinity."""
    with matplotlib.rc_context(charts.STYLE):
        drawing = Drawing((charts.WIDTH_INCHES, 3.9), layout="constrained")
        panels = drawing.subplots(1, 2, sharey=True)
        for axes, letters, title in zip(panels, ("QRU", "TVS"), ("threads inherit", "threads pinned"), strict=True):
            for pattern, model in found.lines:
                if pattern in letters:
                    _line(axes, found, pattern, model, size)
            axes.set_title(title)
            axes.set_xticks(range(len(found.shapes)), found.shapes)
            axes.set_xlabel("threads × processes")
            axes.margins(x=0.1)
            axes.yaxis.set_major_formatter(FuncFormatter(_duration))
        selected = [fit.iteration for fit in found.fits if fit.size == size]
        panels[0].set_ylim(0, 1.05 * max(samples.worst_s for samples in selected))
        drawing.legend(loc="outside lower center", ncols=6, frameon=False, labelcolor=charts.MUTED)
        medians = [samples.median_s for samples in selected]
        caption = f"Iterations take {duration_text(min(medians))} to {duration_text(max(medians))}."
        return charts.svg_of(drawing, f"grid{size}", caption)


def _bars(axes: Axes, costs: list[FitCost]) -> None:
    for index, cost in enumerate(reversed(costs)):
        is_ours = not cost.way.startswith(("OpenMP", "std::", "threads made", SHARE_BOUND))
        seconds = cost.phase
        axes.barh(index, seconds.median_s, height=0.6, color=charts.FIRST if is_ours else charts.SECOND)
        axes.hlines(index, seconds.best_s, seconds.worst_s, color=charts.INK, linewidth=1)
    axes.set_yticks(range(len(costs)), [cost.way for cost in reversed(costs)])
    axes.tick_params(axis="y", labelcolor=charts.INK)


def _line(axes: Axes, found: ThreadsResults, pattern: str, model: str, size: int) -> None:
    fits = [(number, found.fit(shape, pattern, model, size)) for number, shape in enumerate(found.shapes)]
    measured = [(number, fit.iteration) for number, fit in fits if fit is not None]
    x = [number for number, _ in measured]
    color = COLORS[pattern]
    axes.vlines(
        x, [s.best_s for _, s in measured], [s.worst_s for _, s in measured], color=color, linewidth=1, alpha=0.4
    )
    axes.plot(
        x,
        [samples.median_s for _, samples in measured],
        color=color,
        linestyle=STYLES[model],
        marker=MARKERS[model],
        markersize=4,
        linewidth=1.6,
        label=f"{pattern}, {model}",
    )


def _duration(seconds: float, _: Any) -> str:
    return duration_text(seconds) if seconds > 0 else "0"
