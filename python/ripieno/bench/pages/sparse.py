"""Provide charts of sparse reductions: packets, densities, volumes and times, each as a separate SVG file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator
from numpy.typing import ArrayLike, NDArray

from ripieno._native import EFFICIENT_SHARE, DensityCurve, PacketCurve
from ripieno.report import charts
from ripieno.units import bytes_text, duration_text

COLORS = (charts.FIRST, charts.SECOND, charts.THIRD, charts.FOURTH, charts.FIFTH)
MARKERS = ("o", "s", "^", "D", "v")
#: The density that defines the unit of lambda in the density chart, and the chart's limits.
UNIT_DENSITY, LAMBDA_LIMIT, LOW_LIMIT = 0.9, 2.0, 0.05


def throughput_chart(curves: Mapping[str, PacketCurve]) -> str:
    """Return throughput against packet size of several links, with the minimum efficient packet of each (figure 2)."""
    with matplotlib.rc_context(charts.STYLE):
        drawing = Figure((charts.WIDTH_INCHES, 3.6), layout="constrained")
        axes = drawing.subplots()
        sizes: set[float] = set()
        for (name, curve), color, marker in zip(curves.items(), COLORS, MARKERS, strict=False):
            points = [(size, size / seconds / 1e6) for size, seconds in curve.points]
            sizes |= {size for size, _ in points}
            axes.plot(*zip(*points, strict=True), color=color, marker=marker, markersize=4, linewidth=2, label=name)
            min_bytes = curve.efficient_bytes
            axes.plot(
                [min_bytes], [EFFICIENT_SHARE * curve.best_throughput / 1e6], marker="|", markersize=22, color=color
            )
            # Place the label below the curve, which only rises.
            axes.annotate(
                f"efficient from {bytes_text(min_bytes)}",
                (min_bytes, EFFICIENT_SHARE * curve.best_throughput / 1e6),
                xytext=(8, -14), textcoords="offset points", color=charts.MUTED, va="top",
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        ticks = [10.0**power for power in range(13) if min(sizes) <= 10.0**power <= max(sizes)]
        axes.set_xticks(ticks, [bytes_text(tick) for tick in ticks])
        axes.minorticks_off()
        axes.set_xlabel("packet")
        axes.set_title("MB/s of a rank")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.legend(frameon=False, labelcolor=charts.MUTED)
        caption = "; ".join(
            f"{name}: efficient from {bytes_text(curve.efficient_bytes)}" for name, curve in curves.items()
        )
        return charts.standalone(charts.svg_of(drawing, "packets", f"Throughput against packet size. {caption}."))


def density_chart(features: int, alphas: Sequence[float]) -> str:
    """Return density against lambda, in units of the lambda with density 0.9, and an enlarged start (figure 4)."""
    with matplotlib.rc_context(charts.STYLE):
        drawing = Figure((charts.WIDTH_INCHES, 3.6), layout="constrained")
        whole, low = drawing.subplots(1, 2)
        for alpha, color in zip(alphas, COLORS, strict=False):
            curve = DensityCurve.power_law(features, alpha, UNIT_DENSITY)
            for axes, limit in ((whole, LAMBDA_LIMIT), (low, LOW_LIMIT)):
                x = np.linspace(0, limit, 101)
                y = [curve.density(float(each)) for each in x]
                axes.plot(x, y, color=color, linewidth=2, label=f"alpha {alpha:g}")
        for axes, limit in ((whole, LAMBDA_LIMIT), (low, LOW_LIMIT)):
            axes.set_xlim(0, limit)
            axes.set_ylim(0, None)
            axes.set_xlabel(f"lambda / lambda at density {UNIT_DENSITY:g}")
        whole.set_title("density")
        low.set_title("low densities")
        whole.legend(frameon=False, labelcolor=charts.MUTED)
        text = f"Density of a power law of {features:,} features for exponents {', '.join(f'{a:g}' for a in alphas)}."
        return charts.standalone(charts.svg_of(drawing, "density", text))


def volume_chart(panels: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> str:
    """Return the volume of each layer, one panel per data set: predicted below measured (figure 5).

    Parameters
    ----------
    panels
        By title: bytes of each layer and of the bottom, predicted and measured.
    """
    with matplotlib.rc_context(charts.STYLE):
        drawing = Figure((charts.WIDTH_INCHES, 3.0), layout="constrained")
        for axes, (title, (predicted, measured)) in zip(
            drawing.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
        ):
            # A cup shape: widths around a middle line, the first layer on top.
            rows = np.arange(len(measured))
            widths = np.array(measured) / 1e6
            axes.barh(rows, widths, left=-widths / 2, height=0.62, color=charts.FIRST)
            edges = np.array(predicted) / 2e6
            for side in (-1, 1):
                _marks(axes, side * edges, rows)
            names = [*(f"layer {number}" for number in range(1, len(measured))), "bottom"]
            axes.set_yticks(rows, names)
            axes.invert_yaxis()
            axes.grid(visible=False)
            axes.set_xticks([])
            axes.set_xlim(-0.55 * max(widths), 0.95 * max(widths))
            for row, width in zip(rows, widths, strict=True):
                axes.annotate(f"  {bytes_text(1e6 * width)}", (width / 2, row), color=charts.INK, va="center")
            axes.set_title(title)
        _legend(drawing)
        text = "Bytes of all ranks in each layer; bars as measured, marks as Eq. 5 predicts."
        return charts.standalone(charts.svg_of(drawing, "volumes", text))


def time_chart(title: str, bars: Sequence[tuple[str, float, float, float | None]]) -> str:
    """Return the seconds of several methods to reduce the same data (figure 6).

    Parameters
    ----------
    title
        Title of the chart.
    bars
        Name, seconds to configure, seconds to reduce, and predicted seconds, if known.
    """
    with matplotlib.rc_context(charts.STYLE):
        drawing = Figure((charts.WIDTH_INCHES, 0.9 + 0.42 * len(bars)), layout="constrained")
        configure, reduce = drawing.subplots(1, 2, sharey=True)
        rows = np.arange(len(bars))
        _bars(configure, rows, [bar[1] for bar in bars], "configure")
        _bars(reduce, rows, [bar[2] for bar in bars], "reduce")
        predicted = [(row, bar[3]) for row, bar in zip(rows, bars, strict=True) if bar[3] is not None]
        if predicted:
            _marks(reduce, [seconds for _, seconds in predicted], [row for row, _ in predicted])
            _legend(drawing)
        configure.set_yticks(rows, [bar[0] for bar in bars])
        configure.invert_yaxis()
        drawing.suptitle(title, color=charts.MUTED, fontsize=10)
        caption = ", ".join(f"{name} {duration_text(seconds)}" for name, _, seconds, _ in bars)
        return charts.standalone(charts.svg_of(drawing, "times", f"Seconds of a reduction: {caption}."))


def _marks(axes: Axes, x: ArrayLike, rows: ArrayLike) -> None:
    axes.scatter(x, rows, color=charts.SECOND, marker="|", s=260, linewidths=2.5, zorder=3)


def _legend(drawing: Figure) -> None:
    """Add a legend of bars and marks below the panels."""
    bar = Patch(color=charts.FIRST, label="measured")
    mark = Line2D([], [], color=charts.SECOND, marker="|", markersize=12, markeredgewidth=2.5, linestyle="none")
    mark.set_label("predicted")
    drawing.legend(handles=[bar, mark], loc="outside lower right", ncols=2, frameon=False, labelcolor=charts.MUTED)


def _bars(axes: Axes, rows: NDArray[Any], seconds: Sequence[float], title: str) -> None:
    axes.barh(rows, seconds, height=0.62, color=charts.FIRST)
    for row, each in zip(rows, seconds, strict=True):
        axes.annotate(f" {duration_text(each)}" if each else " none", (each, row), color=charts.INK, va="center")
    axes.set_xlim(0, 1.3 * max([*seconds, 1e-9]))
    axes.set_title(title)
    axes.grid(visible=False)
    axes.set_xticks([])
