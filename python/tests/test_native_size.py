"""What is installed is no larger than it has to be."""

from __future__ import annotations

from pathlib import Path

from ripieno import _native

MOST_BYTES = 12 << 20


def test_the_native_module_comes_without_symbols():
    assert Path(_native.__file__).stat().st_size < MOST_BYTES, "build it anew: maturin strips it"
