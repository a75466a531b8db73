"""Run the command `ripieno` as `python -m ripieno.cli`."""

import sys

from ripieno.cli import main

sys.exit(main())
