"""`ripieno bench`: collectives beside the lower bound and the peers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from ripieno.cli.options import overwrite_option

# Seconds for the calls of one case in one run.
BUDGET_S = 0.05


@click.command("bench", short_help="Time collectives beside the limit and the peers.")
@click.argument("collectives", metavar="COLLECTIVE[,…]|all", default="all")
@click.option("--ranks", metavar="LIST", help="Numbers of ranks to start, such as 2,4,8; 2 by default.")
@click.option(
    "--sizes",
    default="8B:64MiB",
    show_default=True,
    metavar="RANGE",
    help="From:to in steps of a factor of 8, or a list.",
)
@click.option(
    "--algorithm", metavar="NAME|all", help="Measure this algorithm, not the default choice; all: every one beside it."
)
@click.option("--links", type=click.Choice(["auto", "tcp", "shared-memory"]), default="auto", show_default=True)
@click.option("--against", metavar="LIST", help="Peers: some of openmpi, mpich, gloo.")
@click.option(
    "--repetitions",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="How many alternating runs each contestant has.",
)
@click.option("--python", "from_python", is_flag=True, help="Measure from Python, against mpi4py.")
@click.option("--gloo-python", metavar="PATH", help="An interpreter that has torch, for Gloo.")
@click.option(
    "--rate", metavar="RATE", help="Under a launcher: the rate of a host's cable, such as 100mbit, as the limit."
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=1),
    default=900.0,
    show_default=True,
    help="Seconds that a run may take.",
)
@click.option(
    "--choice", is_flag=True, help="Time every algorithm and print where the default is over 15 % off the best."
)
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Write a page with plots to this file.")
@click.option(
    "--json", "target", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures to this file."
)
@overwrite_option
def bench_command(choice: bool, plot: Path | None, target: Path | None, overwrite: bool, **words: Any) -> None:
    """Time collectives at several sizes, on processes of this machine, and check their results.

    Sizes are the bytes of the vector. For allgather, gather and scatter they are those of a rank's block, for alltoall
    all that a rank sends. A time is the slowest rank's, after a barrier; the median of all runs counts. Under a
    launcher, such as `ripieno run` or `ripieno lab run`, the ranks that it started are measured.

    \b
    Examples:
      ripieno bench allreduce --ranks 2,4 --against openmpi,mpich --plot speed.html
      ripieno bench --choice --ranks 2,4,8 --json choice.json
      ripieno lab run -- ripieno bench allreduce --sizes 1KiB,1MB --rate 100mbit
    """
    from ripieno.bench import session
    from ripieno.files.results import check_results
    from ripieno.launch.script.run import under_launcher

    if choice and (plot or words["against"] or words["from_python"] or words["algorithm"]):
        raise click.UsageError("--choice times all algorithms of ours: no --plot, --against, --python or --algorithm")
    check_results({"--plot": plot, "--json": target}, overwrite=overwrite)
    asked = session.Asked.parse(**words, budget_s=BUDGET_S)
    joined = under_launcher(asks_for_workers=bool(asked.world_sizes))
    found = session.joined(asked, only_choice=choice) if joined else session.started(asked, only_choice=choice)
    if found is not None:
        _tell(found, plot, target)
        sys.exit(int(bool(found.failed)))


def _tell(found: Any, plot: Path | None, target: Path | None) -> None:
    """Print, draw and write what was found."""
    from ripieno.bench import table
    from ripieno.files.results import new_file

    found.show(table.console())
    if plot is not None:
        with new_file(plot) as part:
            found.write_plot(part)
        click.echo(plot)
    if target is not None:
        with new_file(target) as part:
            part.write_text(json.dumps(found.as_json(), indent=2) + "\n")
        click.echo(target)
