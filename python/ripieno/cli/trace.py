"""The command `ripieno trace`: one trace from the files that ranks wrote."""

from __future__ import annotations

from pathlib import Path

import click

from ripieno.cli.options import LocalPath, overwrite_option
from ripieno.files.results import check_results
from ripieno.flight.trace import read, write


@click.command("trace")
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
    """Merge the records that ranks wrote to FOLDERS into one trace for ui.perfetto.dev.

    If RIPIENO_FLIGHT names a folder, the ranks of any launcher write records of their collectives there. The clocks of
    several hosts are aligned.

    \b
    Example:
      RIPIENO_FLIGHT=flight srun python script.py
      ripieno trace flight --out trace.json
    """
    check_results({"--out": out}, overwrite=overwrite)
    write(read(folders), out)
    click.echo(out)
