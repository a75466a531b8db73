"""The command `ripieno tune`: measured costs of links, memory and cores, stored for the cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ripieno.cli.options import LocalPath, aliased_option, counted_workers, overwrite_option

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator
    from ripieno.simulation import MeasuredCosts
    from ripieno.simulation.algorithm_choices import AlgorithmChoices


@click.command("tune")
@counted_workers("Number of ranks to start. Default: 2.", aliases=["--ranks"])
@click.option(
    "--budget",
    "budget_s",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Seconds to measure.",
)
@click.option(
    "--trials",
    "trials_s",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Also try the algorithms of collectives for this time, and store the fastest.",
)
@aliased_option(
    "-o",
    "--out",
    aliases=["--write"],
    type=LocalPath(".json", dir_okay=False),
    metavar="costs.json",
    help="Write a file of costs.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@overwrite_option
def tune_command(
    workers: int | None, budget_s: float, trials_s: float, out: Path | None, as_json: bool, overwrite: bool
) -> None:
    """Measure latency and rate of each kind of link, and the cost of adding and copying.

    Run it under a launcher, one or more ranks on each host; alone it starts ranks on this machine. It measures links
    between ranks of a node, between nodes of a rack, and between racks if racks are given. Results are stored on each
    host for `comm.explain`; --out writes a file for `ripieno explain --costs` and `ripieno simulate --costs`. Leave
    the network and the hosts idle meanwhile.

    --trials also tries algorithms for this placement of ranks. Programs use the stored choices after
    `comm.try_algorithms()`, which then takes no time.

    \b
    Examples:
      ripieno tune --workers 4 --out costs.json
      ripieno tune --workers 4 --trials 20
      srun --ntasks-per-node 2 ripieno tune --out costs.json
      ripieno explain allreduce --costs costs.json --bytes 1MiB
    """
    from ripieno.files.results import check_results
    from ripieno.launch import launch
    from ripieno.launch.script.environment import init
    from ripieno.launch.script.run import under_launcher
    from ripieno.simulation import link_costs

    check_results({"--out": out}, overwrite=overwrite)
    if under_launcher(asks_for_workers=workers is not None):
        if workers is not None:
            raise click.UsageError(
                "--workers: the launcher has started the ranks; expected this option only without a launcher"
            )
        with init(threads=1) as comm:
            found, is_first = _tuned(comm, budget_s, trials_s), comm.rank == 0
        if not is_first:
            return
    else:
        with launch(workers=workers or 2, threads=1) as job:
            found = job.run(_tuned, budget_s, trials_s)[0]
    costs, choices = found
    if out is not None:
        link_costs.write(costs, out)
    if as_json:
        tried = {} if choices is None else {"algorithms": choices.as_json()}
        click.echo(json.dumps(costs.as_json() | tried, indent=2))
    else:
        click.echo(str(costs) if choices is None else f"{costs}\n{choices}")
    if out is not None and not as_json:
        click.echo(out)


def _tuned(comm: Communicator, budget_s: float, trials_s: float) -> tuple[MeasuredCosts, AlgorithmChoices | None]:
    costs = comm.tune(budget_s=budget_s)
    return costs, comm.try_algorithms(budget_s=trials_s, kept=False) if trials_s > 0 else None
