"""Provide the version of Ripieno from the native module, because a search of package metadata takes longer."""

from ripieno._native import __version__ as __version__
