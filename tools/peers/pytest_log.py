"""A plugin of pytest: append the outcome of each test to the log that the caller names."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def pytest_runtest_logreport(report: Any) -> None:
    """Append the outcome of a test, or of its setup unless it passed."""
    if report.when == "call" or report.outcome != "passed":
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        outcome = "passed" if hasattr(report, "wasxfail") else report.outcome
        # An inherited test is at the location of its class, and its id has the file that runs it unless there is one.
        path, _, test = report.nodeid.partition("::")
        name = f"{Path(path or report.location[0]).name}::{test}"
        with Path(os.environ["RIPIENO_PEERS_LOG"]).open("a") as log:
            log.write(json.dumps({"test": name, "outcome": outcome, "text": text}) + "\n")
