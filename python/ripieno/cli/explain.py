"""The command `ripieno explain`: the algorithms that would run, with their predicted costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ripieno.cli.cluster_options import bytes_option, cluster_of, cluster_options, costs_of, root_option
from ripieno.cli.number_types import Count, LargeCount
from ripieno.cli.options import LocalPath, aliased_option, overwrite_option

#: Placeholder for the name of any collective.
COLLECTIVE = "COLLECTIVE"
#: Bytes of the vector in drawn plans.
PLANS_BYTES = 1 << 20


class CollectiveGroup(click.Group):
    """A command group with one command per collective of the catalogue, which the help lists as a single entry."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, and the placeholder for the collectives."""
        return [COLLECTIVE, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with this name, or the command of the collective with this name."""
        return super().get_command(ctx, cmd_name) or self._of(cmd_name)

    def _of(self, collective: str) -> click.Command | None:
        from ripieno._native import COLLECTIVES

        if collective.replace("_", "-") not in (COLLECTIVE, *COLLECTIVES):
            return None
        return _collective_command(collective)


@click.group("explain", cls=CollectiveGroup)
def explain_command() -> None:
    """Show which algorithms would run, and their predicted costs."""


def _collective_command(collective: str) -> click.Command:
    """Return the command that explains a collective."""

    @click.command(collective, short_help="Estimate the cost of every algorithm of a collective, such as allreduce.")
    @click.option("--ranks", type=Count(), metavar="COUNT", help="Number of ranks.")
    @click.option("--nodes", type=Count(), metavar="COUNT", help="Number of nodes. By default one per rank.")
    @cluster_options
    @bytes_option
    @root_option
    @click.option(
        "--order", metavar="ORDER", help="Order of ranks in chains and rings: racks (default), given or random:SEED."
    )
    @click.option("--algorithm", metavar="NAME", help="Algorithm to draw with --draw. Default: the fastest.")
    @click.option(
        "--draw",
        type=LocalPath(dir_okay=False),
        metavar="FILE",
        help="Draw the plan, with sender and receiver of each message in each round: .svg or .html.",
    )
    @click.option(
        "--curves",
        type=LocalPath(dir_okay=False),
        metavar="FILE",
        help="Draw the time against bytes, up to --bytes, and print the sizes at which the fastest algorithm changes.",
    )
    @click.option(
        "--segments",
        type=LocalPath(dir_okay=False),
        metavar="FILE",
        help="Search the best segment size for --algorithm, or for the fastest one, and draw the "
        "time against the size.",
    )
    @click.option(
        "--strategies",
        is_flag=True,
        help="For broadcast: compare strategies of broadcast variables, and explain the choice of auto.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
    @overwrite_option
    def command(
        nbytes: int,
        root: int,
        order: str | None,
        algorithm: str | None,
        draw: Path | None,
        curves: Path | None,
        segments: Path | None,
        strategies: bool,
        as_json: bool,
        overwrite: bool,
        **words: Any,
    ) -> None:
        """Estimate the cost of every algorithm of a collective, and print the fastest with the reason.

        Each is simulated on the modeled cluster. Its formula on equal links is printed with it: the time of messages
        (alpha), of bytes (beta) and of combining (gamma).

        \b
        Examples:
          ripieno explain allreduce --ranks 64 --bytes 64MiB --racks 4 --uplink 40gbit
          ripieno explain broadcast --ranks 8 --draw plan.svg --algorithm binomial
          ripieno explain allreduce --ranks 64 --bytes 64MiB --curves curves.svg
          ripieno explain broadcast --ranks 64 --bytes 64MiB --algorithm chain --segments segments.svg
          ripieno explain broadcast --ranks 8 --bytes 64MiB --rate 100mbit --strategies
          ripieno explain allreduce --costs costs.json --bytes 64KiB
        """
        from ripieno.files.results import check_results
        from ripieno.simulation import explain, explain_strategies, pictures
        from ripieno.simulation.curves import price_curves, segment_curve

        if collective == COLLECTIVE:
            raise click.UsageError(f"{COLLECTIVE}: expected the name of one, such as allreduce")
        if strategies and (collective != "broadcast" or order or algorithm or draw or curves or segments):
            raise click.UsageError("--strategies: expected broadcast without --order, --algorithm and pictures")
        if segments is not None and (order or draw or curves):
            raise click.UsageError("--segments: expected no --order, --draw and --curves")
        if curves is not None and (order or algorithm or draw or root):
            raise click.UsageError("--curves: expected no --order, --algorithm, --draw and --root")
        cluster = cluster_of(**words)
        if strategies:
            compared = explain_strategies(cluster, nbytes=nbytes, root=root)
            click.echo(json.dumps(compared.as_json(), indent=2) if as_json else str(compared))
            return
        for path in (draw, curves, segments):
            if path is not None:
                pictures.check_picture(path)
        check_results({"--draw": draw, "--curves": curves, "--segments": segments}, overwrite=overwrite)
        if curves is not None:
            found_curves = price_curves(collective, cluster, max_bytes=nbytes)
            pictures.write(found_curves.picture(), curves)
            click.echo(json.dumps(found_curves.as_json(), indent=2) if as_json else f"{found_curves}\n{curves}")
            return
        found = explain(collective, cluster, nbytes=nbytes, order=order, root=root, costs=costs_of(**words))
        if segments is not None:
            name = algorithm or found.fastest.algorithm
            by_segments = segment_curve(collective, cluster, nbytes=nbytes, algorithm=name, root=root)
            pictures.write(by_segments.picture(), segments)
            click.echo(json.dumps(by_segments.as_json(), indent=2) if as_json else f"{by_segments}\n{segments}")
            return
        if draw is not None:
            name = f"{algorithm or found.fastest.algorithm}{'' if order is None else f'@{order}'}"
            picture = pictures.plan(collective, name, cluster, nbytes, root)
            pictures.write(picture, draw)
        if as_json:
            click.echo(json.dumps(found.as_json(), indent=2))
            return
        click.echo(str(found))
        if draw is not None:
            click.echo(draw)

    return command


@explain_command.command("plans", short_help="Draw the plan of every algorithm.")
@click.option(
    "--ranks", type=click.IntRange(min=2, max=64), default=8, show_default=True, metavar="COUNT", help="An even number."
)
@click.option(
    "--draw", type=LocalPath(file_okay=False), required=True, metavar="FOLDER", help="Folder for the pictures."
)
@overwrite_option
def plans_command(ranks: int, draw: Path, overwrite: bool) -> None:
    """Draw the messages of each round, for every algorithm of every collective, one file for each.

    \b
    Examples:
      ripieno explain plans --draw plans
    """
    from ripieno.files import disk
    from ripieno.files.results import check_new_folder, new_folder
    from ripieno.simulation import pictures

    if ranks % 2:
        raise click.UsageError(f"--ranks {ranks}: expected an even number: nodes have two ranks")
    before = [path.name for path in draw.glob("*.svg")] if overwrite else []
    check_new_folder(draw, before)
    with new_folder(draw, before) as folder:
        for name, picture in pictures.all_plans(ranks, PLANS_BYTES).items():
            disk.write_text(folder / f"{name}.svg", picture)
    click.echo(draw)


@explain_command.command("sparse")
@click.option("--ranks", type=click.IntRange(1, 2**16), required=True, metavar="COUNT")
@click.option(
    "--features", type=LargeCount(), required=True, metavar="COUNT", help="Number of possible indices, such as 60e6."
)
@click.option(
    "--density", type=click.FloatRange(min=0, max=1, max_open=True), help="Share of the features that one rank holds."
)
@aliased_option(
    "--exponent",
    aliases=["--alpha"],
    type=click.FloatRange(0, 10),
    metavar="NUMBER",
    help="Exponent of the power law of their frequencies.",
)
@click.option(
    "--densities",
    metavar="LIST",
    help="Instead of --density and --exponent: densities of the unions of ranks' sets, such as 1:0.21,8:0.67,64:1.",
)
@click.option(
    "--row-bytes", type=click.IntRange(1, 2**40), default=4, show_default=True, help="Bytes of a row's values."
)
@click.option(
    "--min-packet", metavar="SIZE", help="The minimum efficient packet, such as 5MB. Default: the value from --packets."
)
@click.option(
    "--packets", metavar="FILE", help="Costs of packets: a file of `ripieno packets --json`, memory, or network."
)
@click.option(
    "--rate",
    default="10gbit",
    show_default=True,
    metavar="RATE",
    help="Rate of the links, if only --min-packet is given.",
)
@click.option("--degrees", metavar="DEGREES", help="Another network to compare, such as 8x4x2.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def sparse_command(
    ranks: int,
    features: int,
    density: float | None,
    exponent: float | None,
    densities: str | None,
    row_bytes: int,
    min_packet: str | None,
    packets: str | None,
    rate: str,
    degrees: str | None,
    as_json: bool,
) -> None:
    """Design the butterfly of a sparse reduction, and print its traffic layer by layer.

    By packet: from the top, each layer gets the largest degree with efficient packets. Cheapest: the factorization with
    the least predicted time, by the costs of packets. Direct and binary are listed for comparison. Each rank is assumed
    to request as many rows as it contributes.

    \b
    Examples:
      ripieno explain sparse --ranks 64 --features 60e6 --density 0.21 --exponent 1.1 --min-packet 5MB
      ripieno explain sparse --ranks 8 --features 1e6 --densities 1:0.1,2:0.18,8:0.45 --packets packets.json
    """
    from ripieno.bench.cases import size_of
    from ripieno.sparse import design

    data = design.DataDistribution(ranks, features, _curve(features, density, exponent, densities), row_bytes)
    min_bytes = None if min_packet is None else float(size_of(min_packet))
    found = design.explain(data, _packets(packets, min_bytes, rate), min_packet_bytes=min_bytes, degrees=degrees)
    if as_json:
        click.echo(json.dumps(found.as_json(), indent=2))
    else:
        click.echo(str(found))


def _curve(features: int, density: float | None, exponent: float | None, densities: str | None) -> Any:
    from ripieno._native import DensityCurve

    if densities is None:
        if density is None or exponent is None:
            raise click.UsageError("expected --density and --exponent of a power law, or --densities as counted")
        return DensityCurve.power_law(features, exponent, density)
    if density is not None or exponent is not None:
        raise click.UsageError("--densities replaces --density and --exponent: expected only one of them")
    try:
        points = [tuple(float(part) for part in point.split(":")) for point in densities.split(",")]
        return DensityCurve.through([(sets, value) for sets, value in points])
    except ValueError as error:
        raise click.BadParameter(f"{error}; expected SETS:DENSITY, …", param_hint="--densities") from error


def _packets(name: str | None, min_bytes: float | None, rate: str) -> Any:
    from ripieno._native import PacketCurve
    from ripieno.lab.cluster_spec import bits_per_s
    from ripieno.sparse import packets

    match name:
        case None if min_bytes is not None:
            return packets.of_rate(bits_per_s("--rate", rate), min_bytes)
        case None | "network":
            return PacketCurve.network()
        case "memory":
            return PacketCurve.memory()
    return packets.read(Path(name))
