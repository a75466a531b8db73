"""Run the command `ripieno` as `python -m ripieno`. Launchers start ranks in this way."""

import sys

from ripieno.cli import main

sys.exit(main())
