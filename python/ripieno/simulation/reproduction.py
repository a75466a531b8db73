"""Tables and figures of papers compared with their simulation."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from ripieno.simulation.cluster import Cluster
from ripieno.simulation.simulate import simulate


@dataclass(frozen=True)
class FigureRow:
    """One value: its label, the printed and the simulated number, in seconds or as a ratio."""

    of: str
    printed: float | None
    simulated: float

    @property
    def deviation(self) -> float | None:
        """Return the relative deviation of the simulation."""
        return None if self.printed is None else self.simulated / self.printed - 1

    @property
    def cells(self) -> tuple[str, str, str]:
        """Return the printed value, the simulated value and the deviation as text."""
        printed = "" if self.printed is None else f"{self.printed:g}"
        off = "" if self.deviation is None else f"{self.deviation:+.1%}"
        return printed, f"{self.simulated:.4g}", off


@dataclass(frozen=True)
class Reproduction:
    """A table or figure of a paper and its simulation."""

    name: str
    title: str
    unit: str
    rows: Sequence[FigureRow]
    remarks: Sequence[str]

    def as_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        rows = [{**asdict(row), "deviation": row.deviation} for row in self.rows]
        return {"name": self.name, "title": self.title, "unit": self.unit, "rows": rows, "remarks": [*self.remarks]}

    def as_markdown(self) -> str:
        """Return a Markdown section."""
        lines = [f"## {self.name}", "", f"{self.title}.", ""]
        lines += [f"| | paper [{self.unit}] | simulated [{self.unit}] | off by |", "|---|---|---|---|"]
        lines += [f"| {' | '.join((row.of, *row.cells))} |" for row in self.rows]
        return "\n".join([*lines, "", *(_item(remark) for remark in self.remarks), ""])

    def __str__(self) -> str:
        target = Console(file=io.StringIO(), width=100, highlight=False)
        table = Table(box=None, pad_edge=False, header_style="")
        for heading in ("", f"paper [{self.unit}]", f"simulated [{self.unit}]", "off by"):
            table.add_column(heading.replace("[", r"\["), justify="right" if heading else "left")
        for row in self.rows:
            table.add_row(row.of, *row.cells)
        target.print(self.title)
        target.print(table)
        for remark in self.remarks:
            target.print(f"- {remark}")
        file = target.file
        assert isinstance(file, io.StringIO)
        return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def _item(remark: str) -> str:
    """Return a remark as a list item, wrapped to the width of the page."""
    return textwrap.fill(remark, 120, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)


def seconds_of(algorithm: str, cluster: Cluster, nbytes: float, collective: str = "broadcast") -> float:
    """Return the seconds of a collective with an algorithm."""
    seconds = simulate(collective, cluster, nbytes=int(nbytes), algorithm=algorithm).seconds
    assert seconds is not None, "no rank fails on these clusters"
    return seconds
