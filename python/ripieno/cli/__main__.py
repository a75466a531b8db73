"""Run the command `ripieno` as `python -m ripieno.cli`."""

from ripieno.cli import run

run()
