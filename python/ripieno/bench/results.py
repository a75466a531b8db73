"""Provide the results of `ripieno bench` as tables, pages and JSON."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

import ripieno._native as _native
from ripieno.bench import figures, table
from ripieno.bench.choice import GIVE_UP_RATIO, TOLERANCE, Cell
from ripieno.bench.figures import Measurements
from ripieno.bench.policies import POLICIES, Policy
from ripieno.units import duration_text, size_text

OFF = f"more than {TOLERANCE - 1:.0%} off the best"


@dataclass
class CollectiveFigures:
    """Figures of collectives."""

    report: Measurements
    failed: list[str] = field(default_factory=list)

    def show(self, target: Console) -> None:
        """Print tables."""
        target.print("  ".join(f"{key} {value}" for key, value in figures.machine().items()))
        table.show(target, self.report)

    def write_plot(self, path: Path) -> None:
        """Write a page with plots."""
        # This import loads matplotlib.
        from ripieno.bench.pages.speed import write_speed

        write_speed(path, self.report.figures, machine=figures.machine(), remarks=self.report.remarks)

    def as_json(self) -> dict[str, object]:
        """Return a machine-readable form."""
        return {"machine": figures.machine(), **self.report.as_json(), "failed": self.failed}


@dataclass
class ChoiceResults:
    """Evaluation of the default choice."""

    cells: list[Cell]
    failed: tuple[str, ...] = ()  # no peers take part

    def show(self, target: Console) -> None:
        """Print the cases with a bad default choice."""
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
        target.print(self._policies())
        timed: dict[tuple[str, int], set[str]] = {}
        for cell in self.cells:
            timed.setdefault((cell.collective, cell.world_size), set()).update(cell.stands_for)
        for (collective, world_size), names in timed.items():
            for name in _native.algorithms(collective):
                if name not in names:
                    target.print(f"note: {collective}={name} is left out: it is not for {world_size} ranks")

    def _policies(self) -> Table:
        """Return a table of each policy's times as multiples of the best, where they differ."""
        rows = Table(title="policies, as multiples of the best", title_justify="left")
        for heading in ("", "choices", "mean", "within 10 %", "worst", "default there"):
            rows.add_column(heading, justify="right" if heading else "left")
        for name, ratios in self.ratios().items():
            own, default = ([ratio[place] for ratio in ratios] for place in (0, 1))
            if not own:
                continue
            near = sum(ratio <= TOLERANCE for ratio in own) / len(own)
            means = [statistics.geometric_mean(each) for each in (own, default)]
            rows.add_row(name, str(len(own)), f"{means[0]:.2f}", f"{near:.0%}", f"{max(own):.2f}", f"{means[1]:.2f}")
        return rows

    def ratios(self) -> dict[str, list[tuple[float, float]]]:
        """Return for each policy its times and the default's as multiples of the best.

        An algorithm that is no longer tried counts with its last ratio.
        """
        policies: dict[str, Callable[[Cell], str | None]] = {"default": lambda cell: cell.chosen}
        if any(cell.default != cell.chosen for cell in self.cells):
            policies["default without trials"] = lambda cell: cell.default
        for name, policy in POLICIES.items():
            policies[name] = partial(_of_policy, policy)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in policies}
        for name, choose in policies.items():
            for cell in self.cells:
                algorithm = choose(cell)
                if algorithm in cell.stands_for:
                    own, default = (min(cell.to_best(each), GIVE_UP_RATIO) for each in (algorithm, cell.chosen))
                    found[name].append((own, default))
        return found

    def as_json(self) -> dict[str, object]:
        """Return a machine-readable form."""
        return {"machine": figures.machine(), "cells": [cell.as_json() for cell in self.cells], "ways": self.ratios()}


def _of_policy(policy: Policy, cell: Cell) -> str | None:
    return policy(cell.collective, cell.world_size, cell.size_bytes)


def _time(cell: Cell, name: str) -> str:
    seconds = cell.seconds.get(cell.stands_for.get(name, name))
    return "given up" if seconds is None else duration_text(seconds)
