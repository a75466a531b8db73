"""The command `ripieno tune`: measured costs of links, memory and cores, stored for the cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ripieno.cli.number_types import Seconds
from ripieno.cli.options import CommandWithParts, LocalPath, Size, aliased_option, counted_workers, overwrite_option
from ripieno.disciplines import AUTO_ON_DEMAND, AUTO_STREAMED, DISCIPLINES
from ripieno.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ripieno.comm.block_sizes import BlockSizes
    from ripieno.comm.communicator import Communicator
    from ripieno.simulation import MeasuredCosts
    from ripieno.simulation.algorithm_choices import AlgorithmChoices

R = TypeVar("R")


@click.command("tune", cls=CommandWithParts)
@counted_workers("Number of ranks to start. Default: 2.", aliases=["--ranks"])
@click.option(
    "--budget",
    "budget_s",
    type=Seconds(above=True),
    default=1.0,
    show_default=True,
    help="Seconds to measure.",
)
@click.option(
    "--trials",
    "trials_s",
    type=Seconds(),
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
    between ranks of a node, between nodes of a rack, and between racks if racks are configured. Results are stored on
    each host for `comm.explain`; --out writes a file for `ripieno explain --costs` and `ripieno simulate --costs`. Keep
    the network and the hosts idle during the command.

    `ripieno tune broadcast` measures the block size of broadcasts.

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
    from ripieno.simulation import link_costs

    check_results({"--out": out}, overwrite=overwrite)
    found = _on_ranks(workers, _tuned, budget_s, trials_s)
    if found is None:
        return
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
    return costs, comm.try_algorithms(budget_s=trials_s, use_stored=False) if trials_s > 0 else None


@click.command("broadcast")
@counted_workers("Number of ranks to start. Default: 2.", aliases=["--ranks"])
@click.option(
    "--strategies",
    metavar="LIST",
    default=f"{AUTO_ON_DEMAND},{AUTO_STREAMED}",
    show_default=True,
    help=f"Some of {', '.join(DISCIPLINES)}.",
)
@click.option("--bytes", "size_bytes", type=Size(), help="Size of the value. Default: 1 to 64 MiB, as the time allows.")
@click.option(
    "--budget",
    "budget_s",
    type=Seconds(above=True),
    default=5.0,
    show_default=True,
    help="Seconds to measure each strategy.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def broadcast_command(
    workers: int | None, strategies: str, size_bytes: int | None, budget_s: float, as_json: bool
) -> None:
    """Find the fastest block size of broadcast variables and distributed files on this cluster.

    Run it under a launcher, one rank on each host. It broadcasts a value with blocks of 4 MiB and their halves, in
    alternating rounds. Each host stores the result. Later broadcasts with these strategies use it for values of a
    quarter to four times this size, unless they set a block size. Keep the network and the hosts idle during the
    command.

    \b
    Examples:
      srun --ntasks-per-node 1 ripieno tune broadcast
      ripieno tune broadcast --workers 4 --strategies bittorrent --bytes 64MiB
    """
    from ripieno.bench.cases import check_sizes

    names = strategies.split(",")
    for name in names:
        if name not in DISCIPLINES:
            raise InputError(f"--strategies={name!r}: expected some of {', '.join(DISCIPLINES)}")
    check_sizes((), [size_bytes or 0], workers or 2)
    found = _on_ranks(workers, _tuned_broadcasts, names, size_bytes, budget_s)
    if found is None:
        return
    if as_json:
        click.echo(json.dumps([each.as_json() for each in found], indent=2))
    else:
        click.echo("\n\n".join(map(str, found)))


tune_command.parts = {"broadcast": broadcast_command}


def _tuned_broadcasts(
    comm: Communicator, strategies: list[str], size_bytes: int | None, budget_s: float
) -> list[BlockSizes]:
    return [comm.tune_broadcast(each, size_bytes=size_bytes, budget_s=budget_s) for each in strategies]


def _on_ranks(workers: int | None, program: Callable[..., R], *args: Any) -> R | None:
    """Return the result of rank 0 of the launcher's ranks, or of started ones; None on other ranks of a launcher."""
    from ripieno.launch import launch
    from ripieno.launch.script.environment import init
    from ripieno.launch.script.run import under_launcher

    if not under_launcher(asks_for_workers=workers is not None):
        with launch(workers=workers or 2, threads=1) as job:
            return job.run(program, *args)[0]
    if workers is not None:
        raise click.UsageError(
            "--workers: the launcher has started the ranks; expected this option only without a launcher"
        )
    with init(threads=1) as comm:
        found = program(comm, *args)
        return found if comm.rank == 0 else None
