"""`ripieno trace`: one picture of the files that ranks have left."""

from __future__ import annotations

from pathlib import Path

import click

from ripieno.cli.options import LocalPath, overwrite_option
from ripieno.files.results import check_results
from ripieno.flight.trace import read, write


@click.command("trace", short_help="Draw what ranks communicated, and when.")
@click.argument("folders", nargs=-1, required=True, type=LocalPath(exists=True, file_okay=False))
@click.option(
    "-o",
    "--out",
    type=LocalPath(".json"),
    default=Path("trace.json"),
    show_default=True,
    help="File to write, in Chrome's trace event format.",
)
@overwrite_option
def trace_command(folders: tuple[Path, ...], out: Path, overwrite: bool) -> None:
    """Make one picture, for ui.perfetto.dev, of the records that ranks left in FOLDERS.

    If RIPIENO_FLIGHT names a folder, the ranks of any launcher leave records of their collectives there. The clocks of
    several hosts are brought together.

    \b
    Example:
      RIPIENO_FLIGHT=flight srun python script.py
      ripieno trace flight --out trace.json
    """
    check_results({"--out": out}, overwrite=overwrite)
    write(read(folders), out)
    click.echo(out)
