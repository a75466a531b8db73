"""Provide the current command line, for reports that print the command that repeats a run."""

from __future__ import annotations

import os
import shlex

import click

#: Key under which the command group stores the line.
COMMAND_LINE = "ripieno.command_line"


def command_line() -> str | None:
    """Return shell lines that repeat the command in its folder and overwrite its results; None outside a command."""
    context = click.get_current_context(silent=True)
    line: str | None = None if context is None else context.meta.get(COMMAND_LINE)
    if context is None or line is None:
        return None
    needs_overwrite = "overwrite" in context.params and not context.params["overwrite"]
    if needs_overwrite:
        # Behind a `--` it would be an input.
        options, inputs = line.split(" -- ", 1) if " -- " in line else (line, None)
        line = f"{options} --overwrite" + ("" if inputs is None else f" -- {inputs}")
    return f"cd {shlex.quote(os.getcwd())}\n{line}"
