"""Provide seconds of collectives against bytes, with crossings of algorithms, or against the segment size.

Between two sizes with different fastest algorithms, bisection finds the crossing to within a few per cent of the bytes.
An algorithm stays the fastest until another is clearly faster.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from itertools import pairwise
from typing import Any

from ripieno.simulation import pictures
from ripieno.simulation.cluster import Cluster
from ripieno.simulation.explanation import explain
from ripieno.simulation.simulate import simulate
from ripieno.units import bytes_text, duration_text, size_text

#: The first size, and the factor between sizes.
FIRST_BYTES, SIZE_RATIO = 8, 4
#: Crossings are located to within this factor of bytes. An algorithm is clearly faster from this margin on.
CROSSING_RATIO, CLEAR_MARGIN = 1.05, 0.03
#: The smallest segment to try.
SEGMENT_BYTES_MIN = 1 << 10
#: Maximum number of lines in a chart: first all algorithms that are the fastest at a size, then the closest others.
LINE_COUNT_MAX = 8

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 760, 420, 72, 56, 168, 48
_COLORS = ("#00796b", "#d9622b", "#8a6fb8", "#2a6db0", "#b0306a", "#7a8b2a", "#8d5a2b", "#6b7075")


@dataclass(frozen=True)
class Crossing:
    """A size threshold for another fastest algorithm."""

    size_bytes: int
    before: str
    after: str


@dataclass(frozen=True)
class Curves:
    """Seconds of each algorithm against bytes.

    Attributes
    ----------
    collective, cluster
        The collective, and the modeled cluster.
    sizes_bytes
        Sizes, ascending.
    seconds
        Seconds of each applicable algorithm, one value per size.
    crossings
        Sizes at which another algorithm becomes the fastest, ascending.
    """

    collective: str
    cluster: Cluster
    sizes_bytes: Sequence[int]
    seconds: Mapping[str, Sequence[float]]
    crossings: Sequence[Crossing]

    def as_json(self) -> dict[str, Any]:
        """Return all fields but the cluster as JSON values."""
        return {
            "collective": self.collective,
            "ranks": self.cluster.ranks,
            "sizes_bytes": list(self.sizes_bytes),
            "seconds": {name: list(each) for name, each in self.seconds.items()},
            "crossings": [asdict(each) for each in self.crossings],
        }

    def __str__(self) -> str:
        first = self.fastest(0)
        lines = [f"{self.collective} among {self.cluster.ranks:,} ranks: {self.cluster}"]
        lines.append(f"{'up to':>10}  fastest")
        names = [first, *(each.after for each in self.crossings)]
        ends = [bytes_text(each.size_bytes) for each in self.crossings] + ["beyond"]
        lines += [f"{end:>10}  {name}" for end, name in zip(ends, names, strict=True)]
        return "\n".join(lines)

    def fastest(self, place: int) -> str:
        """Return the fastest algorithm at one of the sizes."""
        return min(self.seconds, key=lambda name: self.seconds[name][place])

    def picture(self) -> str:
        """Return a chart of seconds against bytes with the crossings."""
        winners = list(dict.fromkeys([self.fastest(0), *(each.after for each in self.crossings)]))
        lowest = [min(each[place] for each in self.seconds.values()) for place in range(len(self.sizes_bytes))]
        behind = {
            name: sum(math.log(one / best) for one, best in zip(each, lowest, strict=True))
            for name, each in self.seconds.items()
        }
        others = sorted(set(self.seconds) - set(winners), key=lambda name: behind[name])
        names = [*winners, *others][:LINE_COUNT_MAX]
        title = f"{self.collective} among {self.cluster.ranks:,} ranks: {self.cluster}"
        lines = {name: list(zip(self.sizes_bytes, self.seconds[name], strict=True)) for name in names}
        marks = [(each.size_bytes, f"{each.after} from {bytes_text(each.size_bytes)}") for each in self.crossings]
        return log_chart(title, lines, marks)


def price_curves(collective: str, cluster: Cluster, *, max_bytes: int) -> Curves:
    """Simulate every algorithm of a collective at sizes from 8 bytes to `max_bytes`, counted as in `explain`.

    Raises
    ------
    InputError
        If there is no such collective.
    """
    step_count = max(1, math.ceil(math.log(max(max_bytes, FIRST_BYTES) / FIRST_BYTES, SIZE_RATIO)))
    sizes = [min(FIRST_BYTES * SIZE_RATIO**step, max(max_bytes, FIRST_BYTES)) for step in range(step_count + 1)]
    sizes = list(dict.fromkeys(sizes))
    found = {size: _seconds(collective, cluster, size) for size in sizes}
    names = [name for name in found[sizes[0]] if all(name in each for each in found.values())]
    crossings: list[Crossing] = []
    fastest = _best(found[sizes[0]])
    for low, high in pairwise(sizes):
        while (after := _clearly_fastest(found[high], fastest)) != fastest:
            size, after = _crossing(collective, cluster, fastest, low, (high, after))
            crossings.append(Crossing(size, fastest, after))
            low, fastest = size, after
    seconds = {name: [found[size][name] for size in sizes] for name in names}
    return Curves(collective.replace("_", "-"), cluster, sizes, seconds, crossings)


@dataclass(frozen=True)
class Segments:
    """Seconds of an algorithm against the segment size.

    Attributes
    ----------
    collective, algorithm, nbytes, cluster
        The call, and the modeled cluster.
    points
        Pairs (segment bytes, seconds), in ascending order of bytes.
    """

    collective: str
    algorithm: str
    nbytes: int
    cluster: Cluster
    points: Sequence[tuple[int, float]]

    @property
    def best(self) -> tuple[int, float]:
        """Return the segment size with the least seconds, and these seconds."""
        return min(self.points, key=lambda point: point[1])

    def as_json(self) -> dict[str, Any]:
        """Return all fields but the cluster as JSON values."""
        points = [{"segment_bytes": size, "seconds": seconds} for size, seconds in self.points]
        described = {"collective": self.collective, "algorithm": self.algorithm, "nbytes": self.nbytes}
        return described | {"best_bytes": self.best[0], "points": points}

    def __str__(self) -> str:
        heading = f"{self.collective} of {size_text(self.nbytes)} by {self.algorithm}, {self.cluster}"
        lines = [f"{size_text(size):>10}  {duration_text(seconds)}" for size, seconds in self.points]
        return "\n".join([heading, "  segments  time", *lines, f"segments of {size_text(self.best[0])} are the best"])

    def picture(self) -> str:
        """Return a chart of seconds against segment size, with a mark at the best."""
        title = f"{self.collective} of {size_text(self.nbytes)} by {self.algorithm}, {self.cluster}, by segments"
        return log_chart(title, {self.algorithm: self.points}, [(self.best[0], f"best: {size_text(self.best[0])}")])


def segment_curve(collective: str, cluster: Cluster, *, nbytes: int, algorithm: str, root: int = 0) -> Segments:
    """Search the best segment size for an algorithm: 1 KiB, doubled up to the whole vector.

    Raises
    ------
    InputError
        If there is no such collective or algorithm.
    """
    sizes = [SEGMENT_BYTES_MIN << step for step in range(64) if SEGMENT_BYTES_MIN << step <= nbytes]
    points = []
    for size in sizes or [nbytes]:
        # Ranks relay data segment by segment.
        where = replace(cluster, segment_bytes=max(size, 1), relay_bytes=None)
        found = simulate(collective, where, nbytes=nbytes, algorithm=algorithm, root=root)
        if found.seconds is not None:
            points.append((size, found.seconds))
    return Segments(collective.replace("_", "-"), algorithm, nbytes, cluster, points)


def _seconds(collective: str, cluster: Cluster, size: int) -> dict[str, float]:
    candidates = explain(collective, cluster, nbytes=size).candidates
    return {each.algorithm: each.seconds for each in candidates if each.seconds is not None}


def _best(seconds: Mapping[str, float]) -> str:
    return min(seconds, key=lambda name: seconds[name])


def _clearly_fastest(seconds: Mapping[str, float], fastest: str) -> str:
    """Return the current fastest algorithm, or another one that is clearly faster."""
    best = _best(seconds)
    return fastest if seconds[fastest] <= (1 + CLEAR_MARGIN) * seconds[best] else best


def _crossing(collective: str, cluster: Cluster, fastest: str, low: int, high: tuple[int, str]) -> tuple[int, str]:
    """Return approximately the smallest size at which another algorithm is clearly faster, and that algorithm."""
    while True:
        middle = round(math.sqrt(low * high[0]))
        if high[0] <= low * CROSSING_RATIO or middle in (low, high[0]):
            return high
        after = _clearly_fastest(_seconds(collective, cluster, middle), fastest)
        low, high = (middle, high) if after == fastest else (low, (middle, after))


def log_chart(
    title: str, lines: Mapping[str, Sequence[tuple[float, float]]], marks: Sequence[tuple[float, str]] = ()
) -> str:
    """Return a chart of seconds against bytes on logarithmic axes, with marks at the given sizes."""
    xs = [x for points in lines.values() for x, _ in points]
    ys = [y for points in lines.values() for _, y in points if y > 0]
    low_x, high_x, low_y, high_y = min(xs), max(xs), min(ys), max(ys)
    span_x, span_y = math.log(high_x / low_x) or 1.0, math.log(high_y / low_y) or 1.0

    def at_x(x: float) -> float:
        return _LEFT + math.log(x / low_x) / span_x * (_WIDTH - _LEFT - _RIGHT)

    def at_y(y: float) -> float:
        return _HEIGHT - _BOTTOM - math.log(max(y, low_y) / low_y) / span_y * (_HEIGHT - _TOP - _BOTTOM)

    body = [
        _grid_y(10.0**power, at_y) for power in range(math.ceil(math.log10(low_y)), math.floor(math.log10(high_y)) + 1)
    ]
    power = math.ceil(math.log2(low_x))
    while 2**power <= high_x:
        x = at_x(2**power)
        body.append(pictures.line(x, _TOP, x, _HEIGHT - _BOTTOM, "grid"))
        body.append(pictures.text(x, _HEIGHT - _BOTTOM + 16, size_text(2**power), "middle"))
        power += 3
    for place, (x_bytes, described) in enumerate(marks):
        x, top = at_x(x_bytes), _TOP + 12 + 14 * place
        body.append(
            f"<line class='grid' stroke-dasharray='4 3' x1='{x:.1f}' x2='{x:.1f}' y1='{top}' y2='{_HEIGHT - _BOTTOM}'/>"
        )
        is_left = x < (_LEFT + _WIDTH - _RIGHT) / 2
        body.append(pictures.text(x + (4 if is_left else -4), top, described, "start" if is_left else "end"))
    ends = sorted((at_y(points[-1][1]), name) for name, points in lines.items())
    label_y = -math.inf
    for y, name in ends:
        label_y = max(y, label_y + 14)
        body.append(pictures.text(_WIDTH - _RIGHT + 8, label_y + 4, name, kind=f" style='fill:{_color(lines, name)}'"))
    for name, points in lines.items():
        path = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in points)
        body.append(
            f"<polyline points='{path}' fill='none' stroke='{_color(lines, name)}' stroke-width='1.8'>"
            f"<title>{escape(name)}</title></polyline>"
        )
    return pictures.svg(max(_WIDTH, pictures.title_width(title)), _HEIGHT, title, body)


def _color(lines: Mapping[str, object], name: str) -> str:
    return _COLORS[list(lines).index(name) % len(_COLORS)]


def _grid_y(seconds: float, at_y: Any) -> str:
    y = at_y(seconds)
    label = pictures.text(_LEFT - 8, y + 4, duration_text(seconds), "end")
    return f"{pictures.line(_LEFT, y, _WIDTH - _RIGHT, y, 'grid')}\n{label}"
