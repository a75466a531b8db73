"""`python -m ripieno.cli` is `ripieno`."""

import sys

from ripieno.cli import main

sys.exit(main())
