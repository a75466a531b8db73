"""`ripieno reproduce`: figures of papers, simulated at the papers' own scale, beside what they print."""

from __future__ import annotations

import json

import click


@click.command("reproduce", short_help="Simulate figures of papers beside what they print.")
@click.argument("name", metavar="NAME|list")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def reproduce_command(name: str, as_json: bool) -> None:
    """Simulate a table or figure of a paper at its own scale, beside what the paper prints.

    \b
    Examples:
      ripieno reproduce list
      ripieno reproduce twister-table-8
    """
    from ripieno.simulation import papers

    if name != "list":
        found = papers.reproduce(name)
        click.echo(json.dumps(found.as_json(), indent=2) if as_json else str(found))
        return
    about = {each: (make.__doc__ or "").strip() for each, make in papers.REPRODUCTIONS.items()}
    if as_json:
        click.echo(json.dumps(about, indent=2))
        return
    for each, text in about.items():
        click.echo(f"{each:18} {text}")
