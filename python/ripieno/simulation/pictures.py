"""Provide pictures of plans and of simulated time as self-contained SVG, or as a page around it.

Plan: ranks from top to bottom, rounds from left to right, an arrow for each message. Timeline: one row per receiver,
with a bar for each message from the sender's begin to the receiver's end. Racks: a tree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import ripieno._native as _native
from ripieno.errors import InputError
from ripieno.files.results import write_text
from ripieno.simulation.cluster import Cluster
from ripieno.simulation.simulate import Simulation, TransferTime
from ripieno.units import bytes_text, duration_text, size_text, unit_of

KINDS = {"memory": "in a node", "network_link": "in a rack", "uplink": "between racks"}
SUFFIXES = (".svg", ".html")
#: Limits of arrows and rows: more are not distinguishable.
RANK_COUNT_MAX, MESSAGE_COUNT_MAX = 64, 20_000
ROW_COUNT_MAX = 64

_LEFT, _TOP, _RIGHT, _BOTTOM = 64, 64, 16, 48
_ROW, _ROUND, _WIDTH = 18, 96, 960
#: Position of rack names, and indentation of hosts.
_RACK_X, _STEP = 64, 24
_STYLE = """
  svg { --paper: #fcfcfb; --ink: #1a1c1e; --muted: #6b7075; --grid: #dcdfe2;
        --memory: #8a6fb8; --network_link: #00796b; --uplink: #d9622b; background: var(--paper); }
  @media (prefers-color-scheme: dark) {
    svg { --paper: #17191b; --ink: #e8eaec; --muted: #9aa0a6; --grid: #34383c;
          --memory: #b49be0; --network_link: #4db6a4; --uplink: #f09060; }
  }
  text { font: 11px system-ui, sans-serif; fill: var(--muted); }
  .title { font-size: 14px; fill: var(--ink); }
  .grid { stroke: var(--grid); stroke-width: 1; }
  .memory { --of: var(--memory); } .network_link { --of: var(--network_link); } .uplink { --of: var(--uplink); }
  line.memory, line.network_link, line.uplink { stroke: var(--of); stroke-width: 1.4; }
  circle, rect.memory, rect.network_link, rect.uplink, path { fill: var(--of); }
"""


def check_picture(path: Path) -> None:
    """Raise InputError unless the file name is valid for a picture."""
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: unknown kind of picture, expected one of {', '.join(SUFFIXES)}")


def write(picture: str, path: Path) -> None:
    """Write an SVG picture atomically, in the file format of the suffix of `path`."""
    write_text(path, picture if path.suffix == ".svg" else page("Ripieno", picture))


def page(title: str, body: str) -> str:
    """Return a self-contained page around pictures and the rest of `body`."""
    head = f"<!doctype html>\n<html lang='en'><meta charset='utf-8'><title>{escape(title)}</title>"
    style = "<style>html { color-scheme: light dark; } body { margin: 1rem; font: 14px system-ui, sans-serif; }"
    table = "td, th { text-align: right; padding: 0 1em 0 0; font-weight: normal; white-space: nowrap; }</style>"
    return f"{head}{style} {table}\n{body}</html>\n"


def plan(collective: str, algorithm: str | None, cluster: Cluster, nbytes: int, root: int = 0) -> str:
    """Draw the messages of a collective in rounds. In a round a rank sends and receives at most one message.

    Raises
    ------
    InputError
        If there are too many ranks to draw.
    """
    check_rank_count(cluster.ranks)
    found = _native.simulate(cluster.rounds(), collective, algorithm, nbytes, root, transfers=True)
    title = f"{collective.replace('_', '-')} of {size_text(nbytes)} by {found['algorithm']}, {cluster.ranks} ranks"
    return rounds(title, cluster.ranks, [TransferTime(*each) for each in found["transfers"]])


def check_rank_count(ranks: int) -> None:
    """Raise InputError if there are too many ranks to draw their plans."""
    if ranks > RANK_COUNT_MAX:
        raise InputError(f"ranks={ranks}: expected at most {RANK_COUNT_MAX} in a picture of a plan")


def rounds(title: str, ranks: int, transfers: Sequence[TransferTime]) -> str:
    """Draw messages with rounds as their times."""
    round_count = max((round(each.end_s) for each in transfers), default=0)
    width, height = _LEFT + round_count * _ROUND + _RIGHT, _TOP + ranks * _ROW + _BOTTOM
    body = [_rank_rows(range(ranks), ranks, width)]
    for number in range(round_count):
        middle = _LEFT + (number + 0.5) * _ROUND
        body.append(text(middle, height - _BOTTOM + 16, f"round {number + 1}", "middle"))
    body += [_arrow(each) for each in transfers]
    return svg(max(width, title_width(title)), height, title, body, {each.kind for each in transfers})


def all_plans(ranks: int, nbytes: int) -> dict[str, str]:
    """Return the plans of all algorithms for this number of ranks, in two-level algorithms two ranks per node.

    The names are file names such as "allreduce-ring".
    """
    flat, paired = Cluster(nodes=ranks), Cluster(nodes=ranks // 2, ranks_per_node=2)
    drawn = {}
    for collective in _native.COLLECTIVES:
        for algorithm in _native.algorithms(collective):
            cluster = paired if algorithm == "two-level" else flat
            drawn[f"{collective}-{algorithm}"] = plan(collective, algorithm, cluster, nbytes)
    return drawn


def timeline(simulation: Simulation) -> str:
    """Return a timeline of the messages of a simulation that recorded its transfers."""
    assert simulation.transfers is not None, "a timeline is drawn of messages"
    shown = _evenly(simulation.cluster.ranks, ROW_COUNT_MAX)
    rows = {rank: row for row, rank in enumerate(shown)}
    transfers = [each for each in simulation.transfers if each.receiver in rows]
    end_s = max((each.end_s for each in simulation.transfers), default=0.0) or 1.0
    height = _TOP + len(shown) * _ROW + _BOTTOM
    scale = (_WIDTH - _LEFT - _RIGHT) / end_s
    body = [_rank_rows(shown, simulation.cluster.ranks, _WIDTH), _seconds(end_s, scale, height)]
    for each in _evenly_of(transfers, MESSAGE_COUNT_MAX):
        x, length = _LEFT + each.start_s * scale, max((each.end_s - each.start_s) * scale, 0.5)
        text = (
            f"{each.sender} to {each.receiver}: {bytes_text(each.size_bytes)}, "
            f"{_duration(each.start_s)} to {_duration(each.end_s)}, {KINDS[each.kind]}"
        )
        y = _TOP + rows[each.receiver] * _ROW + 4
        body.append(
            f"<rect class='{each.kind}' x='{x:.2f}' y='{y}' width='{length:.2f}' height='{_ROW - 8}' rx='1'"
            f" fill-opacity='0.75'><title>{escape(text)}</title></rect>"
        )
    took = (
        "it never ends"
        if simulation.seconds is None
        else duration_text(simulation.seconds)
        if simulation.seconds
        else "0 s"
    )
    call = f"{simulation.collective} of {size_text(simulation.nbytes)}"
    title = f"{call} by {simulation.algorithm}, {simulation.cluster}: {took}"
    if len(shown) < simulation.cluster.ranks:
        title += f" ({len(shown)} ranks shown)"
    return svg(max(_WIDTH, title_width(title)), height, title, body, {each.kind for each in transfers})


def loads(simulation: Simulation) -> str:
    """Return the busy share of each port and uplink in a simulation that recorded its transfers.

    With too many ranks, an evenly spaced selection is shown.
    """
    assert simulation.transfers is not None, "loads are drawn of messages"
    cluster, carried = simulation.cluster, _carried(simulation)
    seconds = simulation.seconds or max((each.end_s for each in simulation.transfers), default=0.0) or 1.0
    headers = 1 + cluster.header_bytes / cluster.packet_bytes if cluster.packet_bytes else 1.0
    shown = _evenly(cluster.ranks, ROW_COUNT_MAX)
    rows = [
        ("network_link", f"rank {rank}", [carried["port", direction, rank] for direction in (0, 1)]) for rank in shown
    ]
    rates = {"network_link": cluster.rate_bits_per_s}
    if cluster.uplink_bits_per_s is not None:
        rates["uplink"] = cluster.uplink_bits_per_s
        numbers = sorted(set(cluster.rack_numbers))
        rows += [
            ("uplink", f"rack {rack}", [carried["uplink", direction, rack] for direction in (0, 1)]) for rack in numbers
        ]
    scale = (_WIDTH - _LEFT - _RIGHT) / 2 - 8
    body = [text(_LEFT + direction * (scale + 16), _TOP - 4, ("out", "in")[direction]) for direction in (0, 1)]
    for row, (kind, name, directions) in enumerate(rows):
        y = _TOP + row * _ROW
        body.append(text(_LEFT - 8, y + 13, name, "end"))
        for direction, size_bytes in enumerate(directions):
            share = min(1.0, 8 * size_bytes * headers / rates[kind] / seconds)
            x = _LEFT + direction * (scale + 16)
            description = escape(
                f"{name} {('out', 'in')[direction]}: {bytes_text(size_bytes)}, {share:.0%} of the time"
            )
            body.append(line(x, y + 14, x + scale, y + 14, "grid"))
            length = max(share * scale, 0.5)
            body.append(
                f"<rect class='{kind}' x='{x:.1f}' y='{y + 4}' width='{length:.1f}' height='10' rx='1'>"
                f"<title>{description}</title></rect>"
            )
            body.append(text(x + scale, y + 12, f"{share:.0%}", "end"))
    call = f"{simulation.collective} of {size_text(simulation.nbytes)}"
    title = f"{call} by {simulation.algorithm}, {cluster}: how busy wires are"
    height = _TOP + len(rows) * _ROW + _BOTTOM / 2
    return svg(max(_WIDTH, title_width(title)), height, title, body, set(rates))


def _carried(simulation: Simulation) -> Counter[tuple[str, int, int]]:
    """Return the bytes by port and uplink: ports of ranks and uplinks of racks; direction 0 is out, 1 is in."""
    carried: Counter[tuple[str, int, int]] = Counter()
    nodes, racks = simulation.cluster.nodes_by_rank, simulation.cluster.rack_numbers
    for each in simulation.transfers or ():
        if each.kind != "memory":
            for direction, rank in enumerate((each.sender, each.receiver)):
                carried["port", direction, rank] += each.size_bytes
                if each.kind == "uplink":
                    carried["uplink", direction, racks[nodes[rank]]] += each.size_bytes
    return carried


def racks(title: str, by_rack: Mapping[str, Sequence[tuple[str, str]]]) -> str:
    """Draw racks and hosts: a line from the core switch to each rack, and from a rack to each of its hosts.

    Parameters
    ----------
    title
        Title above the picture.
    by_rack
        For each rack the names of its hosts, each with a description.
    """
    body: list[str] = []
    y = float(_TOP)
    trunk = len(body)
    last_rack_y = y
    for rack, hosts in by_rack.items():
        last_rack_y = y
        body.append(line(_RACK_X - _STEP, y, _RACK_X - 8, y, "uplink"))
        body.append(text(_RACK_X, y + 4, rack, kind=" class='title'"))
        rack_y = y
        for name, described in hosts:
            y += _ROW
            body.append(line(_RACK_X + _STEP / 2, y, _RACK_X + _STEP, y, "network_link"))
            body.append(text(_RACK_X + _STEP + 8, y + 4, f"{name}: {described}"))
        body.append(line(_RACK_X + _STEP / 2, rack_y + 8, _RACK_X + _STEP / 2, y, "network_link"))
        y += _ROW + 8
    body.insert(trunk, line(_RACK_X - _STEP, _TOP, _RACK_X - _STEP, last_rack_y, "uplink"))
    return svg(max(_WIDTH / 2, title_width(title)), y + _BOTTOM, title, body, {"network_link", "uplink"})


def line(x: float, y: float, to_x: float, to_y: float, kind: str) -> str:
    """Return a line of a kind: a kind of link, or "grid"."""
    return f"<line class='{kind}' x1='{x:.1f}' y1='{y:.1f}' x2='{to_x:.1f}' y2='{to_y:.1f}'/>"


def _duration(seconds: float) -> str:
    return duration_text(seconds) if seconds else "0 s"


def _evenly(count: int, max_count: int) -> list[int]:
    """Return numbers below `count`, spaced as evenly as possible, including the first and the last."""
    if count <= max_count:
        return list(range(count))
    return [index * (count - 1) // (max_count - 1) for index in range(max_count)]


def _evenly_of(transfers: Sequence[TransferTime], max_count: int) -> list[TransferTime]:
    return [transfers[index] for index in _evenly(len(transfers), max_count)]


def _rank_rows(ranks: Sequence[int], count: int, width: float) -> str:
    lines = []
    for row, rank in enumerate(ranks):
        y = _TOP + (row + 0.5) * _ROW
        lines.append(f"<line class='grid' x1='{_LEFT}' x2='{width - _RIGHT}' y1='{y}' y2='{y}'/>")
        name = f"rank {rank}" if count <= RANK_COUNT_MAX else f"{rank:,}"
        lines.append(text(_LEFT - 8, y + 4, name, "end"))
    return "\n".join(lines)


def _seconds(end_s: float, scale: float, height: float) -> str:
    unit, factor = unit_of(end_s)
    step = _round_step(end_s / factor / 8)
    marks = []
    number = 0
    while number * step * factor <= end_s * 1.0001:
        x = _LEFT + number * step * factor * scale
        marks.append(f"<line class='grid' x1='{x:.1f}' x2='{x:.1f}' y1='{_TOP}' y2='{height - _BOTTOM}'/>")
        marks.append(text(x, height - _BOTTOM + 16, f"{number * step:g} {unit}", "middle"))
        number += 1
    return "\n".join(marks)


def _round_step(minimum: float) -> float:
    """Return the smallest of 1, 2, 5, 10 … that is not less than `minimum`."""
    power = 10.0
    while power > minimum:
        power /= 10
    while power * 10 <= minimum:
        power *= 10
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= minimum)


def _arrow(each: TransferTime) -> str:
    x1, x2 = _LEFT + each.start_s * _ROUND + 6, _LEFT + each.end_s * _ROUND - 6
    y1, y2 = (_TOP + (rank + 0.5) * _ROW for rank in (each.sender, each.receiver))
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    along, across = ((x2 - x1) / length, (y2 - y1) / length), (-(y2 - y1) / length, (x2 - x1) / length)
    back = (x2 - 7 * along[0], y2 - 7 * along[1])
    corners = [(back[0] + side * 3 * across[0], back[1] + side * 3 * across[1]) for side in (1, -1)]
    head = f"M{x2:.1f},{y2:.1f} L{corners[0][0]:.1f},{corners[0][1]:.1f} L{corners[1][0]:.1f},{corners[1][1]:.1f} Z"
    text = escape(f"{each.sender} to {each.receiver}: {bytes_text(each.size_bytes)}")
    return (
        f"<g class='{each.kind}'><title>{text}</title>"
        f"<line class='{each.kind}' x1='{x1:.1f}' y1='{y1:.1f}' x2='{back[0]:.1f}' y2='{back[1]:.1f}'/>"
        f"<circle cx='{x1:.1f}' cy='{y1:.1f}' r='2'/><path d='{head}'/></g>"
    )


def text(x: float, y: float, content: str, anchor: str = "start", kind: str = "") -> str:
    """Return a text element with optional attributes."""
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'{kind}>{escape(content)}</text>"


def title_width(title: str) -> float:
    """Return the minimum width of a picture with this title."""
    return _LEFT + 7.2 * len(title)


def svg(
    width: float, height: float, title: str, body: Sequence[str], kinds: set[str] | frozenset[str] = frozenset()
) -> str:
    """Return a picture of this size with a title, and a legend of kinds of links."""
    legend = []
    x = float(_LEFT)
    for kind in [kind for kind in KINDS if kind in kinds]:
        legend.append(f"<rect class='{kind}' x='{x}' y='38' width='10' height='10'/>")
        legend.append(text(x + 15, 47, KINDS[kind]))
        x += 110
    head = text(_LEFT, 24, title, kind=" class='title'")
    size = f"viewBox='0 0 {width:.0f} {height:.0f}' width='{width:.0f}' height='{height:.0f}'"
    parts = [f"<svg xmlns='http://www.w3.org/2000/svg' {size}>", f"<style>{_STYLE}</style>", head, *legend, *body]
    return "\n".join([*parts, "</svg>", ""])
