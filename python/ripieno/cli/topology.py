"""The command `ripieno topology`: hosts, their racks, cores and NUMA nodes."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ripieno import log
from ripieno.cli.number_types import Seconds
from ripieno.cli.options import LocalPath, aliased_option, overwrite_option


@click.command("topology")
@click.option("--measure", is_flag=True, help="Measure even if a file or the launcher names the racks.")
@click.option(
    "--round",
    "round_s",
    type=Seconds(above=True),
    default=0.25,
    show_default=True,
    help="Seconds per round; 32 hosts take about 25 rounds.",
)
@aliased_option(
    "-o",
    "--out",
    aliases=["--write"],
    type=LocalPath(".toml", dir_okay=False),
    metavar="racks.toml",
    help="Write a file of racks.",
)
@click.option(
    "--draw", type=LocalPath(dir_okay=False), metavar="FILE", help="Draw the racks and their hosts: .svg or .html."
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@overwrite_option
def topology_command(
    measure: bool, round_s: float, out: Path | None, draw: Path | None, as_json: bool, overwrite: bool
) -> None:
    """Show hosts by rack, with cores and NUMA nodes, and measure the racks if they are not configured.

    Run it under a launcher, one rank per host; alone it shows this host. Racks are configured by `--racks`,
    RIPIENO_RACKS or RACK. Otherwise all hosts exchange bytes in pairs, round by round: pairs across racks are slower
    while their uplinks are full. Uplinks that are never full are not detected: the hosts behind them count as one rack.
    Keep the network idle during the command.

    \b
    Examples:
      ripieno lab run --no-prefix -- ripieno topology --measure
      srun --ntasks-per-node 1 ripieno topology --out racks.toml
    """
    from ripieno.files.results import check_results, write_text
    from ripieno.launch.script.environment import init
    from ripieno.simulation import pictures

    if draw is not None:
        pictures.check_picture(draw)
    check_results({"--out": out, "--draw": draw}, overwrite=overwrite)
    with init(threads=1) as comm:
        found = comm.topology(measure=measure, round_s=round_s)
        is_first = comm.rank == 0
    if not is_first:
        return
    click.echo(json.dumps(found.as_json(), indent=2) if as_json else str(found))
    if out is not None:
        write_text(out, found.toml())
        if not as_json:
            click.echo(out)
    if draw is not None:
        with log.warn_on_failure("ripieno.topology", str(draw)):
            pictures.write(found.picture(), draw)
            if not as_json:
                click.echo(draw)
