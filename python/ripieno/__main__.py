"""Run the command `ripieno` as `python -m ripieno`. Launchers start ranks in this way."""

from ripieno.cli import run

run()
