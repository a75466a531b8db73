"""The command `ripieno distribute`: copy files of one host to many."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from ripieno.cli.options import (
    Size,
    aliased_option,
    communicator,
    counted_workers,
    overwrite_option,
    quiet_option,
)
from ripieno.comm.broadcast_variables import STRATEGIES
from ripieno.comm.communicator import Communicator
from ripieno.comm.file_distribution import HostFile
from ripieno.errors import InputError
from ripieno.launch.script import remote, run
from ripieno.launch.script.environment import init
from ripieno.launch.script.run import under_launcher
from ripieno.units import bytes_text, duration_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


#: Interval of progress lines without a terminal, in seconds.
LINE_S = 5.0
#: Rank of a host that did not answer.
NO_RANK = -1
#: Maximum rows of the table on a terminal; it lists incomplete files.
SHOWN_MAX = 24


@click.command("distribute")
@click.argument("files", nargs=-1, required=True)
@click.option(
    "-o",
    "--out",
    metavar="PATH",
    help="Path of the file on each host; with a trailing /, or for several FILES, their folder. "
    "{rank} and {host} are replaced by the values of the writing rank. Default with --to: the path on this host.",
)
@click.option(
    "--to",
    "hosts_file",
    metavar="HOSTS.txt",
    type=click.Path(exists=True, dir_okay=False),
    help="File with one host per line. The command starts a rank on each by ssh, and copies the "
    "files of this host to them.",
)
@click.option(
    "--ssh",
    default=remote.SHELL,
    show_default=True,
    metavar="COMMAND",
    help="Remote shell for the hosts of --to, called as COMMAND HOST WORDS.",
)
@click.option(
    "--python", metavar="PATH", help="Python with Ripieno on those hosts. Default: the path of the running Python."
)
@click.option(
    "--address", metavar="ADDRESS", help="Address of this host for those hosts, if its routes do not determine it."
)
@counted_workers("Worker processes on this machine. Under a launcher its ranks are the workers.")
@click.option(
    "--strategy",
    type=click.Choice(STRATEGIES),
    default="auto",
    show_default=True,
    help="Distribution of blocks. auto uses chain, or csb if some blocks exist already. With "
    "shared-file all hosts read them from --directory.",
)
@click.option(
    "--directory",
    "directories",
    multiple=True,
    metavar="PATH|URL",
    help="For shared-file: a folder shared by all hosts, or an fsspec URL; up to three. Files are "
    "copied there, and removed at the end.",
)
@aliased_option(
    "--block-bytes",
    "block",
    aliases=["--block"],
    type=Size(),
    help="Bytes of a block, such as 1MiB. Default: 16 KiB to 4 MiB.",
)
@click.option(
    "--no-verify",
    is_flag=True,
    help="Do not compare blocks with digests. The first byte is sent at once. Existing blocks are fetched again.",
)
@overwrite_option
@click.option(
    "--keep-partial", is_flag=True, help="Keep partial files after a failure, so that another run can resume."
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@quiet_option
def distribute_command(
    files: tuple[str, ...],
    out: str | None,
    hosts_file: str | None,
    ssh: str,
    python: str | None,
    address: str | None,
    workers: int | None,
    strategy: str,
    directories: tuple[str, ...],
    block: int | None,
    no_verify: bool,
    overwrite: bool,
    keep_partial: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Copy FILES of rank 0's host to the hosts of all ranks, and print the state of each host.

    A file appears as a whole or not at all: it is written next to its target as .NAME.part, its blocks are compared
    with digests, and it is renamed once it is on the disk. Ranks that die or hang are reported and do not delay the
    others. Existing blocks, of a whole file or of a partial file left by a killed run, are not fetched again.

    One rank of each host writes; with {rank} in PATH every rank does. The exit code is 0 if all hosts have all files,
    else 1, or the exit code of a killed worker.

    \b
    Examples:
      srun --kill-on-bad-exit=0 -N 16 ripieno distribute model.bin --out /scratch/model.bin
      mpirun -n 16 --map-by node ripieno distribute model.bin --out /scratch/model.bin
      ripieno distribute model.bin --to hosts.txt --strategy csb
      ripieno distribute model.bin --workers 8 --out 'copies/{rank}/model.bin'
      srun -N 16 ripieno distribute model.bin --out /scratch/ --strategy shared-file --directory /nfs/tmp
    """
    if hosts_file is not None and (workers is not None or under_launcher()):
        raise click.UsageError("--to starts ranks by itself: expected neither --workers nor a launcher")
    if out is None and hosts_file is None:
        raise click.UsageError("Missing option '-o' / '--out'.")
    out = _locations(files) if out is None else out
    request = _DistributeRequest(
        files, out, strategy, directories, block, no_verify, overwrite, keep_partial, as_json, quiet
    )
    if hosts_file is not None:
        return _to_hosts(request, remote.read_hosts(hosts_file), ssh, python or sys.executable, address)
    comm = communicator(workers, None, None)
    if comm is not None:
        return _distribute(request, comm)
    if workers is None:
        raise click.UsageError("expected --workers, --to, or a launcher that starts a rank on each host")
    script = run.Script("ripieno", request.words(), module=True, prefix=False, independent=True)
    try:
        return run.run(script, workers)
    except KeyboardInterrupt:
        return run.INTERRUPTED


@dataclass(frozen=True)
class _DistributeRequest:
    files: Sequence[str]
    out: str
    strategy: str
    directories: Sequence[str]
    block: int | None
    no_verify: bool
    overwrite: bool
    keep_partial: bool
    as_json: bool
    quiet: bool

    def words(self) -> list[str]:
        """Return the arguments of the same command for other ranks."""
        flags = {
            "--no-verify": self.no_verify,
            "--overwrite": self.overwrite,
            "--keep-partial": self.keep_partial,
            "--json": self.as_json,
            "--quiet": self.quiet,
        }
        words = ["distribute", "--out", self.out, "--strategy", self.strategy]
        words += [flag for flag, is_set in flags.items() if is_set]
        words += ["--block-bytes", str(self.block)] if self.block is not None else []
        words += [word for directory in self.directories for word in ("--directory", directory)]
        return [*words, "--", *self.files]


