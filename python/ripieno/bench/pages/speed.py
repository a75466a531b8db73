"""Provide the page of measured collectives: time and bandwidth against bytes, for Ripieno, the peers and the limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FuncFormatter

from ripieno.bench.figures import Figure
from ripieno.files import disk
from ripieno.report import charts
from ripieno.report.filling import fill
from ripieno.units import duration_text, size_text

PEER_COLORS = (charts.SECOND, charts.THIRD, charts.FOURTH, charts.FIFTH)
MARKERS = ("s", "^", "D", "v")


def write_speed(
    path: Path, figures: Sequence[Figure], *, machine: Mapping[str, object], remarks: Sequence[str] = ()
) -> None:
    """Write the page of measured collectives.

    Parameters
    ----------
    path
        File to write.
    figures
        One per case and size; barriers have a row but no curve.
    machine
        Description of the machine, which the page lists.
    remarks
        Remarks below the figures.
    """
    cases = dict.fromkeys(figure.case for figure in figures)
    html = fill(
        "speed.html",
        {"seconds": duration_text},
        cases=[_case(name, number, figures) for number, name in enumerate(cases)],
        machine=machine,
        remarks=remarks,
    )
    disk.write_text(path, html)


def _case(name: str, number: int, figures: Sequence[Figure]) -> dict[str, object]:
    case_figures = [figure for figure in figures if figure.case == name]
    sized = [figure for figure in case_figures if figure.work]
    return {
        "name": name,
        "figures": case_figures,
        "peers": _peers(case_figures),
        "limit": case_figures[0].limit,
        "chart": speed_chart(sized, f"case{number}") if len(sized) > 1 else None,
    }


def speed_chart(figures: Sequence[Figure], name: str) -> str:
    """Return time and bandwidth of one case on logarithmic scales, with bars from minimum to maximum."""
    with matplotlib.rc_context(charts.STYLE):
        drawing = Drawing((charts.WIDTH_INCHES, 3.9), layout="constrained")
        time, rate = drawing.subplots(1, 2)
        _draw(time, figures, lambda figure, seconds: seconds)
        _draw(rate, figures, lambda figure, seconds: figure.work * 1e9 / seconds)
        time.set_title("time")
        time.yaxis.set_major_formatter(FuncFormatter(lambda seconds, _: duration_text(seconds)))
        rate.set_title("bytes per second")
        rate.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _rate_text(value)))
        # Ripieno is drawn last, over the peers, but listed first.
        handles, labels = (list(reversed(each)) for each in time.get_legend_handles_labels())
        drawing.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, labelcolor=charts.MUTED)
        last = figures[-1]
        return charts.svg_of(
            drawing, name, f"{last.case}: {duration_text(last.ours.median_s)} for {last.row}, on logarithmic scales."
        )


def _draw(axes: Axes, figures: Sequence[Figure], of: Callable[[Figure, float], float]) -> None:
    sizes = [_bytes(figure) for figure in figures]
    limits = [(_bytes(figure), of(figure, figure.limit_s)) for figure in figures if figure.limit_s]
    if limits:
        axes.plot(*zip(*limits, strict=True), color=charts.INK, linestyle="--", linewidth=1.5, label="limit")
    lines = [(charts.FIRST, "o", "Ripieno", [(_bytes(f), f.ours) for f in figures])]
    for index, peer in enumerate(_peers(figures)):
        color, marker = PEER_COLORS[index % len(PEER_COLORS)], MARKERS[index % len(MARKERS)]
        lines.append((color, marker, peer, [(_bytes(f), f.peers[peer]) for f in figures if peer in f.peers]))
    by_size = dict(zip(sizes, figures, strict=True))
    for color, marker, label, points in reversed(lines):
        x = [size for size, _ in points]
        y = [of(by_size[size], samples.median_s) for size, samples in points]
        ends = [sorted((of(by_size[s], t.best_s), of(by_size[s], t.worst_s))) for s, t in points]
        axes.vlines(x, [low for low, _ in ends], [high for _, high in ends], color=color, linewidth=1, alpha=0.5)
        width = 2.2 if label == "Ripieno" else 1.4
        axes.plot(x, y, color=color, marker=marker, markersize=4, linewidth=width, label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [size_text(size) for size in sizes], rotation=40, ha="right")
    axes.minorticks_off()


def _peers(figures: Sequence[Figure]) -> list[str]:
    return list(dict.fromkeys(peer for figure in figures for peer in figure.peers))


def _bytes(figure: Figure) -> int:
    return round(figure.work * 1e9)


def _rate_text(bytes_per_s: float) -> str:
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if bytes_per_s >= factor:
            return f"{bytes_per_s / factor:g} {unit}"
    return f"{bytes_per_s:g} B"
