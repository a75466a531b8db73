"""Options of the commands that read tables: the options of `ripieno.input.TableFiles`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, get_args

import click

from ripieno._types import Missing
from ripieno.errors import InputError

if TYPE_CHECKING:
    from ripieno.input import TableFiles


_NAMES: dict[str, Any] = {"metavar": "NAME,NAME,…", "callback": lambda _, __, text: text and tuple(text.split(","))}
_CHARACTER: dict[str, Any] = {"metavar": "CHARACTER"}


def _types(_: click.Context, __: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    """Return the type of each named column."""
    wrong = next((text for text in given if "=" not in text), None)
    if wrong is not None:
        raise InputError(f"types={wrong!r}: expected NAME=TYPE, such as zip=string")
    return {name: kind for name, _, kind in (text.rpartition("=") for text in given)}


_TYPES_OPTION = click.option(
    "--types", multiple=True, metavar="NAME=TYPE", callback=_types, help="The Arrow type of a column of text."
)
_TEXT_OPTIONS = (
    click.option(
        "--header/--no-header",
        default=None,
        help="Whether .csv begins with a line of names; by default detected from the types of the fields.",
    ),
    click.option("--delimiter", **_CHARACTER, help="Field separator of .csv; by default a comma, semicolon or tab."),
    click.option("--decimal", default=".", show_default=True, **_CHARACTER, help="The decimal point in .csv."),
    click.option("--thousands", **_CHARACTER, help="The thousands separator in .csv; by default none."),
)
_OPTIONS = (
    click.option("--columns", **_NAMES, help="The columns of tables to read; by default all."),
    click.option("--ignore", default="", **_NAMES, help="Columns of tables that are not read."),
    _TYPES_OPTION,
    click.option(
        "--missing",
        type=click.Choice(get_args(Missing)),
        help="Leave out rows with missing values, or use the mean of the column instead; by default they are errors.",
    ),
    click.option("--id", metavar="NAME", help="The column with the names of the rows. It is not used as values."),
    *_TEXT_OPTIONS,
)
#: Names of the options of `text_options`.
TEXT_OPTION_NAMES = ("types", "header", "delimiter", "decimal", "thousands")


def names_option(*words: str, **options: Any) -> Callable[..., Any]:
    """Return an option with names of columns, separated by commas."""
    return click.option(*words, **_NAMES, **options)


def text_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for reading .csv: --types, --header, --delimiter, --decimal and --thousands."""
    for option in reversed((_TYPES_OPTION, *_TEXT_OPTIONS)):
        command = option(command)
    return command


def table_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of tables to a command. Its argument `tables` is a list of the inputs, or `TableFiles` with
    options.
    """

    @functools.wraps(command)
    def with_tables(inputs: tuple[str, ...], **given: Any) -> Any:
        from ripieno.input import TableFiles
        from ripieno.input.columns import TableOptions

        defaults = asdict(TableOptions())
        named = {name: defaults[name] if given[name] in (None, "") else given[name] for name in defaults}
        others = {name: value for name, value in given.items() if name not in defaults}
        tables = list(inputs) if named == defaults else TableFiles(list(inputs), **named)
        return command(inputs=inputs, tables=tables, **others)

    for option in reversed(_OPTIONS):
        with_tables = option(with_tables)
    return with_tables


def as_files(inputs: str, tables: list[str] | TableFiles) -> str | TableFiles:
    """Return `inputs` with the options of `tables`, if there are any."""
    from ripieno.input import TableFiles

    return replace(tables, source=inputs) if isinstance(tables, TableFiles) else inputs
