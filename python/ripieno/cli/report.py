"""The command `ripieno report`: results of several runs side by side."""

from __future__ import annotations

import click

from ripieno.cli.options import PAGES, PathOrUrl, overwrite_option
from ripieno.files.results import ResultPath, check_results, new_file


@click.command("report")
@click.argument("results", nargs=-1, required=True, type=PathOrUrl())
@click.option("-o", "--out", type=PathOrUrl(*PAGES), default="compared.html", show_default=True, help="File to write.")
@overwrite_option
def report_command(results: tuple[ResultPath, ...], out: ResultPath, overwrite: bool) -> None:
    """Compare RESULTS, two to five folders written by a command such as kmeans, on a page.

    The page shows results and costs of the runs as ratios to the first run, the measurements of each iteration by
    number and by seconds, and the parameters that differ.

    \b
    Example:
      ripieno kmeans vectors.npy --clusters 1000 --out all/
      ripieno kmeans vectors.npy --clusters 1000 --assign near --out near/
      ripieno report all/ near/ --out compared.html
    """
    from ripieno.report import write_comparison

    check_results({"--out": out}, overwrite=overwrite)
    with new_file(out) as path:
        write_comparison(path, results)
    click.echo(str(out))
