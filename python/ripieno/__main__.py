"""`python -m ripieno` is `ripieno`; ranks of a launcher run it by this name."""

import sys

from ripieno.cli import main

sys.exit(main())
