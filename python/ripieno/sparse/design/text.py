"""Formatting of explanations as text tables, for terminals and notebooks."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console
from rich.table import Table

from ripieno.sparse.design.explain import DataDistribution, DesignComparison, levels
from ripieno.sparse.design.live import LiveExplanation
from ripieno.units import bytes_text, duration_text

WIDTH = 150
LEFT_ALIGNED = ("", "degrees")


def of(explanation: DesignComparison) -> str:
    """Return the data, the packets, the chosen designs by layer, and a comparison of all designs."""
    target, data = _console(), explanation.data
    law = "" if data.out.alpha is None else f", alpha {data.out.alpha:g}, lambda {data.out.lambda_0:.4g}"
    rank_bytes = bytes_text(data.rows * data.row_bytes)
    target.print(
        f"{data.ranks} ranks, {data.features:,} features, density {data.out.density(1):.4g}{law}: "
        f"{data.rows:,.0f} rows of {data.row_bytes} bytes a rank, {rank_bytes}"
    )
    target.print(_packets(explanation))
    for name in [name for name in ("by packet", "cheapest", "given") if name in explanation.designs]:
        target.print(f"{name}: {explanation.designs[name]['degrees']}")
        target.print(_layers(explanation.designs[name], data))
    target.print("a rank in a reduction, down and up")
    target.print(_comparison_table(explanation))
    return _text(target)


def of_live(live: LiveExplanation) -> str:
    """Return measured and predicted values by layer, and the predicted times of other degrees."""
    target, data, explanation = _console(), live.explanation.data, live.explanation
    design = explanation.designs["given"]
    target.print(
        f"{design['degrees']}: {data.ranks} ranks, {data.features:,} indices, rows of {data.row_bytes} bytes\n"
        f"{_law('out-indices', data.out, live.deviation['down'])}\n"
        f"{_law('in-indices', data.requested or data.out, live.deviation['up'])}"
    )
    target.print(_packets(explanation))
    headings = ("layer", "degree", "out rows a rank", "Eq. 5", "in rows a rank", "Eq. 5", "down in all")
    table = _table((*headings, "packet", "down and up"))
    for index, (name, level) in enumerate(_named(design)):
        down, up = live.rows["down"][index], live.rows["up"][index]
        table.add_row(
            name,
            _degree(level),
            f"{down:,.0f}",
            f"{level['down']['rows']:,.0f}",
            f"{up:,.0f}",
            f"{level['up']['rows']:,.0f}",
            bytes_text(down * level["holder_count"] * data.row_bytes),
            *_cost(level),
        )
    target.print(table)
    predicted = duration_text(design["seconds"])
    measured = (
        "not measured where ranks have replicas" if live.seconds is None else f"{duration_text(live.seconds)} measured"
    )
    target.print(f"a reduction: {measured}, {predicted} predicted; others, predicted:")
    target.print(_comparison_table(explanation))
    return _text(target)


def _law(name: str, curve: Any, deviation: float | None) -> str:
    text = f"{name} of density {curve.density(1):.3g}"
    if curve.alpha is None:
        return text
    return f"{text} like a power law of exponent {curve.alpha:.2f} (within {deviation:.1%})"


def _packets(explanation: DesignComparison) -> str:
    min_bytes, best = explanation.min_packet_bytes, explanation.packets.best_throughput
    return f"packets: efficient from {bytes_text(min_bytes)}, at best {bytes_text(best)}/s"


def _layers(design: dict[str, Any], data: DataDistribution) -> Table:
    """Return a table of the layers on the way down. The way up has the same sizes."""
    table = _table(("layer", "degree", "density", "rows a rank", "a rank", "in all", "packet", "down and up"))
    for name, level in _named(design):
        level_bytes = level["down"]["rows"] * data.row_bytes
        table.add_row(
            name,
            _degree(level),
            f"{level['down']['density']:.3f}",
            f"{level['down']['rows']:,.0f}",
            bytes_text(level_bytes),
            bytes_text(level_bytes * level["holder_count"]),
            *_cost(level),
        )
    return table


def _comparison_table(explanation: DesignComparison) -> Table:
    table = _table(("", "degrees", "packets", "sent", "predicted", "of the cheapest"))
    lowest_s = explanation.designs["cheapest"]["seconds"]
    for name, design in explanation.designs.items():
        table.add_row(
            name,
            design["degrees"],
            str(2 * sum(level["packet_count"] for level in levels(design))),
            bytes_text(design["sent_bytes"]),
            duration_text(design["seconds"]),
            f"{design['seconds'] / lowest_s:.2f}" if lowest_s else "",
        )
    return table


def _named(design: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    names = [*(["fold"] if design["fold"] else []), *(str(n + 1) for n in range(len(design["layers"]))), "bottom"]
    return list(zip(names, levels(design), strict=True))


def _degree(level: dict[str, Any]) -> str:
    return str(level["degree"]) if level["packet_count"] else ""


def _cost(level: dict[str, Any]) -> tuple[str, str]:
    """Return the bytes of a packet, and its seconds."""
    if not level["packet_count"]:
        return "", ""
    return bytes_text(level["down"]["packet_bytes"]), duration_text(level["down"]["seconds"] + level["up"]["seconds"])


def _table(headings: tuple[str, ...]) -> Table:
    table = Table()
    for heading in headings:
        table.add_column(heading, justify="left" if heading in LEFT_ALIGNED else "right")
    return table


def _console() -> Console:
    return Console(file=io.StringIO(), width=WIDTH, highlight=False)


def _text(target: Console) -> str:
    assert isinstance(target.file, io.StringIO), "tables are written to memory"
    return target.file.getvalue().rstrip("\n")
