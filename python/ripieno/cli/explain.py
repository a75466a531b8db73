"""`ripieno explain`: what would run, and what it is predicted to cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click


@click.group("explain", short_help="Show what would run, and what it is predicted to cost.")
def explain_command() -> None:
    """Show what would run, and what it is predicted to cost."""


@explain_command.command("sparse")
@click.option("--ranks", type=click.IntRange(min=1), required=True, metavar="COUNT")
@click.option("--features", required=True, metavar="COUNT", help="Different indices that there may be, such as 60e6.")
@click.option(
    "--density", type=click.FloatRange(min=0, max=1, max_open=True), help="Part of the features that one rank holds."
)
@click.option("--alpha", type=click.FloatRange(min=0), help="Exponent of the power law of their frequencies.")
@click.option(
    "--densities",
    metavar="LIST",
    help="Instead of --density and --alpha: of unions of so many ranks' sets, such as 1:0.21,8:0.67,64:1.",
)
@click.option("--row-bytes", type=click.IntRange(min=1), default=4, show_default=True, help="Of a row's values.")
@click.option("--min-packet", metavar="SIZE", help="The minimum efficient packet, such as 5MB; else as --packets says.")
@click.option(
    "--packets", metavar="FILE", help="What packets cost, as `ripieno packets --json` wrote it, or memory, or network."
)
@click.option("--rate", default="10gbit", show_default=True, help="Of the links, if only --min-packet says something.")
@click.option("--degrees", metavar="DEGREES", help="A network to price beside the others, such as 8x4x2.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def sparse_command(
    ranks: int,
    features: str,
    density: float | None,
    alpha: float | None,
    densities: str | None,
    row_bytes: int,
    min_packet: str | None,
    packets: str | None,
    rate: str,
    degrees: str | None,
    as_json: bool,
) -> None:
    """Design the butterfly of a sparse reduction, and print what it carries layer by layer.

    By packet: from the top, each layer gets the largest degree whose packets are efficient. Cheapest: of every
    factorization the one with the least predicted time, by what packets cost. Direct and binary stand beside them.
    Ranks are taken to want as many rows as they contribute.

    \b
    Examples:
      ripieno explain sparse --ranks 64 --features 60e6 --density 0.21 --alpha 1.1 --min-packet 5MB
      ripieno explain sparse --ranks 8 --features 1e6 --densities 1:0.1,2:0.18,8:0.45 --packets packets.json
    """
    from ripieno import design

    data = design.Data(ranks, _features(features), _curve(_features(features), density, alpha, densities), row_bytes)
    least = None if min_packet is None else _size(min_packet)
    found = design.explain(data, _packets(packets, least, rate), least_packet_bytes=least, degrees=degrees)
    if as_json:
        click.echo(json.dumps(found.as_json(), indent=2))
    else:
        _show(found)


def _features(text: str) -> int:
    try:
        number = int(float(text))
    except (ValueError, OverflowError):
        number = 0
    if number < 1:
        raise click.BadParameter(f"{text!r}: expected a positive number, such as 60e6", param_hint="--features")
    return number


def _curve(features: int, density: float | None, alpha: float | None, densities: str | None) -> Any:
    from ripieno._native import DensityCurve

    if densities is None:
        if density is None or alpha is None:
            raise click.UsageError("expected --density and --alpha of a power law, or --densities as counted")
        return DensityCurve.power_law(features, alpha, density)
    if density is not None or alpha is not None:
        raise click.UsageError("--densities stands for --density and --alpha: expected either")
    try:
        points = [tuple(float(part) for part in point.split(":")) for point in densities.split(",")]
        return DensityCurve.through([(sets, value) for sets, value in points])
    except ValueError as error:
        raise click.BadParameter(f"{error}; expected SETS:DENSITY, …", param_hint="--densities") from error


def _size(text: str) -> float:
    from ripieno.bench.cases import sizes_of

    return float(sizes_of(text)[0])


def _packets(name: str | None, least: float | None, rate: str) -> Any:
    from ripieno import packets
    from ripieno._native import PacketCurve
    from ripieno.lab.blueprint import bits_per_s

    match name:
        case None if least is not None:
            return packets.of_rate(bits_per_s("--rate", rate), least)
        case None | "network":
            return PacketCurve.network()
        case "memory":
            return PacketCurve.memory()
    return packets.read(Path(name))


def _show(found: Any) -> None:
    from rich.table import Table

    from ripieno.bench.figures import bytes_text, duration_text
    from ripieno.bench.table import console

    target, data = console(), found.data
    law = "" if data.curve.alpha is None else f", alpha {data.curve.alpha:g}, lambda {data.curve.lambda_0:.4g}"
    density, row_bytes = data.curve.density(1), data.row_bytes
    target.print(
        f"{data.ranks} ranks, {data.features:,} features, density {density:.4g}{law}: "
        f"{data.rows:,.0f} rows of {row_bytes} bytes a rank, {bytes_text(data.rows * row_bytes)}"
    )
    least, best = bytes_text(found.least_packet_bytes), bytes_text(found.packets.best_throughput)
    target.print(f"packets: efficient from {least}, at best {best}/s")
    for name in [name for name in ("by packet", "cheapest", "given") if name in found.designs]:
        target.print(f"[italic]{name}: {found.designs[name]['degrees']}[/]")
        target.print(_layers(found.designs[name], data))
    table = Table()
    for heading in ("", "degrees", "packets", "sent", "predicted", "of the cheapest"):
        table.add_column(heading, justify="left" if heading in ("", "degrees") else "right")
    least_s = found.designs["cheapest"]["seconds"]
    for name, design in found.designs.items():
        count = 2 * sum(layer["packet_count"] for layer in _steps(design))
        table.add_row(
            name,
            design["degrees"],
            str(count),
            bytes_text(design["sent_bytes"]),
            duration_text(design["seconds"]),
            f"{design['seconds'] / least_s:.2f}" if least_s else "",
        )
    target.print("[italic]a rank in a reduction, down and up[/]")
    target.print(table)


def _steps(design: dict[str, Any]) -> list[dict[str, Any]]:
    return [*([design["fold"]] if design["fold"] else []), *design["layers"]]


def _layers(design: dict[str, Any], data: Any) -> Any:
    """Layer by layer on the way down; the way up carries the same."""
    from rich.table import Table

    from ripieno.bench.figures import bytes_text, duration_text

    table = Table()
    for heading in ("layer", "degree", "density", "rows a rank", "a rank", "in all", "packet", "down and up"):
        table.add_column(heading, justify="right")
    steps = [("fold", design["fold"])] if design["fold"] else []
    steps += [(str(number), layer) for number, layer in enumerate(design["layers"], start=1)]
    for name, layer in [*steps, ("bottom", design["bottom"])]:
        down, is_bottom = layer["down"], layer is design["bottom"]
        held = down["rows"] * data.row_bytes
        table.add_row(
            name,
            "" if is_bottom else str(layer["degree"]),
            f"{down['density']:.3f}",
            f"{down['rows']:,.0f}",
            bytes_text(held),
            bytes_text(held * data.ranks),
            "" if is_bottom else bytes_text(down["packet_bytes"]),
            "" if is_bottom else duration_text(down["seconds"] + layer["up"]["seconds"]),
        )
    return table
