"""Argument and options shared by the commands on graphs in files."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from ripieno import log
from ripieno.cli.command_line import command_line
from ripieno.cli.number_types import Count
from ripieno.cli.options import (
    PAGES,
    PathOrUrl,
    aliased_option,
    engine_options,
    overwrite_option,
    quiet_option,
    threads_option,
    trace_option,
    workers_option,
)
from ripieno.cli.parameter_options import parameter_options
from ripieno.cli.table_options import table_options
from ripieno.files.results import ResultPath, write_text
from ripieno.files.tables import TABLE_FORMATS

_OPTIONS = (
    workers_option,
    engine_options,
    threads_option,
    aliased_option(
        "--vertex-count",
        aliases=["--vertices"],
        type=Count(),
        metavar="COUNT",
        help="The graph has vertices 0 … COUNT - 1, also those without edges.",
    ),
    click.option(
        "--format",
        type=click.Choice(["text", "csv", "parquet", "arrow", "npy", "npz"]),
        help="Format of the files. Default: from the file names.",
    ),
    click.option(
        "--report",
        type=PathOrUrl(*PAGES, ".json"),
        help="File to write about the run, with the times of each worker: a page (.html), or its numbers (.json).",
    ),
    trace_option,
    quiet_option,
)

_INPUTS = """
    INPUTS are files, globs or folders: text with a line "source target{weight}" per edge or
    "source<TAB>target,target,…", .csv (all of these also compressed), .parquet, .arrow, .feather, .npy, .npz,
    .mtx. Every worker reads its own share.
"""

directed_option = click.option(
    "--directed/--undirected", default=True, show_default=True, help="Edges have a direction, or none."
)
weighted_option = click.option(
    "--weighted/--unweighted",
    default=None,
    help="Use the third column as weights of edges, or ignore it. Default: use a column named weight.",
)


def write_report(report: Any, path: ResultPath | None) -> None:
    """Write the report of a fit as a page or as JSON, by the name of the file. A failure is a warning."""
    if path is None:
        return
    with log.warn_on_failure("ripieno.report", str(path)):
        if str(path).lower().endswith(".json"):
            numbers = {name: value for name, value in asdict(report).items() if name != "about"}
            write_text(path, json.dumps(numbers, indent=2) + "\n")
        else:
            about = replace(report.about, code=command_line() or report.about.code)
            replace(report, about=about).save(path)


def print_resumed(model: Any) -> None:
    """Print that a fit resumed from the checkpoint in its folder, if it did."""
    if model.resumed_from_ is not None:
        click.echo(f"it resumed after step {model.resumed_from_:,}, from {model.checkpoint}", err=True)


def graph_options(
    declaring: type, *, out: Path | None = None, weights: bool = False, required: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the argument and options of all commands on graphs, and the parameters that `declaring` declares.

    `out` is the default path of the result, and `required` has the names of parameters without a default.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        command.__doc__ = f"{command.__doc__}{_INPUTS.format(weight=' [weight]' if weights else '')}"
        inputs = click.argument("inputs", nargs=-1, required=True)
        result = click.option(
            "-o",
            "--out",
            type=PathOrUrl(*TABLE_FORMATS),
            default=out,
            show_default=True,
            help=f"File or URL to write: {', '.join(TABLE_FORMATS)}.",
        )
        command = table_options(command)
        for option in reversed((result, overwrite_option, *_OPTIONS)):
            command = option(command)
        return inputs(parameter_options(declaring, "on_failure", required=required)(command))

    return decorate
