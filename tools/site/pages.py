"""Pages of the site from files outside docs/ and from notebooks, and links that work in both places.

A hook of mkdocs. Files link to each other by their paths in the repository, so that links also work when browsing the
repository. `from_repository` in mkdocs.yml lists the files that are pages, besides the Markdown files in docs/.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

COMMANDS = "python/ripieno/cli"
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(?=[)#])")
FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
HELP_COLUMNS = 80


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/."""
    from mkdocs.structure.files import File

    for page, source in config.extra["from_repository"].items():
        content = commands_page() if source == COMMANDS else content_of(Path(config.config_file_path).parent / source)
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links to pages of the site."""
    pages: dict[str, str] = config.extra["from_repository"]
    here = page.file.src_uri
    source = pages.get(here, f"docs/{here}")
    # A page links to the notebook that it is made from as to a file.
    others = {each: page for page, each in pages.items() if each != source}
    return linked(markdown, source, here, others)


def content_of(source: Path) -> str:
    """Return a file as Markdown: pages unchanged, a folder of programs as one page, a notebook with its output, other
    text as a code block."""
    if source.is_dir():
        programs = (
            f"## {path.name}\n\n```python\n{path.read_text('utf-8')}```" for path in sorted(source.glob("*.py"))
        )
        return "\n\n".join(["# Examples", *programs]) + "\n"
    text = source.read_text("utf-8")
    if source.suffix == ".ipynb":
        return "\n\n".join(_of_cell(cell) for cell in json.loads(text)["cells"]) + "\n"
    return text if source.suffix == ".md" else f"# {source.name.capitalize()}\n\n```text\n{text}\n```\n"


def _of_cell(cell: Mapping[str, Any]) -> str:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    if cell["cell_type"] != "code":
        return f"```text\n{source}\n```"
    printed = "".join(map(_text_of, cell["outputs"]))
    return f"```python\n{source}\n```" + (f"\n\n```text\n{printed.rstrip()}\n```" if printed else "")


def _text_of(output: Mapping[str, Any]) -> str:
    """Return the text of an output of a notebook: printed, the value of a cell, or the traceback of an error."""
    if output["output_type"] == "error":
        return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(output["traceback"])) + "\n"
    return "".join(output["text"] if output["output_type"] == "stream" else output["data"].get("text/plain", ""))


def commands_page() -> str:
    """Return the ``--help`` text of every command, one section each."""
    from ripieno.cli import cli

    sections = (f"## {name}\n\n```text\n{text}\n```" for name, text in helps(cli, "ripieno"))
    return "\n\n".join(["# Command line", "The `--help` text of every command.", *sections]) + "\n"


def helps(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    """Yield names and help texts of a command and of all its subcommands."""
    settings = {**command.context_settings, "terminal_width": HELP_COLUMNS}
    context = command.context_class(command, info_name=name, parent=parent, **settings)
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            below = command.get_command(context, each)
            if below is not None and not below.hidden:
                yield from helps(below, each, context)


def linked(markdown: str, source: str, page: str, pages: Mapping[str, str]) -> str:
    """Return `markdown` of the repository file `source` with links that fit its page on the site."""

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[1]))
        found = pages.get(target, target.removeprefix("docs/") if target.startswith("docs/") else None)
        if found is None:
            raise ValueError(f"{source} links to {match[1]}, which is not a page of the site: name it in mkdocs.yml")
        return posixpath.relpath(found, posixpath.dirname(page) or ".")

    parts = FENCED.split(markdown)
    parts[::2] = [LINK.sub(link, text) for text in parts[::2]]
    return "".join(parts)
