"""Provide tables and figures of papers next to values that this package measures, simulates or computes.

Each has a kind. A *measured* value comes from a run on this machine or on hosts that it emulates, at a stated scale. A
*simulated* value comes from plans or state machines on a modeled cluster. Its inputs are independent: none is taken
from the figure that they explain. A *formula* value only evaluates a formula or proportion that the paper states.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from rich.console import Console
from rich.table import Table

from ripieno.simulation.cluster import Cluster
from ripieno.simulation.simulate import simulate

#: Source of an input that no paper states.
ASSUMPTION = "assumption"


class Kind(Enum):
    """The origin of a value."""

    MEASURED = "measured here"
    SIMULATED = "simulated from independent inputs"
    FORMULA = "arithmetic of the paper's formula"

    @property
    def column(self) -> str:
        """Return the heading of a column of such values."""
        return self.name.lower()


@dataclass(frozen=True)
class Input:
    """An input of a simulation or formula, or the scale of a measurement, and its source."""

    text: str
    source: str


@dataclass(frozen=True)
class Claim:
    """A claim of the paper without a number per row, paraphrased, and whether our values agree."""

    text: str
    finding: str


@dataclass(frozen=True)
class FigureRow:
    """One value: its label, the number that the paper prints, if any, and the number found here."""

    label: str
    printed: float | None
    value: float

    @property
    def deviation(self) -> float | None:
        """Return the relative deviation from the printed number."""
        return None if self.printed is None else self.value / self.printed - 1

    @property
    def cells(self) -> tuple[str, str, str]:
        """Return the printed value, the value found here and the deviation as text."""
        printed = "" if self.printed is None else f"{self.printed:g}"
        off = "" if self.deviation is None else f"{self.deviation:+.1%}"
        return printed, f"{self.value:.4g}", off


@dataclass(frozen=True)
class Reproduction:
    """A table or figure of a paper, and its values here.

    Parameters
    ----------
    name
        Name of the paper, and of the table or figure.
    title
        Title, with the scale.
    kind
        Kind of the values.
    unit
        Unit of the values.
    inputs
        Inputs with their sources; for a measurement, its scale and machine.
    rows
        Values by label.
    claims
        Claims of the paper about this table or figure that have no number per row.
    remarks
        Reasons for deviations, and limits of the model.
    reference
        Heading of the printed numbers: "paper", or "formula" if the paper prints formulas only.
    """

    name: str
    title: str
    kind: Kind
    unit: str
    inputs: Sequence[Input]
    rows: Sequence[FigureRow]
    claims: Sequence[Claim] = ()
    remarks: Sequence[str] = ()
    reference: str = "paper"

    @property
    def headings(self) -> tuple[str, ...]:
        """Return the headings of the table; without printed numbers it has one column of values."""
        found = f"{self.kind.column} [{self.unit}]"
        return ("", f"{self.reference} [{self.unit}]", found, "off by") if self._is_compared else ("", found)

    @property
    def lines(self) -> list[tuple[str, ...]]:
        """Return the lines of the table."""
        return [(row.label, *row.cells) if self._is_compared else (row.label, row.cells[1]) for row in self.rows]

    @property
    def _is_compared(self) -> bool:
        return any(row.printed is not None for row in self.rows)

    def as_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        rows = [{**asdict(row), "deviation": row.deviation} for row in self.rows]
        return {**asdict(self), "kind": self.kind.value, "rows": rows}

    def as_markdown(self) -> str:
        """Return a Markdown section."""
        lines = [f"## {self.name}", "", _filled(f"{self.title}. *{_capitalized(self.kind.value)}.*"), ""]
        scale = "measured on" if self.kind is Kind.MEASURED else "input"
        lines += _markdown_table((scale, "source"), [(each.text, each.source) for each in self.inputs])
        lines += _markdown_table(self.headings, self.lines)
        if self.claims:
            lines += _markdown_table(("the paper claims", "here"), [(each.text, each.finding) for each in self.claims])
        return "\n".join([*lines, *(_filled(each, "- ", "  ") for each in self.remarks), *[""][: len(self.remarks)]])

    def __str__(self) -> str:
        target = Console(file=io.StringIO(), width=100, highlight=False)
        table = Table(box=None, pad_edge=False, header_style="")
        for heading in self.headings:
            table.add_column(heading.replace("[", r"\["), justify="right" if heading else "left")
        for line in self.lines:
            table.add_row(*line)
        target.print(f"{self.title} ({self.kind.value})")
        for each in self.inputs:
            target.print(f"  {each.text} ({each.source})", markup=False)
        target.print(table)
        for claim in self.claims:
            target.print(f"- The paper claims: {claim.text} Here: {claim.finding}", markup=False)
        for remark in self.remarks:
            target.print(f"- {remark}", markup=False)
        file = target.file
        assert isinstance(file, io.StringIO)
        return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def _markdown_table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    rows = [headings, ["---"] * len(headings), *lines]
    return ["|" + "|".join(row) + "|" if row[0] == "---" else f"| {' | '.join(row)} |" for row in rows] + [""]


def _filled(text: str, first: str = "", other: str = "") -> str:
    """Return a text wrapped to the width of the page."""
    return textwrap.fill(text, 120, initial_indent=first, subsequent_indent=other, break_on_hyphens=False)


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def seconds_of(algorithm: str, cluster: Cluster, nbytes: float, collective: str = "broadcast") -> float:
    """Return the seconds of a collective with an algorithm."""
    seconds = simulate(collective, cluster, nbytes=int(nbytes), algorithm=algorithm).seconds
    assert seconds is not None, "no rank fails on these clusters"
    return seconds
