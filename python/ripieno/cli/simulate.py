"""`ripieno simulate`: what a collective would take on a cluster that is only modelled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ripieno.cli.cluster_options import bytes_option, cluster_of, cluster_options, root_option
from ripieno.cli.options import LocalPath, overwrite_option
from ripieno.errors import InputError

#: Of what is drawn every message is kept; more ranks make pages that nothing opens.
TIMELINE_MESSAGES = 2_000_000


@click.command("simulate", short_help="Play a collective on a modelled cluster.")
@click.argument("collective", metavar="COLLECTIVE")
@click.option("--nodes", type=click.IntRange(min=1), metavar="COUNT", help="Number of nodes.")
@click.option("--ranks", type=click.IntRange(min=1), metavar="COUNT", help="Number of ranks. By default one per node.")
@cluster_options
@bytes_option
@click.option("--algorithm", metavar="NAME[@ORDER]", help="Such as chain or chain@random:7. By default the usual one.")
@root_option
@click.option("--queue", metavar="SIZE", help="What the network holds of a message. By default it holds all.")
@click.option(
    "--slow", metavar="COUNT:FACTOR", help="So many nodes, drawn by --seed, take so many times as long for everything."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of what is drawn.")
@click.option("--dead", multiple=True, metavar="NODE@TIME", help="A node that dies, and when, such as 7@0.5s.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option(
    "--timeline", type=LocalPath(dir_okay=False), metavar="FILE", help="Draw the messages by time: .svg or .html."
)
@overwrite_option
def simulate_command(
    collective: str,
    nbytes: int,
    algorithm: str | None,
    root: int,
    queue: str | None,
    slow: str | None,
    seed: int,
    dead: tuple[str, ...],
    as_json: bool,
    timeline: Path | None,
    overwrite: bool,
    **words: Any,
) -> None:
    """Play a collective on a cluster that is only modelled: its time, what each kind of link carries, the busiest wire.

    The plans are those that ranks run. Messages that meet on a cable, an uplink or the core switch share it fairly.

    \b
    Examples:
      ripieno simulate broadcast --nodes 100000 --racks 2400 --uplink 40gbit --bytes 1GiB --algorithm chain
      ripieno simulate allreduce --nodes 32 --racks 4 --rate 1gbit --uplink 2gbit --timeline ring.html
    """
    from ripieno.cli.options import Size
    from ripieno.files.results import check_results, new_file
    from ripieno.simulation import pictures, simulate

    cluster = cluster_of(
        **words,
        queue_bytes=None if queue is None else Size().convert(queue, None, None),
        slow=None if slow is None else _slow(slow, seed),
        dead=[_dead(each) for each in dead],
    )
    if timeline is not None:
        pictures.check_picture(timeline)
        check_results({"--timeline": timeline}, overwrite=overwrite)
    found = simulate(collective, cluster, nbytes=nbytes, algorithm=algorithm, root=root, transfers=timeline is not None)
    if timeline is not None:
        with new_file(timeline) as part:
            pictures.write(pictures.timeline(found), timeline, part)
    if as_json:
        click.echo(json.dumps(found.as_json(), indent=2))
        return
    click.echo(str(found))
    if timeline is not None:
        click.echo(timeline)


def _slow(text: str, seed: int) -> tuple[int, float, int]:
    count, _, factor = text.partition(":")
    try:
        return int(count), float(factor), seed
    except ValueError:
        raise InputError(f"--slow={text!r}: expected COUNT:FACTOR, such as 3:2.5") from None


def _dead(text: str) -> tuple[int, float]:
    from ripieno.units import seconds_of

    node, _, at = text.partition("@")
    if not node.isdecimal():
        raise InputError(f"--dead={text!r}: expected NODE@TIME, such as 7@0.5s")
    return int(node), seconds_of("--dead", at)
