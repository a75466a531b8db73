"""What was found, for eyes and for machines."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

import ripieno._native as _native
from ripieno.bench import figures, table
from ripieno.bench.choice import TOLERANCE, Cell
from ripieno.bench.figures import Measurements
from ripieno.units import duration_text, size_text

OFF = f"more than {TOLERANCE - 1:.0%} off the best"


@dataclass
class Found:
    """Figures of collectives."""

    report: Measurements
    failed: list[str] = field(default_factory=list)

    def show(self, target: Console) -> None:
        """Print tables."""
        target.print("  ".join(f"{key} {value}" for key, value in figures.machine().items()))
        table.show(target, self.report)

    def write_plot(self, path: Path) -> None:
        """Write a page with plots."""
        # Brings matplotlib with it.
        from ripieno.bench.pages.speed import write_speed

        write_speed(path, self.report.figures, machine=figures.machine(), remarks=self.report.remarks)

    def as_json(self) -> dict[str, object]:
        """For machines to read."""
        return {"machine": figures.machine(), **self.report.as_json(), "failed": self.failed}


@dataclass
class FoundChoice:
    """How good the default choice is."""

    cells: list[Cell]
    failed: tuple[str, ...] = ()  # nobody but ours takes part

    def show(self, target: Console) -> None:
        """Print where it is too far off."""
        off = [cell for cell in self.cells if cell.is_off]
        rows = Table(title=f"default choice {OFF}", title_justify="left")
        for heading in ("collective", "ranks", "bytes in all", "default", "", "best", "", "of best"):
            rows.add_column(heading)
        for cell in off:
            default_s, best_s = (_time(cell, name) for name in (cell.chosen, cell.best))
            size, ranks = size_text(cell.size_bytes), str(cell.world_size)
            rows.add_row(
                cell.collective,
                ranks,
                size,
                cell.chosen,
                default_s,
                cell.best,
                best_s,
                f"{cell.to_best(cell.chosen):.2f}",
            )
        if off:
            target.print(rows)
        target.print(f"{len(off)} of {len(self.cells)} choices are {OFF}")
        timed: dict[tuple[str, int], set[str]] = {}
        for cell in self.cells:
            timed.setdefault((cell.collective, cell.world_size), set()).update(cell.seconds)
        for (collective, world_size), names in timed.items():
            for name in _native.algorithms(collective):
                if name not in names:
                    target.print(f"note: {collective}={name} is left out: it is not for {world_size} ranks")

    def as_json(self) -> dict[str, object]:
        """For machines to read."""
        return {"machine": figures.machine(), "cells": [cell.as_json() for cell in self.cells]}


def _time(cell: Cell, name: str) -> str:
    return duration_text(cell.seconds[name]) if name in cell.seconds else "given up"
