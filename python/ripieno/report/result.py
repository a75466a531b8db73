"""Result sections of a page: scatter plot, cluster profiles, and the command that repeats the fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ripieno.algorithms.reported import About
from ripieno.report import charts, scatter

#: Maximum number of columns in the table of cluster means.
COLUMN_COUNT = 12
#: A mean is highlighted if it is this many standard deviations away from the mean of all means.
OUTLIER_DEVIATIONS = 1.5


@dataclass(frozen=True)
class Charted:
    """A chart on the page of a fit.

    Parameters
    ----------
    title, explanation
        Text above the chart.
    svg
        SVG text from `charts`.
    """

    title: str
    explanation: str
    svg: str


def of_result(about: About | None, command: str | None = None) -> dict[str, Any]:
    """Return the template variables of the result; empty for a report without result data."""
    return {
        "scatter": None if about is None else _scatter(about),
        "profiles": None if about is None else _profiles(about),
        "code": command or (None if about is None else about.code),
    }


def charts_of(about: About | None) -> list[Charted]:
    """Return the charts of a result: shares of the variance, and coefficients."""
    found: list[Charted] = []
    if about is not None and about.variance_shares is not None:
        shares = {
            "share of the variance": about.variance_shares.tolist(),
            "sum of the shares": np.cumsum(about.variance_shares).tolist(),
        }
        svg = charts.line_chart("variance", shares, x="axis")
        text = "Share of the variance of each axis, and the cumulative share."
        found.append(Charted("Variance along the axes", text, svg))
    if about is not None and about.coefficients:
        count, shown = about.coefficient_count, len(about.coefficients)
        text = f"The {shown} largest of {count:,} coefficients." if shown < count else "The weights of the columns."
        svg = charts.bar_chart("coefficients", about.coefficients)
        found.append(Charted("Coefficients", f"{text} They depend on the units of the columns.", svg))
    return found


def capitalized(text: str) -> str:
    """Return the text with a capital first letter and the rest unchanged."""
    return text[:1].upper() + text[1:]


def _scatter(about: About) -> tuple[str, str] | None:
    if about.points is None or len(about.points) < 2:
        return None
    words = (
        "Each point is the result for a row or a cluster."
        if about.sizes is None
        else "Each disc is a cluster, along the two directions in which they lie farthest apart; its "
        "area shows the number of rows."
    )
    if about.rows is None or about.row_clusters is None:
        return words, scatter.scatter_chart("plane", about.points, sizes=about.sizes)
    words += f" The small points are {len(about.rows)} of the rows, in the color of their cluster."
    return words, scatter.scatter_chart("plane", about.points, sizes=about.sizes, rows=(about.rows, about.row_clusters))


def _profiles(about: About) -> dict[str, Any] | None:
    """Return the means of clusters by named columns. If there are too many columns, keep the most different ones."""
    if not about.profiles:
        return None
    table = np.stack(list(about.profiles.values()), axis=1)
    spread = table.std(axis=0)
    relative = spread / (np.abs(table).max(axis=0) + 1e-300)
    chosen = np.sort(np.argsort(-relative, kind="stable")[:COLUMN_COUNT])
    names = list(about.profiles)
    sizes = None if about.sizes is None else about.sizes[: len(table)]
    order = np.arange(len(table)) if sizes is None else np.argsort(-sizes, kind="stable")
    away = np.abs(table - table.mean(axis=0)) > OUTLIER_DEVIATIONS * np.where(spread > 0, spread, np.inf)
    return {
        "names": [names[at] for at in chosen],
        "sizes": sizes is not None,
        "rows": [
            {
                "number": int(number),
                "size": 0 if sizes is None else int(sizes[number]),
                "means": [(f"{table[number, at]:.5g}", bool(away[number, at])) for at in chosen],
            }
            for number in order
        ],
    }
