"""`ripieno report`: results of several runs beside each other."""

from __future__ import annotations

import click

from ripieno.cli.options import PAGES, PathOrUrl, overwrite_option
from ripieno.files.results import ResultPath, check_results, new_file
from ripieno.report import write_comparison


@click.command("report", short_help="Compare results of several runs.")
@click.argument("results", nargs=-1, required=True, type=PathOrUrl())
@click.option("-o", "--out", type=PathOrUrl(*PAGES), default="compared.html", show_default=True, help="File to write.")
@overwrite_option
def report_command(results: tuple[ResultPath, ...], out: ResultPath, overwrite: bool) -> None:
    """Put RESULTS, two to five folders that a command such as kmeans has written, side by side on a page.

    The page has what the runs came to and what they cost, as ratios to the first; what was measured in each iteration,
    by number and by seconds; and the parameters in which they differ.

    \b
    Example:
      ripieno kmeans vectors.npy --clusters 1000 --out all/
      ripieno kmeans vectors.npy --clusters 1000 --assign near --out near/
      ripieno report all/ near/ --out compared.html
    """
    check_results({"--out": out}, overwrite=overwrite)
    with new_file(out) as path:
        write_comparison(path, results)
    click.echo(str(out))
