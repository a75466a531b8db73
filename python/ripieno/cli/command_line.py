"""The line that has called this command, for reports, which say what repeats them."""

from __future__ import annotations

import click

#: Where the group of commands keeps it.
COMMAND_LINE = "ripieno.command_line"


def command_line() -> str | None:
    """As a shell takes it; None outside of a command."""
    context = click.get_current_context(silent=True)
    line: str | None = None if context is None else context.meta.get(COMMAND_LINE)
    return line
