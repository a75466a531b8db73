"""Pages on what was measured."""
