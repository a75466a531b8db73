"""oneDAL as a peer: the estimators of scikit-learn-intelex. They must not fall back to scikit-learn's own code."""

from __future__ import annotations

import importlib
import logging
from typing import Any

from ripieno.bench.figures import Measurements
from ripieno.bench.toolchain import Skipped

NAME = "oneDAL"


def estimator(module: str, name: str) -> type[Any]:
    """Return an estimator of scikit-learn-intelex, such as `KMeans` of `cluster`.

    Raises
    ------
    Skipped
        The package is not installed.
    """
    try:
        found: type[Any] = getattr(importlib.import_module(f"sklearnex.{module}"), name)
    except ImportError as error:
        raise Skipped(f"{NAME} is not installed: make bench installs scikit-learn-intelex on x86-64") from error
    return found


def optional(report: Measurements, module: str, name: str) -> dict[str, type[Any]]:
    """Return `{NAME: estimator}`. If the package is not installed, add a remark and return an empty dict."""
    try:
        return {NAME: estimator(module, name)}
    except Skipped as skipped:
        report.remark(str(skipped))
        return {}


class OneDalOnly(logging.Handler):
    """Context that raises Skipped at its end if an estimator has fallen back to scikit-learn."""

    def __init__(self) -> None:
        super().__init__()
        self._logger, self._fallbacks = logging.getLogger("sklearnex"), list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        """Record a fallback."""
        if "fallback" in record.getMessage():
            self._fallbacks.append(record.getMessage())

    def __enter__(self) -> OneDalOnly:
        logger = self._logger
        self._before = logger.level, logger.handlers, logger.propagate
        logger.setLevel(logging.INFO)
        logger.handlers, logger.propagate = [self], False
        return self

    def __exit__(self, *_: object) -> None:
        level, self._logger.handlers, self._logger.propagate = self._before
        self._logger.setLevel(level)
        if self._fallbacks:
            raise Skipped(f"{NAME} is left out: {self._fallbacks[0]}")
