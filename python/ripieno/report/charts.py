"""Charts as SVG text that takes its colors and font from the surrounding page, light or dark."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno._extras import needs
from ripieno.algorithms.clock import IterationTime

with needs("reports"):
    import matplotlib
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.gridspec import GridSpec
    from matplotlib.ticker import FuncFormatter, MaxNLocator

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

#: Placeholder colors while matplotlib draws. Each becomes a CSS variable of the page.
INK, MUTED, GRID, FIRST, SECOND = "#010101", "#020202", "#030303", "#040404", "#050505"
THIRD, FOURTH, FIFTH = "#060606", "#070707", "#080808"
VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--grid", FIRST: "--first", SECOND: "--second"}
VARIABLES |= {THIRD: "--third", FOURTH: "--fourth", FIFTH: "--fifth"}

#: Colors of lines in one chart.
COLORS = (FIRST, SECOND, THIRD, FOURTH, FIFTH)

WIDTH_INCHES = 9.0
#: Width of charts for narrow screens.
NARROW_INCHES = 4.6
PANEL_LIMIT = 8
BAR_LIMIT = 80
#: Maximum number of steps drawn, about the number of pixels of the chart.
STEP_LIMIT = 1000
STYLE: dict[RcKeyType, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "ripieno",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.titlesize": 10,
    "axes.titlecolor": MUTED,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
}


def inertia_chart(history: Sequence[tuple[float, float]]) -> str:
    """Return a chart of the inertia and, on a logarithmic scale, the squared centroid shift per iteration."""
    numbers = np.arange(1, len(history) + 1)
    inertia = [each for each, _ in history]
    # If no label changes, the last shift is zero. Its logarithm does not exist.
    shifts = [shift or np.nan for _, shift in history]
    line = {"linewidth": 2, "marker": "o" if len(numbers) <= BAR_LIMIT else "", "markersize": 3.5}
    with matplotlib.rc_context(STYLE):
        figure = Figure((WIDTH_INCHES, 2.8), layout="constrained")
        left, right = figure.subplots(1, 2)
        left.plot(numbers, inertia, color=FIRST, **line)
        left.set_title("inertia")
        left.yaxis.set_major_formatter(FuncFormatter(_short))
        right.plot(numbers, shifts, color=FIRST, **line)
        right.set_title("squared shift of the centroids")
        right.set_yscale("log")
        for axes in (left, right):
            axes.margins(y=0.12)
            axes.set_xlim(0.5, len(numbers) + 0.5)
            _label(axes, "iteration", "")
        first, last = inertia[0], inertia[-1]
        return svg_in_both_widths(
            figure, "inertia", f"Inertia falls from {first:.6g} to {last:.6g} in {len(inertia)} iterations."
        )


def line_chart(
    name: str,
    series: Mapping[str, Sequence[float]],
    *,
    log: bool = False,
    from_zero: bool = False,
    x: str = "iteration",
) -> str:
    """Return a chart with one panel per series, numbered from 1.

    `log` allows logarithmic scales for wide ranges. With `from_zero` the vertical axes begin at 0.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure((WIDTH_INCHES, 2.8), layout="constrained")
        panels = figure.subplots(1, len(series), squeeze=False)[0]
        for axes, (title, values) in zip(panels, series.items(), strict=True):
            numbers = np.arange(1, len(values) + 1)
            marker = "o" if len(numbers) <= BAR_LIMIT else ""
            # Zero has no logarithm.
            shown = [value or np.nan for value in values] if log else list(values)
            axes.plot(numbers, shown, color=FIRST, linewidth=2, marker=marker, markersize=3.5)
            axes.set_title(title)
            # Below a factor of ten, a logarithmic scale would have labels such as 1.9 × 10¹.
            if log and np.nanmax(shown) >= 10 * np.nanmin(shown) > 0:
                axes.set_yscale("log")
            axes.margins(y=0.12)
            if from_zero:
                axes.set_ylim(0, 1.08 * max(shown))
            axes.set_xlim(0.5, len(numbers) + 0.5)
            _label(axes, x, "")
        text = (f"{title} goes from {values[0]:.6g} to {values[-1]:.6g}" for title, values in series.items())
        return svg_in_both_widths(figure, name, "; ".join(text) + ".")


