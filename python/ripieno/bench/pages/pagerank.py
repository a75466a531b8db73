"""Provide the chart of PageRank on increasing numbers of hosts as a separate SVG file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from ripieno.report import charts
from ripieno.units import duration_text


@dataclass(frozen=True)
class GraphScale:
    """An iteration on a number of hosts.

    Parameters
    ----------
    hosts
        Number of hosts.
    seconds, computing_s
        Duration of an iteration, and the longest compute time of a rank in it.
    link_s
        Bytes that the busiest host sends in an iteration, over the rate of its network link.
    """

    hosts: int
    seconds: float
    computing_s: float
    link_s: float


def scaling_chart(title: str, scales: Sequence[GraphScale]) -> str:
    """Return the seconds of an iteration, computing below communicating, and the speedup over one host."""
    with matplotlib.rc_context(charts.STYLE):
        drawing = Figure((charts.WIDTH_INCHES, 3.6), layout="constrained")
        times, speeds = drawing.subplots(1, 2)
        at = np.arange(len(scales))
        computing = 1e3 * np.array([each.computing_s for each in scales])
        iteration_ms = 1e3 * np.array([each.seconds for each in scales])
        # One host sends nothing.
        link_ms = 1e3 * np.array([each.link_s or np.nan for each in scales])
        times.bar(at, computing, width=0.62, color=charts.FIRST, label="computing, slowest host")
        times.bar(
            at, iteration_ms - computing, width=0.62, bottom=computing, color=charts.SECOND, label="communicating"
        )
        times.scatter(at, link_ms, color=charts.INK, marker="_", s=420, linewidths=2, zorder=3, label="bytes over rate")
        for x, each in zip(at, scales, strict=True):
            times.annotate(
                duration_text(each.seconds), (x, 1e3 * each.seconds), (0, 2), textcoords="offset points",
                color=charts.INK, ha="center", va="bottom",
            )  # fmt: skip
        times.set_title("ms of an iteration")
        times.set_ylim(0, 1.45 * max(iteration_ms))

        hosts = [each.hosts for each in scales]
        speeds.plot(
            hosts, [n / hosts[0] for n in hosts], color=charts.MUTED, linewidth=1, linestyle="--", label="hosts"
        )
        style = {"linewidth": 2, "marker": "o", "markersize": 4}
        speeds.plot(hosts, computing[0] / computing, color=charts.FIRST, label="computing", **style)
        speeds.plot(hosts, iteration_ms[0] / iteration_ms, color=charts.THIRD, label="iteration", **style)
        speeds.set_xscale("log", base=2)
        speeds.set_yscale("log", base=2)
        speeds.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        speeds.set_title("times as fast as one host" if hosts[0] == 1 else f"times as fast as {hosts[0]} hosts")
        speeds.set_xticks(hosts, [str(n) for n in hosts])
        times.set_xticks(at, [str(n) for n in hosts])
        for axes in (times, speeds):
            axes.minorticks_off()
            axes.set_xlabel("hosts")
            axes.legend(frameon=False, labelcolor=charts.MUTED)
        drawing.suptitle(title, color=charts.MUTED, fontsize=10)
        text = ", ".join(f"{each.hosts} hosts {duration_text(each.seconds)}" for each in scales)
        return charts.standalone(charts.svg_of(drawing, "scaling", f"Seconds of an iteration: {text}."))
