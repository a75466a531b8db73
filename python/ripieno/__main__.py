"""`python -m ripieno` runs the command `ripieno`; launchers start ranks by this name."""

import sys

from ripieno.cli import main

sys.exit(main())
