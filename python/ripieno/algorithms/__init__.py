"""Distributed algorithms as scikit-learn estimators. The stub next to this file lists them."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

from ripieno._deferred import deferred

# Workers import the programs of this package without scikit-learn, which only estimators use.
_STUB = Path(__file__).with_suffix(".pyi").read_text("utf-8")
_MODULES = {name: module for module, name in re.findall(r"^from (\S+) import (\w+) as", _STUB, re.MULTILINE)}

#: Names of the estimators.
ESTIMATORS = tuple(sorted(_MODULES))
__all__ = list(ESTIMATORS)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        with deferred():
            return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
