"""The version of Ripieno, as compiled into the native module: package metadata take longer to look up."""

from ripieno._native import __version__ as __version__