def _locations(files: Sequence[str]) -> str:
    """Return the target of one file, or the folder of several."""
    places = [os.path.abspath(file) for file in files]
    if len(places) == 1:
        return places[0]
    folders = {os.path.dirname(place) for place in places}
    if len(folders) > 1:
        raise click.UsageError("expected --out, because FILES are in several folders")
    return os.path.join(*folders, "")


def _to_hosts(request: _DistributeRequest, hosts: Sequence[str], ssh: str, python: str, address: str | None) -> int:
    """Start a world with one rank per host and run rank 0. Hosts that do not answer are reported with the others."""
    # Check before contacting hosts and starting ranks, all of which would report the missing file.
    missing = next((file for file in request.files if not os.path.isfile(file)), None)
    if missing is not None:
        raise InputError(f"{missing} is not a file")
    request = replace(request, out=os.path.abspath(request.out) + "/" * request.out.endswith("/"))
    answers = remote.unusable_hosts(hosts, ssh, python)
    missed = [
        HostFile(NO_RANK, host, request.out, "failed", 0, 0, 0, 0.0, reason)
        for host, reason in answers.items()
        if reason
    ]
    usable = [host for host, reason in answers.items() if not reason]
    if not usable:
        raise InputError("\n".join(["no host answers", *(f"{row.host}: {row.error}" for row in missed)]))
    with remote.ranks_on(usable, request.words(), shell=ssh, python=python, address=address):
        return _distribute(request, init(), missed)


def _distribute(request: _DistributeRequest, comm: Communicator, missed: Sequence[HostFile] = ()) -> int:
    """Run one rank and return its exit code."""
    from rich.console import Console

    with _TransferProgress(Console(stderr=True), request.quiet or comm.rank != 0) as progress:
        rows = comm.distribute(
            request.files,
            request.out,
            strategy=request.strategy,
            block_bytes=request.block,
            places=request.directories,
            verify=not request.no_verify,
            overwrite=request.overwrite,
            keep_partial=request.keep_partial,
            on_progress=progress.show,
        )
    rows = [*rows, *missed]
    if comm.rank == 0:
        click.echo(_as_json(rows) if request.as_json else _report(rows))
    else:
        # Rank 0 itself may be lost.
        for row in (row for row in rows if row.error):
            click.echo(f"ripieno: rank {row.rank} on {row.host}: {row.path}: {row.error}", err=True)
    return 0 if all(row.is_whole for row in rows) else 1


class _TransferProgress:
    """Shows the progress of each rank: a table on a terminal, periodic lines elsewhere."""

    def __init__(self, console: Console, quiet: bool) -> None:
        from rich.live import Live

        self._console = console
        self._quiet = quiet
        self._live = Live(console=console, transient=True) if console.is_terminal and not quiet else None
        self._next_line_s = time.monotonic() + LINE_S

    def __enter__(self) -> _TransferProgress:
        if self._live is not None:
            self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.__exit__(None, None, None)

    def show(self, rows: list[HostFile]) -> None:
        """Show the current state."""
        if self._live is not None:
            self._live.update(_table(rows))
        elif not self._quiet and time.monotonic() >= self._next_line_s:
            self._next_line_s = time.monotonic() + LINE_S
            self._console.print(_summary(rows), highlight=False, soft_wrap=True)


def _table(rows: list[HostFile]) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", caption=_summary(rows), caption_justify="left")
    for name in ("rank", "host", "file", "state", "arrived", "rate"):
        table.add_column(name)
    for row in [row for row in rows if not row.is_whole][:SHOWN_MAX]:
        arrived = f"{100 * _present_bytes(row) / max(1, row.size_bytes):.0f} %"
        table.add_row(str(row.rank), row.host, os.path.basename(row.path), row.state, arrived, _rate(row))
    return table


def _present_bytes(row: HostFile) -> int:
    return min(row.size_bytes, row.found_bytes + row.fetched_bytes) if not row.is_whole else row.size_bytes


def _rate(row: HostFile) -> str:
    return f"{bytes_text(row.fetched_bytes / row.seconds)}/s" if row.fetched_bytes and row.seconds else ""


def _summary(rows: list[HostFile]) -> str:
    whole = sum(row.is_whole for row in rows)
    fetched = sum(row.fetched_bytes for row in rows)
    longest = max((row.seconds for row in rows), default=0.0)
    rate = f", {bytes_text(fetched / longest)}/s in total" if fetched and longest else ""
    return f"{whole} of {len(rows)} are complete, {bytes_text(fetched)} fetched{rate}"


def _report(rows: list[HostFile]) -> str:
    head = ("rank", "host", "state", "found", "fetched", "time", "rate", "path")
    cells = [
        (
            "" if row.rank == NO_RANK else str(row.rank),
            row.host,
            row.state,
            bytes_text(row.found_bytes),
            bytes_text(row.fetched_bytes),
            "" if row.rank == NO_RANK else duration_text(row.seconds),
            _rate(row),
            f"{row.path}: {row.error}" if row.error else row.path,
        )
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    lines = ["  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)) for line in (head, *cells)]
    return "\n".join([*(line.rstrip() for line in lines), _summary(rows)])


def _as_json(rows: list[HostFile]) -> str:
    return json.dumps(
        {"is_whole": all(row.is_whole for row in rows), "files": [row._asdict() for row in rows]}, indent=2
    )
