"""Provide files by path or URL: sources to read, and results that are written atomically."""
