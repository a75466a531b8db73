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
    "--density", type=click.FloatRange(min=0, max=1, max_open=True), help="Share of the features that one rank holds."
)
@click.option("--alpha", type=click.FloatRange(min=0), help="Exponent of the power law of their frequencies.")
@click.option(
    "--densities",
    metavar="LIST",
    help="Instead of --density and --alpha: densities of the unions of ranks' sets, such as 1:0.21,8:0.67,64:1.",
)
@click.option("--row-bytes", type=click.IntRange(min=1), default=4, show_default=True, help="Bytes of a row's values.")
@click.option(
    "--min-packet", metavar="SIZE", help="The minimum efficient packet, such as 5MB; by default that of --packets."
)
@click.option(
    "--packets", metavar="FILE", help="Costs of packets: a file of `ripieno packets --json`, or memory, or network."
)
@click.option("--rate", default="10gbit", show_default=True, help="Rate of the links, if only --min-packet is given.")
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

    By packet: from the top, each layer gets the largest degree whose packets are efficient. Cheapest: the factorization
    with the least predicted time, by the costs of packets. Direct and binary stand beside them. Ranks are
    assumed to want as many rows as they contribute.

    \b
    Examples:
      ripieno explain sparse --ranks 64 --features 60e6 --density 0.21 --alpha 1.1 --min-packet 5MB
      ripieno explain sparse --ranks 8 --features 1e6 --densities 1:0.1,2:0.18,8:0.45 --packets packets.json
    """
    from ripieno.bench.cases import size_of
    from ripieno.sparse import design

    data = design.Data(ranks, _features(features), _curve(_features(features), density, alpha, densities), row_bytes)
    least = None if min_packet is None else float(size_of(min_packet))
    found = design.explain(data, _packets(packets, least, rate), least_packet_bytes=least, degrees=degrees)
    if as_json:
        click.echo(json.dumps(found.as_json(), indent=2))
    else:
        click.echo(str(found))


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


def _packets(name: str | None, least: float | None, rate: str) -> Any:
    from ripieno._native import PacketCurve
    from ripieno.lab.blueprint import bits_per_s
    from ripieno.sparse import packets

    match name:
        case None if least is not None:
            return packets.of_rate(bits_per_s("--rate", rate), least)
        case None | "network":
            return PacketCurve.network()
        case "memory":
            return PacketCurve.memory()
    return packets.read(Path(name))
