"""The command `ripieno split`: even partitions of files, and their assignment to workers."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ripieno.cli.number_types import Count
from ripieno.cli.options import LocalPath, aliased_option, quiet_option
from ripieno.errors import InputError
from ripieno.topology.rack_names import rack_of
from ripieno.topology.rack_names import read as read_racks

if TYPE_CHECKING:
    from ripieno.input import Split


#: Maximum number of workers in a plan, which needs memory for each.
WORKERS_MAX = 100_000


class Names(click.ParamType):  # type: ignore[type-arg]  # click is generic from 8.5 on only
    """Names separated by commas."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Return the names, without empty ones."""
        return value if isinstance(value, tuple) else tuple(filter(None, (name.strip() for name in value.split(","))))


@click.command("split")
@click.argument("inputs", nargs=-1)
@click.option("-o", "--out", type=LocalPath(), help="Folder to create.")
@click.option("-p", "--partitions", type=Count(), metavar="COUNT", help="Number of partitions.")
@click.option(
    "--replicas",
    type=Count(),
    metavar="COUNT",
    help="Number of nodes with a copy of each partition. Default: 1, with --in-place all.",
)
@click.option("--nodes", type=Names(), metavar="A,B,C", default="", help="Hosts that hold the partitions.")
@click.option(
    "--racks", metavar="FILE", help="Racks of the nodes, as for `ripieno run`: replicas go to different racks."
)
@click.option(
    "--format",
    type=click.Choice(["text", "csv", "npy", "parquet", "binary"]),
    help="Format of the files. Default: from the file names.",
)
@click.option("--no-header", is_flag=True, help="CSV files have no header.")
@click.option("--delimiter", metavar="CHARACTER", help="Field separator of CSV. Default: detected in the first record.")
@click.option(
    "--record-bytes",
    type=Count(),
    metavar="COUNT",
    help="The files are binary records of COUNT bytes each, without headers.",
)
@click.option("--dtype", metavar="TYPE", help="Type of the values in such records, such as float32. Default: uint8.")
@click.option("--in-place", is_flag=True, help="Do not copy: list ranges of the existing files.")
@click.option("--overwrite", is_flag=True, help="Replace the folder if it holds partitions.")
@click.option(
    "--plan",
    type=LocalPath(),
    metavar="FILE",
    help="Show the assignment of the partitions of this file to workers, and write nothing.",
)
@aliased_option(
    "-n",
    "--workers",
    aliases=["-w"],
    type=click.IntRange(1, WORKERS_MAX),
    metavar="COUNT",
    help="With --plan: number of workers. Default: one per host.",
)
@click.option(
    "--hosts",
    type=Names(),
    metavar="A,B,C",
    default="",
    help="With --plan: hosts of the workers. Default: the nodes of the file.",
)
@click.option(
    "--verify",
    is_flag=True,
    help="With --plan: compare all copies on this host with their checksums.",
)
@quiet_option
def split_command(inputs: tuple[str, ...], plan: Path | None, quiet: bool, **options: Any) -> None:
    """Divide INPUTS into even partitions, cut between records, and list them in OUT/partitions.json.

    INPUTS are files, globs, folders or URLs of text, .csv, .npy, .parquet or, with --record-bytes, raw records; text
    and CSV also compressed. The partitions are files of the same kind. With --nodes each node has a folder; move the
    folder to its node. Programs that read the partition file find the partitions on their own host.

    With --plan nothing is divided. The default is one worker on each node of the partition file.

    \b
    Examples:
      ripieno split big.txt --partitions 64 --replicas 2 --nodes a,b,c --out parts/
      ripieno split --plan parts/partitions.json --workers 6 --hosts a,b,c
    """
    from ripieno.input import divide, open_partitions

    if plan is not None:
        _check_unused("--plan", inputs, options, ("workers", "hosts", "verify"))
        click.echo(_plan(plan, options["workers"], options["hosts"], options["verify"]))
        return
    for name in ("out", "partitions"):
        if options[name] is None:
            raise click.UsageError(f"Missing option '--{name}'.")
    if not inputs:
        raise click.UsageError("Missing argument 'INPUTS...'.")
    _check_unused("--out", (), options, [name for name in options if name not in ("workers", "hosts", "verify")])
    nodes = options["nodes"]
    path = divide(
        list(inputs),
        options["out"],
        partitions=options["partitions"],
        replicas=options["replicas"],
        nodes=nodes,
        racks=None if options["racks"] is None else _racks_of(nodes, options["racks"]),
        format=options["format"],
        header=False if options["no_header"] else None,
        delimiter=options["delimiter"],
        record_bytes=options["record_bytes"],
        dtype=options["dtype"],
        in_place=options["in_place"],
        overwrite=options["overwrite"],
    )
    if quiet:
        click.echo(path)
        return
    sizes = [part.size_bytes for part in open_partitions(path)]
    click.echo(f"{len(sizes)} partitions of {min(sizes):,} to {max(sizes):,} bytes: {path}")


def _plan(path: Path, workers: int | None, hosts: tuple[str, ...], verify: bool) -> str:
    from ripieno.input import assign, open_partitions

    parts = open_partitions(path)
    if verify:
        _verify(parts)
    hosts = hosts or tuple(dict.fromkeys(host for part in parts for host in part.hosts)) or (socket.gethostname(),)
    count = workers or len(hosts)
    # Place neighboring ranks on one host, as launchers do.
    return str(assign(parts, [hosts[rank * len(hosts) // count] for rank in range(count)]))


def _verify(parts: Sequence[Split]) -> None:
    """Raise InputError, with the names of all damaged partitions, if partitions have changed."""
    wrong = []
    for part in parts:
        try:
            part.verify()
        except InputError as error:
            wrong.append(str(error))
    if wrong:
        raise InputError("\n".join([f"{len(wrong)} of {len(parts)} partitions are damaged", *wrong]))


def _racks_of(nodes: tuple[str, ...], path: str) -> dict[str, str]:
    racks = read_racks(path)
    return {node: rack_of(node, racks, path) for node in nodes}


def _check_unused(mode: str, inputs: tuple[str, ...], options: dict[str, Any], used: Any) -> None:
    wrong = next((name for name, value in options.items() if name not in used and value), None)
    if inputs or wrong:
        named = "INPUTS" if inputs else f"--{(wrong or '').replace('_', '-')}"
        raise InputError(f"{named} has no effect with {mode}")
