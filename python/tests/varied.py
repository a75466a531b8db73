"""Parameters of tests that vary more when everything is tested."""

from __future__ import annotations

from typing import Any

import pytest


def exhaustively(*values: Any) -> list[Any]:
    """Return these values of a parameter, or tuples of several, for `make test-all` alone."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.exhaustive)
        for value in values
    ]
