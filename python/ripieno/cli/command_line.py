"""The current command line, for reports that print how to repeat a run."""

from __future__ import annotations

import click

#: Key under which the command group stores the line.
COMMAND_LINE = "ripieno.command_line"


def command_line() -> str | None:
    """Return the line, quoted for a shell; None outside of a command."""
    context = click.get_current_context(silent=True)
    line: str | None = None if context is None else context.meta.get(COMMAND_LINE)
    return line
