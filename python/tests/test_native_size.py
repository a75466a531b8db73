"""Installed files stay within their size limits."""

from __future__ import annotations

from pathlib import Path

from ripieno import _native


def test_the_native_module_has_no_debug_symbols():
    # An ELF file contains the names of its sections.
    assert b"\0.symtab\0" not in Path(_native.__file__).read_bytes(), "build it again: make setup strips it"
