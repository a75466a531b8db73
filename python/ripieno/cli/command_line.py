"""The current command line, for reports that print how to repeat a run."""

from __future__ import annotations

import os
import shlex

import click

#: Key under which the command group stores the line.
COMMAND_LINE = "ripieno.command_line"


def command_line() -> str | None:
    """Return lines for a shell that repeat the command in its folder, over its results; None outside of a command."""
    context = click.get_current_context(silent=True)
    line: str | None = None if context is None else context.meta.get(COMMAND_LINE)
    if context is None or line is None:
        return None
    replaces = "overwrite" in context.params and not context.params["overwrite"]
    return f"cd {shlex.quote(os.getcwd())}\n{line}{' --overwrite' if replaces else ''}"
