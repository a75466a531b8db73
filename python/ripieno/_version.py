"""Which Ripieno this is: as the native module was built, for what is installed would take long to look up."""

from ripieno._native import __version__ as __version__
