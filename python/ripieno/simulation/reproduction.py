"""A table or figure of a paper beside its simulation."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from ripieno.simulation.cluster import Cluster
from ripieno.simulation.simulate import simulate


@dataclass(frozen=True)
class Row:
    """One figure: what it is of, what the paper prints, and what the simulation says, in seconds or as a ratio."""

    of: str
    printed: float | None
    simulated: float

    @property
    def deviation(self) -> float | None:
        """By which part the simulation is off."""
        return None if self.printed is None else self.simulated / self.printed - 1


@dataclass(frozen=True)
class Reproduction:
    """A table or figure of a paper beside its simulation."""

    name: str
    title: str
    unit: str
    rows: Sequence[Row]
    remarks: Sequence[str]

    def as_json(self) -> dict[str, Any]:
        """Everything as JSON has it."""
        rows = [{**asdict(row), "deviation": row.deviation} for row in self.rows]
        return {"name": self.name, "title": self.title, "unit": self.unit, "rows": rows, "remarks": [*self.remarks]}

    def __str__(self) -> str:
        target = Console(file=io.StringIO(), width=100, highlight=False)
        table = Table(box=None, pad_edge=False, header_style="")
        for heading in ("", f"paper [{self.unit}]", f"simulated [{self.unit}]", "off by"):
            table.add_column(heading.replace("[", r"\["), justify="right" if heading else "left")
        for row in self.rows:
            printed = "" if row.printed is None else f"{row.printed:g}"
            off = "" if row.deviation is None else f"{row.deviation:+.1%}"
            table.add_row(row.of, printed, f"{row.simulated:.4g}", off)
        target.print(self.title)
        target.print(table)
        for remark in self.remarks:
            target.print(f"- {remark}")
        file = target.file
        assert isinstance(file, io.StringIO)
        return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def seconds_of(algorithm: str, cluster: Cluster, nbytes: float, collective: str = "broadcast") -> float:
    """How long a collective takes by an algorithm."""
    seconds = simulate(collective, cluster, nbytes=int(nbytes), algorithm=algorithm).seconds
    assert seconds is not None, "nothing goes wrong on these clusters"
    return seconds
