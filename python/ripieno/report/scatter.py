"""Point clouds as SVG text: in the plane, or in space, rotating about a vertical axis by style sheets alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripieno._extras import needs
from ripieno.report.charts import FIRST, MUTED, STYLE, WIDTH_INCHES, point_area, short_labels, svg_of

with needs("reports"):
    import matplotlib
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_hex
    from matplotlib.figure import Figure

Reals = NDArray[np.float64]

#: More points are not distinguishable and make the page slow.
POINT_LIMIT = 3000
EDGE_LIMIT = 6000
#: Area of the largest point, in square points.
AREA_LIMIT = 300.0
HALF_WIDTH, HALF_HEIGHT = 320.0, 240.0
TURN_S = 24.0
KEYFRAMES = 24
#: Colors of groups of points, used in turn; they are distinguishable on light and on dark pages.
GROUP_COLORS = tuple(to_hex(color) for color in matplotlib.color_sequences["tab10"])


Rows = tuple[Reals, NDArray[np.int64]]


def scatter_chart(
    name: str, positions: Reals, *, sizes: NDArray[np.int64] | None = None, rows: Rows | None = None
) -> str:
    """Return a chart of points, (n, 1 or more), by their first two coordinates.

    A single coordinate is drawn over the number of the point. Areas follow `sizes`, (n,), if given. `rows` are small
    points, (m, 1 or more), each with the number of a point, (m,), and the color of that point.
    """
    return graph_chart(name, positions, np.empty((0, 2), np.int64), sizes=sizes, rows=rows)


def graph_chart(
    name: str,
    positions: Reals,
    ends: NDArray[np.int64],
    *,
    groups: NDArray[np.int64] | None = None,
    sizes: NDArray[np.int64] | None = None,
    rows: Rows | None = None,
) -> str:
    """Return a `scatter_chart` with lines between pairs of point numbers, (m, 2), colored by groups, (n,)."""
    plane = positions[:, :2]
    if positions.shape[1] == 1:
        plane = np.stack([np.arange(len(positions)), positions[:, 0]], axis=1)
    points, lines = _subsample(plane, POINT_LIMIT), plane[_subsample(ends, EDGE_LIMIT)]
    groups = np.arange(len(positions)) if rows is not None and groups is None else groups
    colors = FIRST if groups is None else [_color(group) for group in _subsample(groups, POINT_LIMIT)]
    with matplotlib.rc_context(STYLE | {"axes.grid": False}):
        figure = Figure((WIDTH_INCHES, 6.0), layout="constrained")
        axes = figure.subplots()
        width = np.clip(600 / max(len(lines), 1), 0.4, 1.2)
        axes.add_collection(LineCollection(list(lines), colors=MUTED, linewidths=width, alpha=0.35 * width**0.5))
        areas: Any = max(point_area(len(points)), 5 if groups is None else 20)
        if sizes is not None:
            chosen = _subsample(sizes[: len(positions)], POINT_LIMIT)
            areas = AREA_LIMIT * np.maximum(chosen / max(int(chosen.max()), 1), 0.02)
        if rows is not None and positions.shape[1] > 1:
            of_rows = [_color(cluster) for cluster in rows[1]]
            area = point_area(len(rows[0]))
            axes.scatter(rows[0][:, 0], rows[0][:, 1], s=area, color=of_rows, linewidths=0, alpha=0.4, zorder=1)
        axes.scatter(points[:, 0], points[:, 1], s=areas, color=colors, linewidths=0, alpha=0.7, zorder=2)
        if positions.shape[1] > 1:
            axes.set_aspect("equal", adjustable="datalim")
        short_labels(axes.xaxis)
        short_labels(axes.yaxis)
        return svg_of(figure, name, f"{len(points)} points, {len(lines)} lines between them.")


def turning_chart(name: str, positions: Reals, *, groups: NDArray[np.int64] | None = None) -> str:
    """Return a rotating chart of points, (n, 3 or more), by their first three coordinates.

    Points of the same group, (n,), have the same color.

    In orthographic projection a rotating point moves to and fro horizontally. All points therefore share one animation,
    each with its own width and delay, and the page needs no script. The rotation pauses while the pointer is over it.
    """
    points = _subsample(positions, POINT_LIMIT)[:, :3]
    points = points - points.mean(axis=0)
    # The rotation axis is the axis of second-largest variance, so that the drawing fills the page on average.
    _, _, axes = np.linalg.svd(points, full_matrices=False)
    wide, high, deep = (points @ axis for axis in _padded_axes(axes))
    widths, phases = np.hypot(wide, deep), np.arctan2(deep, wide)
    scale = min(HALF_WIDTH / _largest(widths), HALF_HEIGHT / _largest(high)) * 0.96
    frames = "".join(_frame(at) for at in range(KEYFRAMES + 1))
    group_of_point = np.zeros(len(points), np.int64) if groups is None else _subsample(groups, POINT_LIMIT)
    circles = "".join(
        f'<circle r="1.8" cy="{-y * scale:.1f}" style="--r:{width * scale:.1f}px;'
        f"animation-delay:{-(phase % math.tau) / math.tau * TURN_S:.2f}s"
        f'{"" if groups is None else f";fill:{_color(group)}"}"/>'
        for y, width, phase, group in zip(high, widths, phases, group_of_point, strict=True)
    )
    style = (
        f"@keyframes {name}-turn{{{frames}}}"
        f"#{name}-points circle{{fill:var(--first);animation:{name}-turn {TURN_S:g}s linear infinite}}"
        f"#{name}-points:hover circle{{animation-play-state:paused}}"
        f"@media(prefers-reduced-motion:reduce){{#{name}-points circle{{animation-play-state:paused}}}}"
    )
    box = f"{-HALF_WIDTH:g} {-HALF_HEIGHT:g} {2 * HALF_WIDTH:g} {2 * HALF_HEIGHT:g}"
    return (
        f'<svg viewBox="{box}" role="img" aria-label="{len(points)} points in space, turning." id="{name}-points">'
        f"<style>{style}</style>{circles}</svg>"
    )


def _color(group: int) -> str:
    return GROUP_COLORS[group % len(GROUP_COLORS)]


def _subsample(rows: NDArray[Any], limit: int) -> NDArray[Any]:
    """Return at most `limit` rows, spaced evenly over all."""
    count = len(rows)
    return rows[np.arange(limit) * count // limit] if count > limit else rows


def _padded_axes(axes: Reals) -> Reals:
    """Return three axes. With fewer than three points, the missing axes are zero."""
    return np.vstack([axes, np.zeros((3 - len(axes), axes.shape[1]))])


def _largest(values: Reals) -> float:
    return float(np.abs(values).max(initial=0.0)) or 1.0


def _frame(at: int) -> str:
    angle = math.tau * at / KEYFRAMES
    # Points at the back are drawn fainter.
    opacity = 0.6 + 0.4 * math.sin(angle)
    share = 100 * at / KEYFRAMES
    return f"{share:.4g}%{{transform:translateX(calc(var(--r)*{math.cos(angle):.4f}));opacity:{opacity:.2f}}}"
