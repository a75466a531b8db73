"""Provide pictures of a dynamic broadcast as SVG: sender, receiver and time of each block, and the rate of each host.

Each rank has a row with a bar for each block, in the color of the block's sender. Blocks that arrive at the same time
are stacked. The receive rate, relative to the highest, is below the bars. The color of a rank is next to its
name. A matrix next to the rows has a field per sender and receiver: darker means more bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from html import escape

from ripieno.simulation.distribution import Distribution, RankEnd, SimulatedFetch
from ripieno.units import bytes_text, duration_text, size_text, unit_of

#: Limits of rows and bars: more are not distinguishable.
ROW_COUNT_MAX, FETCH_COUNT_MAX = 64, 40_000

_LEFT, _TOP, _BOTTOM, _GAP = 64, 48, 40, 48
_ROW, _BARS, _WIDTH, _FIELD = 32, 20, 720, 8
_STEPS = 180
_STYLE = """
  svg { --paper: #fcfcfb; --ink: #1a1c1e; --muted: #6b7075; --grid: #dcdfe2; --rate: #9aa6b2; --lost: #c0392b;
        background: var(--paper); }
  @media (prefers-color-scheme: dark) {
    svg { --paper: #17191b; --ink: #e8eaec; --muted: #9aa0a6; --grid: #34383c; --rate: #5c6873; --lost: #ff7b6b; }
  }
  text { font: 11px system-ui, sans-serif; fill: var(--muted); }
  .title { font-size: 14px; fill: var(--ink); }
  .grid { stroke: var(--grid); stroke-width: 1; }
  .rate { fill: var(--rate); fill-opacity: 0.6; }
  .end { stroke: var(--ink); stroke-width: 1.5; }
  .lost { stroke: var(--lost); stroke-width: 2; }
  .field { fill: var(--ink); }
"""


def swarm(distribution: Distribution) -> str:
    """Return a picture of recorded fetches: fetches by time, and bytes between all pairs of ranks."""
    assert distribution.fetches is not None, "a picture is drawn of fetches"
    title = f"broadcast of {size_text(distribution.nbytes)} by {distribution.algorithm}, {distribution.cluster}"
    return draw(title, distribution.fetches, distribution.ends, distribution.seconds)


def draw(title: str, fetches: Sequence[SimulatedFetch], ends: Sequence[RankEnd], seconds: float) -> str:
    """Draw fetches by time, and bytes between all pairs of ranks; `ends` has all ranks, `seconds` is the last end."""
    count = len(ends)
    shown = (
        list(range(count))
        if count <= ROW_COUNT_MAX
        else [row * (count - 1) // (ROW_COUNT_MAX - 1) for row in range(ROW_COUNT_MAX)]
    )
    rows = {rank: row for row, rank in enumerate(shown)}
    by_receiver: defaultdict[int, list[SimulatedFetch]] = defaultdict(list)
    for fetch in fetches:
        by_receiver[fetch.receiver].append(fetch)
    ends_s = [fetch.end_s for fetch in fetches] + [seconds]
    end_s = max(ends_s) or 1.0
    scale = _WIDTH / end_s
    rates = {rank: _rates(by_receiver[rank], end_s) for rank in shown}
    highest = max((max(values) for values in rates.values()), default=0.0) or 1.0
    height = _TOP + len(shown) * _ROW + _BOTTOM
    body = [_seconds(end_s, scale, height)]
    every = max(1, len(fetches) // FETCH_COUNT_MAX)
    for rank in shown:
        top = _TOP + rows[rank] * _ROW
        body.append(_text(_LEFT - 14, top + 15, f"rank {rank}" if count <= ROW_COUNT_MAX else f"{rank:,}", "end"))
        body.append(f"<rect x='{_LEFT - 10}' y='{top + 7}' width='6' height='8' fill='{_color(rank)}'/>")
        lanes = _lanes(by_receiver[rank][::every])
        body += [
            _bar(fetch, top + 1 + lane * _BARS / len(lanes), _BARS / len(lanes), scale)
            for lane, lane_fetches in enumerate(lanes)
            for fetch in lane_fetches
        ]
        body.append(_area(rates[rank], top + _ROW - 1, highest))
        end = ends[rank]
        if end.at_s is not None and (end.kind != "done" or end.at_s > 0):
            x = _LEFT + end.at_s * scale
            kind = "end" if end.kind == "done" else "lost"
            text = escape(f"rank {rank}: {end.kind} at {duration_text(end.at_s) if end.at_s else '0 s'}")
            body.append(
                f"<line class='{kind}' x1='{x:.1f}' x2='{x:.1f}' y1='{top}' y2='{top + _ROW - 1}'>"
                f"<title>{text}</title></line>"
            )
    right = _LEFT + _WIDTH + _GAP
    body.append(_fields(fetches, shown, right))
    title = f"{title}: {duration_text(seconds) if seconds else '0 s'}; rows up to {bytes_text(highest)}/s"
    width = max(right + len(shown) * _FIELD + 16, right + 112, _LEFT + 7.2 * len(title))
    size = f"viewBox='0 0 {width:.0f} {height:.0f}' width='{width:.0f}' height='{height:.0f}'"
    head = _text(_LEFT, 22, title, "start", " class='title'")
    parts = [f"<svg xmlns='http://www.w3.org/2000/svg' {size}>", f"<style>{_STYLE}</style>", head, *body, "</svg>", ""]
    return "\n".join(parts)


def _lanes(fetches: Sequence[SimulatedFetch]) -> list[list[SimulatedFetch]]:
    """Return as few lists as possible without overlaps in a list: each fetch is appended to the first free one."""
    lanes: list[list[SimulatedFetch]] = []
    for fetch in sorted(fetches, key=lambda fetch: fetch.start_s):
        free = next((lane for lane in lanes if lane[-1].end_s <= fetch.start_s), None)
        if free is None:
            free = []
            lanes.append(free)
        free.append(fetch)
    return lanes


def _bar(fetch: SimulatedFetch, top: float, height: float, scale: float) -> str:
    x, width = _LEFT + fetch.start_s * scale, max((fetch.end_s - fetch.start_s) * scale, 0.5)
    text = (
        f"block {fetch.block} from rank {fetch.sender}: {bytes_text(fetch.size_bytes)}, "
        f"{duration_text(fetch.start_s) if fetch.start_s else '0 s'} to {duration_text(fetch.end_s)}"
    )
    return (
        f"<rect x='{x:.2f}' y='{top:.2f}' width='{width:.2f}' height='{height:.2f}' fill='{_color(fetch.sender)}'"
        f" fill-opacity='0.85'><title>{escape(text)}</title></rect>"
    )


def _color(rank: int) -> str:
    """Return the color of a rank. Neighboring ranks have distant colors, and the root has the color of text."""
    return "var(--ink)" if rank == 0 else f"hsl({rank * 137.508 % 360:.0f} 62% 52%)"


def _rates(fetches: Sequence[SimulatedFetch], end_s: float) -> list[float]:
    """Return the received bytes per second in each time step."""
    step_s = end_s / _STEPS
    values = [0.0] * _STEPS
    for fetch in fetches:
        length_s = max(fetch.end_s - fetch.start_s, 1e-12)
        first, last = int(fetch.start_s / step_s), min(int(fetch.end_s / step_s), _STEPS - 1)
        for step in range(first, last + 1):
            shared_s = min(fetch.end_s, (step + 1) * step_s) - max(fetch.start_s, step * step_s)
            values[step] += fetch.size_bytes * max(shared_s, 0.0) / length_s / step_s
    return values


def _area(values: Sequence[float], base: float, highest: float) -> str:
    tall = _ROW - _BARS - 3
    points = [f"{_LEFT},{base}"]
    for step, value in enumerate(values):
        y = base - tall * value / highest
        points += [
            f"{_LEFT + step * _WIDTH / _STEPS:.1f},{y:.1f}",
            f"{_LEFT + (step + 1) * _WIDTH / _STEPS:.1f},{y:.1f}",
        ]
    points.append(f"{_LEFT + _WIDTH},{base}")
    return f"<polygon class='rate' points='{' '.join(points)}'/>"


def _fields(fetches: Sequence[SimulatedFetch], shown: Sequence[int], left: float) -> str:
    """Return the matrix of bytes by sender (across) and receiver (down)."""
    sums: defaultdict[tuple[int, int], int] = defaultdict(int)
    for fetch in fetches:
        sums[fetch.sender, fetch.receiver] += fetch.size_bytes
    largest = max(sums.values(), default=0) or 1
    parts = [_text(left, _TOP - 8, f"from rank {shown[0]} … {shown[-1]}", "start")]
    for column, sender in enumerate(shown):
        for row, receiver in enumerate(shown):
            carried = sums.get((sender, receiver), 0)
            if carried:
                text = escape(f"{sender} to {receiver}: {bytes_text(carried)}")
                parts.append(
                    f"<rect class='field' x='{left + column * _FIELD:.1f}' y='{_TOP + row * _ROW}' width='{_FIELD - 1}'"
                    f" height='{_ROW - 2}' fill-opacity='{0.1 + 0.9 * carried / largest:.2f}'>"
                    f"<title>{text}</title></rect>"
                )
    return "\n".join(parts)


def _seconds(end_s: float, scale: float, height: float) -> str:
    unit, factor = unit_of(end_s)
    power = 1000.0
    while power * factor > end_s:
        power /= 10
    step = next(power * part for part in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0) if end_s / (power * part * factor) <= 10)
    marks = []
    for number in range(int(end_s / (step * factor)) + 1):
        x = _LEFT + number * step * factor * scale
        marks.append(f"<line class='grid' x1='{x:.1f}' x2='{x:.1f}' y1='{_TOP}' y2='{height - _BOTTOM}'/>")
        marks.append(_text(x, height - _BOTTOM + 16, f"{number * step:g} {unit}", "middle"))
    return "\n".join(marks)


def _text(x: float, y: float, text: str, anchor: str, kind: str = "") -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'{kind}>{escape(text)}</text>"
