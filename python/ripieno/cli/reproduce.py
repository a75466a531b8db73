"""The command `ripieno reproduce`: figures of papers, measured, simulated or computed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ripieno.cli.options import LocalPath, aliased_option, overwrite_option

if TYPE_CHECKING:
    from ripieno.simulation.reproduction import Reproduction


@click.command("reproduce")
@click.argument("name", metavar="NAME|list|all")
@click.option("--measured", is_flag=True, help="With all: also the figures that are measured, as root.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@aliased_option(
    "-o",
    "--out",
    aliases=["--write"],
    type=LocalPath(".md", dir_okay=False),
    metavar="FILE.md",
    help="File for a page of all figures, as Markdown.",
)
@overwrite_option
def reproduce_command(name: str, measured: bool, as_json: bool, out: Path | None, overwrite: bool) -> None:
    """Reproduce a table or figure of a paper, together with the values that the paper prints.

    Values are measured on this machine, simulated from independent inputs at the paper's scale, or arithmetic of the
    paper's formula. `ripieno reproduce list` prints the kind of each figure.

    \b
    Examples:
      ripieno reproduce list
      ripieno reproduce twister-table-8
      ripieno reproduce all --out papers.md
    """
    from ripieno.files.results import check_results, write_text
    from ripieno.simulation import papers

    for option, given in (("--out", out is not None), ("--measured", measured)):
        if given and name != "all":
            raise click.UsageError(f"{option}: expected ripieno reproduce all, not {name}")
    check_results({"--out": out}, overwrite=overwrite)
    if name == "list":
        _list(as_json=as_json)
        return
    found = _all(measured=measured) if name == "all" else [_reproduced(name)]
    if out is not None:
        write_text(out, papers.page(found))
        click.echo(out)
        return
    report = [each.as_json() for each in found]
    text = json.dumps(report if name == "all" else report[0], indent=2)
    click.echo(text if as_json else "\n\n".join(str(each) for each in found))


def _all(*, measured: bool) -> list[Reproduction]:
    from ripieno.bench import paper_figures
    from ripieno.simulation import papers

    names = [*papers.REPRODUCTIONS]
    if measured:
        for each in paper_figures.MEASURED:
            paper_figures.check_possible(each)
        names += paper_figures.MEASURED
    return [_reproduced(each) for each in sorted(names, key=_by_number)]


def _reproduced(name: str) -> Reproduction:
    from ripieno.bench import paper_figures
    from ripieno.errors import InputError
    from ripieno.simulation import papers

    if name in paper_figures.MEASURED:
        return paper_figures.measure(name)
    if name not in papers.REPRODUCTIONS:
        names = sorted((*papers.REPRODUCTIONS, *paper_figures.MEASURED), key=_by_number)
        raise InputError(f"name={name!r}: expected one of {', '.join(names)}")
    return papers.REPRODUCTIONS[name]()


def _by_number(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts figure 11 after figure 9."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def _list(*, as_json: bool) -> None:
    from ripieno.bench import paper_figures
    from ripieno.simulation import papers

    makers = {**papers.REPRODUCTIONS, **{name: each.measure for name, each in paper_figures.MEASURED.items()}}
    about = {each: (makers[each].__doc__ or "").strip() for each in sorted(makers, key=_by_number)}
    for each, figure in paper_figures.MEASURED.items():
        about[each] = f"Measured{' as root' if figure.needs_hosts else ''}: {about[each]}"
    if as_json:
        click.echo(json.dumps(about, indent=2))
        return
    for each, text in about.items():
        click.echo(f"{each:22} {text}")