def bar_chart(name: str, values: Mapping[str, float]) -> str:
    """Return a chart with a horizontal bar for each value, the first at the top, with its name and number."""
    with matplotlib.rc_context(STYLE):
        figure = Figure((WIDTH_INCHES, 0.7 + 0.27 * len(values)), layout="constrained")
        axes = figure.subplots()
        places = np.arange(len(values))
        numbers = list(values.values())
        axes.barh(places, numbers, height=0.7, color=FIRST)
        # A name is text, not a formula.
        labels = [f"{label}  {value:.4g}".replace("$", r"\$") for label, value in values.items()]
        axes.set_yticks(places, labels)
        axes.invert_yaxis()
        axes.grid(visible=True, axis="x")
        axes.grid(visible=False, axis="y")
        axes.axvline(0, color=MUTED, linewidth=1)
        short_labels(axes.xaxis)
        largest = next(iter(values))
        return svg_in_both_widths(
            figure, name, escape(f"The largest of {len(values)}: {largest} with {values[largest]:.6g}.")
        )


def residual_chart(predicted: NDArray[np.float64], residuals: NDArray[np.float64]) -> str:
    """Return a chart of residuals by prediction, and a histogram of residuals."""
    with matplotlib.rc_context(STYLE):
        figure = Figure((WIDTH_INCHES, 3.4), layout="constrained")
        left, right = figure.subplots(1, 2)
        left.scatter(predicted, residuals, s=point_area(len(predicted)), color=FIRST, alpha=0.5, linewidths=0)
        left.axhline(0, color=MUTED, linewidth=1)
        left.set_title("residual")
        left.set_xlabel("prediction")
        right.hist(residuals, bins=min(40, max(5, len(residuals) // 10)), color=FIRST)
        right.set_title("rows")
        right.set_xlabel("residual")
        for axis in (left.xaxis, left.yaxis, right.xaxis):
            short_labels(axis)
        spread = float(np.std(residuals))
        return svg_in_both_widths(
            figure, "residuals", f"Residuals of {len(residuals)} rows, with the deviation {spread:.4g}."
        )


def roc_chart(curves: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]]) -> str:
    """Return a chart of ROC curves, one color for each class: rates of false and of true positives."""
    with matplotlib.rc_context(STYLE):
        figure = Figure((WIDTH_INCHES, 4.0), layout="constrained")
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color=GRID, linewidth=1, linestyle="--")
        for color, (false, true) in zip(COLORS, curves.values(), strict=False):
            axes.plot(false, true, color=color, linewidth=2)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("rate of false positives")
        axes.set_title("rate of true positives")
        return svg_in_both_widths(figure, "roc", escape(f"ROC curves of {', '.join(curves)}."))


