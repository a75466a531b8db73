"""Shared parts of the benchmark commands: options, the file of figures, and programs on emulated hosts."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from ripieno.bench import figures, table
from ripieno.bench.figures import Measurements
from ripieno.lab import Lab, missing_requirement

HERE = Path(__file__).resolve().parent

quick_option = click.option("--quick", is_flag=True, help="Run small and short, as a test without measurements.")
json_option = click.option("--json", "target", type=click.Path(path_type=Path), help="File for the figures.")
repetitions_option = click.option("--repetitions", type=click.IntRange(min=1), help="Alternating runs of each case.")


def write(target: Path | None, found: Mapping[str, Any], *, quick: bool) -> None:
    """Write the results, with a description of the machine, to `target`, if given."""
    if target is not None:
        target.write_text(json.dumps({"machine": figures.machine(), "quick": quick, **found}, indent=2) + "\n")


def show(report: Measurements, target: Path | None, *, quick: bool) -> None:
    """Print a report, and write it to `target`, if given."""
    table.show(table.console(), report)
    write(target, {"reports": [report.as_json()]}, quick=quick)


def need_lab() -> None:
    """End the command if this machine cannot emulate hosts."""
    reason = missing_requirement()
    if reason is not None:
        raise click.ClickException(reason)


def found_by_ranks(lab: Lab, program: str, case: Any, timeout_s: float) -> dict[str, Any]:
    """Run ``PROGRAM CASE_JSON FILE`` on every host and return the contents of rank 0's file. `case` is a dataclass."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "found.json"
        words = [sys.executable, str(HERE / program), json.dumps(asdict(case)), str(target)]
        code = lab.run(words, timeout_s=timeout_s, prefix=False)
        if code != 0:
            raise click.ClickException(f"{program}: the ranks ended with code {code}")
        return json.loads(target.read_text())
