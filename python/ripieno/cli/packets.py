"""The command `ripieno packets`: throughput against packet size, and the minimum efficient packet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ripieno import log
from ripieno.cli.number_types import Seconds
from ripieno.cli.options import LocalPath, counted_workers, overwrite_option


@click.command("packets")
@counted_workers("Number of ranks to start. Default: 2.", minimum=2, aliases=["--ranks"])
@click.option("--sizes", metavar="RANGE", help="From:to in steps of a factor of 8, or a list. Default: 64B to 16MiB.")
@click.option("--links", type=click.Choice(["auto", "tcp", "shared-memory"]), default="auto", show_default=True)
@click.option(
    "--budget",
    "budget_s",
    type=Seconds(above=True),
    default=2.0,
    show_default=True,
    help="Seconds to measure; packets that take too long are skipped.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=Seconds(1),
    default=300.0,
    show_default=True,
    help="Time limit of a run in seconds.",
)
@click.option("--plot", type=LocalPath(".svg", dir_okay=False), help="File for a chart, as SVG.")
@click.option("--json", "target", type=LocalPath(".json", dir_okay=False), help="File for the figures.")
@overwrite_option
def packets_command(
    workers: int | None,
    sizes: str | None,
    links: str,
    budget_s: float,
    timeout_s: float,
    plot: Path | None,
    target: Path | None,
    overwrite: bool,
) -> None:
    """Measure the cost of packets by size, while every rank sends to several ranks at once.

    The minimum efficient packet is the smallest that reaches 80 % of the best throughput. The degrees of sparse
    reductions depend on it. Under a launcher, such as `ripieno run` or `ripieno lab run`, the command measures its
    ranks.

    \b
    Examples:
      ripieno packets --workers 4 --plot packets.svg
      ripieno lab run -- ripieno packets --json packets.json
      ripieno explain sparse --ranks 8 --features 1e6 --density 0.1 --alpha 1.1 --packets packets.json
    """
    import ripieno._native as _native
    from ripieno.bench import figures, table
    from ripieno.bench import packets as measuring
    from ripieno.bench.cases import check_sizes, sizes_of
    from ripieno.files.results import check_results, write_text
    from ripieno.launch.script.run import under_launcher
    from ripieno.sparse import packets
    from ripieno.units import bytes_text, duration_text

    sizes_bytes = sizes_of(sizes) if sizes else _native.PACKET_SIZES_BYTES
    if len(sizes_bytes) < 2:
        raise click.BadParameter(f"{sizes!r}: expected two sizes or more, such as 64B:16MiB", param_hint="--sizes")
    check_results({"--plot": plot, "--json": target}, overwrite=overwrite)
    if under_launcher(asks_for_workers=workers is not None):
        if workers is not None:
            raise click.UsageError(
                "--workers: the launcher has started the ranks; expected this option only without a launcher"
            )
        found = measuring.joined(sizes_bytes, links, budget_s)
    else:
        check_sizes((), sizes_bytes, workers or 2)
        found = measuring.started(workers or 2, sizes_bytes, links, budget_s, timeout_s)
    if found is None:
        return
    curve = packets.from_json(found)
    table.console().print(_table(curve))
    efficient = bytes_text(curve.efficient_bytes)
    click.echo(
        f"{found['ranks']} ranks on {found['nodes']} nodes: efficient from {efficient} on, "
        f"best {curve.best_throughput / 1e6:.4g} MB/s; alpha {duration_text(curve.alpha_s)}, "
        f"latency {duration_text(curve.latency_s)}"
    )
    if target is not None:
        write_text(target, json.dumps({"machine": figures.machine(), **found}, indent=2) + "\n")
        click.echo(target)
    if plot is not None:
        with log.warn_on_failure("ripieno.bench", str(plot)):
            # This import loads matplotlib.
            from ripieno.bench.pages.sparse import throughput_chart

            write_text(plot, throughput_chart({f"{found['ranks']} ranks": curve}))
            click.echo(plot)


def _table(curve: Any) -> Any:
    from rich.table import Table

    from ripieno.units import duration_text, size_text

    rows = Table()
    for heading in ("packet", "time", "MB/s", "of the best"):
        rows.add_column(heading, justify="right")
    for size, duration_s in curve.points:
        rate = size / duration_s
        rows.add_row(
            size_text(round(size)),
            duration_text(duration_s),
            f"{rate / 1e6:.4g}",
            f"{rate / curve.best_throughput:.0%}",
        )
    return rows