def runs_chart(name: str, title: str, runs: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> str:
    """Return a chart of one measure of several runs, one color per run, against iterations and against seconds."""
    with matplotlib.rc_context(STYLE):
        figure = Figure((WIDTH_INCHES, 2.8), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        for color, (ends_s, values) in zip(COLORS, runs.values(), strict=False):
            marker = "o" if len(values) <= BAR_LIMIT else ""
            for axes, places in ((left, np.arange(1, len(values) + 1)), (right, ends_s)):
                axes.plot(places, values, color=color, linewidth=2, marker=marker, markersize=3.5)
        for axes in (left, right):
            axes.margins(y=0.12)
        _label(left, "iteration", "")
        right.set_xlabel("seconds")
        text = (f"{run} ends at {values[-1]:.6g} after {ends_s[-1]:.3g} s" for run, (ends_s, values) in runs.items())
        return svg_in_both_widths(figure, name, escape(f"{title}: {'; '.join(text)}."))


def time_chart(iterations: Sequence[IterationTime], step_name: str = "iteration") -> str:
    """Return a chart of compute and communication seconds per iteration or stage, stacked, one panel per rank."""
    compute = np.array([each.compute_s for each in iterations])
    communication = np.array([each.communication_s for each in iterations])
    # With too many ranks, show those with the longest compute time: the other ranks wait for them.
    ranks = np.sort(np.argsort(-compute.sum(axis=0), kind="stable")[:PANEL_LIMIT])
    with matplotlib.rc_context(STYLE):
        figure = Figure((WIDTH_INCHES, 0.7 + 1.25 * len(ranks)), layout="constrained")
        panels = figure.subplots(len(ranks), sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, rank in zip(panels, ranks, strict=True):
            _stack(axes, compute[:, rank], communication[:, rank])
            axes.set_title(f"rank {rank}")
            axes.yaxis.set_major_locator(MaxNLocator(3))
        _label(panels[-1], step_name, "")
        figure.supylabel("seconds", fontsize=10, color=MUTED)
        share = communication.sum() / max(compute.sum() + communication.sum(), 1e-12)
        return svg_in_both_widths(
            figure, "time", f"Seconds per {step_name} and rank; {share:.1%} of all time is communication and waiting."
        )


def point_area(count: int) -> float:
    """Return the area of a point among `count` points: few points would be invisible if they were as small as many."""
    return float(np.clip(2500 / max(count, 1), 4, 30))


def size_chart(sizes: NDArray[np.int64]) -> str:
    """Return a chart of the rows per cluster, largest first."""
    ordered = np.sort(sizes)[::-1]
    with matplotlib.rc_context(STYLE):
        figure = Figure((WIDTH_INCHES, 2.8), layout="constrained")
        axes = figure.subplots()
        # Each step shows its first cluster, which is its largest.
        firsts = np.unique(np.linspace(0, len(ordered), STEP_LIMIT, endpoint=False).astype(np.int64))
        edges = np.append(firsts, len(ordered)) + 0.5
        axes.stairs(ordered[firsts], edges, fill=True, color=FIRST, linewidth=0)
        axes.axhline(ordered.mean(), color=SECOND, linewidth=1.5, linestyle="--")
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(0, max(ordered[0], 1) * 1.08)
        axes.yaxis.set_major_formatter(FuncFormatter(_short))
        _label(axes, "cluster, largest first", "rows")
        return svg_in_both_widths(
            figure,
            "sizes",
            f"The largest of {len(ordered)} clusters has {ordered[0]} rows, the median one {np.median(ordered):.0f}.",
        )


def _stack(axes: Axes, lower: NDArray[np.float64], upper: NDArray[np.float64]) -> None:
    edges = np.arange(len(lower) + 1) + 0.5
    if len(lower) > BAR_LIMIT:
        axes.stairs(lower + upper, edges, fill=True, color=SECOND)
        axes.stairs(lower, edges, fill=True, color=FIRST)
    else:
        numbers = edges[:-1] + 0.5
        axes.bar(numbers, lower, width=0.72, color=FIRST)
        axes.bar(numbers, upper, width=0.72, bottom=lower, color=SECOND)
    axes.set_xlim(edges[0], edges[-1])


def _label(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.xaxis.set_major_locator(MaxNLocator(12, integer=True, min_n_ticks=1))


def short_labels(axis: Axis) -> None:
    """Label few values of an axis, and large ones with a suffix, so that labels never overlap."""
    axis.set_major_locator(MaxNLocator(6))
    axis.set_major_formatter(FuncFormatter(_short))


def _short(value: float, _: object) -> str:
    for limit, suffix in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if abs(value) >= limit:
            return f"{value / (limit if suffix != ' k' else 1e3):g}{suffix}"
    return f"{value:g}"


def svg_of(figure: Figure, name: str, description: str) -> str:
    """Return a figure as SVG in the colors of the page. `name` prefixes its ids, so figures do not collide."""
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :]
    for color, variable in VARIABLES.items():
        svg = svg.replace(color, f"var({variable})")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="([^"]*)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'(url\(|href=")#', rf"\1#{name}-", svg)
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", svg)
    size = re.search(r'viewBox="[^"]*"', svg)
    assert size is not None, "matplotlib gives every figure a viewBox"
    return re.sub(r"<svg[^>]*>", f'<svg {size[0]} role="img" aria-label="{description}">', svg, count=1)


def svg_in_both_widths(figure: Figure, name: str, description: str) -> str:
    """Return a figure for wide pages, and once more for narrow ones, with panels stacked instead of side by side.

    The style of the page shows one of them. So text has a readable size in both.
    """
    wide = svg_of(figure, name, description)
    panels, height = figure.axes, figure.get_figheight()
    column_positions = {round(each.get_position().x0, 2) for each in panels}
    if len(column_positions) > 1:
        grid = GridSpec(len(panels), 1, figure=figure)
        for at, axes in enumerate(panels):
            axes.set_subplotspec(grid[at])
        height = 0.8 * height * len(panels)
    figure.set_size_inches(NARROW_INCHES, height)
    narrow = svg_of(figure, f"{name}-narrow", description)
    return wide.replace("<svg ", '<svg class="wide" ', 1) + narrow.replace("<svg ", '<svg class="narrow" ', 1)


def standalone(svg: str) -> str:
    """Return a chart as a stand-alone SVG file with the colors of the pages, light or dark.

    Of a chart in both widths, the file has the wide one: an XML file has one root.
    """
    svg = svg[: svg.index("</svg>") + len("</svg>")]
    style = resources.files("ripieno.dashboard").joinpath("page/style.css").read_text()
    colors = style[: style.index("* {")]
    head = f"<style>{colors}svg {{ background: var(--card); font-family: sans-serif; }}</style>"
    svg = svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" ', 1)
    return re.sub(r"(<svg[^>]*>)", lambda found: f"{found[1]}\n{head}", svg, count=1)
