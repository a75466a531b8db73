"""Test parameters with more values in the full test run."""

from __future__ import annotations

from typing import Any

import pytest


def exhaustively(*values: Any) -> list[Any]:
    """Return these values of a parameter, or tuples of several, for `make test-all` alone."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.exhaustive)
        for value in values
    ]
