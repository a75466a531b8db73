"""Which Ripieno this is."""

from importlib.metadata import PackageNotFoundError, version

# What a source tree that was never installed calls itself.
UNKNOWN_VERSION = "0+unknown"

try:
    __version__ = version("ripieno")
except PackageNotFoundError:
    __version__ = UNKNOWN_VERSION
