"""The command `ripieno reproduce`: figures of papers, simulated or measured, compared with the printed values."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from ripieno.cli.options import LocalPath, aliased_option, overwrite_option


@click.command("reproduce")
@click.argument("name", metavar="NAME|list|all")
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
def reproduce_command(name: str, as_json: bool, out: Path | None, overwrite: bool) -> None:
    """Simulate a table or figure of a paper at its own scale, together with the values that the paper prints.

    Some are measured on this machine instead; `ripieno reproduce list` marks them.

    \b
    Examples:
      ripieno reproduce list
      ripieno reproduce twister-table-8
      ripieno reproduce all --out papers.md
    """
    from ripieno.files.results import check_results, write_text
    from ripieno.simulation import papers

    if out is not None and name != "all":
        raise click.UsageError(f"--out: expected ripieno reproduce all, not {name}")
    check_results({"--out": out}, overwrite=overwrite)
    if name in papers.MEASURED:
        from ripieno.cli import main

        if as_json:
            raise click.UsageError(f"--json: {name} is measured; expected the option of ripieno bench")
        sys.exit(main(list(papers.MEASURED[name][1])))
    if name == "list":
        _list(as_json=as_json)
    elif out is not None:
        write_text(out, papers.page())
        click.echo(out)
    else:
        found = [papers.reproduce(each) for each in (papers.REPRODUCTIONS if name == "all" else [name])]
        report = [each.as_json() for each in found]
        text = json.dumps(report if name == "all" else report[0], indent=2)
        click.echo(text if as_json else "\n\n".join(str(each) for each in found))


def _list(*, as_json: bool) -> None:
    from ripieno.simulation import papers

    about = {each: (make.__doc__ or "").strip() for each, make in papers.REPRODUCTIONS.items()}
    about |= {each: text for each, (text, _) in papers.MEASURED.items()}
    if as_json:
        click.echo(json.dumps(about, indent=2))
        return
    for each, text in sorted(about.items()):
        click.echo(f"{each:22} {text}")
