"""Result sections of a page: scatter plot, cluster profiles, and the command that repeats the fit."""

from __future__ import annotations

from collections.abc import Sequence
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
class PageChart:
    """A chart on the page of a fit.

    Parameters
    ----------
    title, explanation
        Text above the chart.
    svg
        SVG text from `charts`.
    legend
        CSS variables of colors, each with its meaning.
    """

    title: str
    explanation: str
    svg: str
    legend: Sequence[tuple[str, str]] = ()


def result_variables(about: About | None, command: str | None = None) -> dict[str, Any]:
    """Return the template variables of the result; empty for a report without result data."""
    return {
        "scatter": None if about is None else _scatter(about),
        "profiles": None if about is None else _profiles(about),
        "confusion": None if about is None else _confusion(about),
        "code": command or (None if about is None else about.code),
    }


def charts_of(about: About | None) -> list[PageChart]:
    """Return the charts of a result: shares of the variance, coefficients, residuals and ROC curves."""
    found: list[PageChart] = []
    if about is not None and about.variance_shares is not None:
        shares = {
            "share of the variance": about.variance_shares.tolist(),
            "cumulative share": np.cumsum(about.variance_shares).tolist(),
        }
        svg = charts.line_chart("variance", shares, from_zero=True, x="axis")
        text = "Share of the variance of each axis, and the cumulative share."
        found.append(PageChart("Variance along the axes", text, svg))
    if about is not None and about.coefficients:
        count, shown = about.coefficient_count, len(about.coefficients)
        text = f"The {shown} largest of {count:,} coefficients." if shown < count else "The weights of the columns."
        svg = charts.bar_chart("coefficients", about.coefficients)
        found.append(PageChart("Coefficients", f"{text} They depend on the units of the columns.", svg))
    predictions = None if about is None else about.predictions
    if predictions is not None and predictions.residuals is not None:
        text = "Residual (target minus prediction) by prediction, and a histogram of the residuals."
        if predictions.target_count > 1:
            text += f" The first of {predictions.target_count} targets."
        found.append(PageChart("Residuals", text, charts.residual_chart(*predictions.residuals)))
    if predictions is not None and predictions.curves:
        curves = dict(sorted(predictions.curves.items(), key=lambda each: -each[1].area)[: len(charts.COLORS)])
        legend = [
            (charts.VARIABLES[color], f"{name}: area {curve.area:.4f}")
            for color, (name, curve) in zip(charts.COLORS, curves.items(), strict=False)
        ]
        text = (
            "True positive rate (fraction of the class that is predicted as the class) against false positive rate "
            "(fraction of the other rows that is predicted as the class)."
        )
        svg = charts.roc_chart({name: (each.false_rates, each.true_rates) for name, each in curves.items()})
        found.append(PageChart("ROC curve" if len(curves) == 1 else "ROC curves", text, svg, legend))
    return found


def score_of(about: About | None) -> dict[str, str]:
    """Return the score of predictions for the rows of the fit, by its name."""
    if about is None or about.predictions is None:
        return {}
    found = about.predictions
    rows = "these rows" if found.count == found.total else f"{found.count:,} of these rows"
    return {f"of {rows} correct": f"{found.score:.2%}"} if found.classes else {f"R² on {rows}": f"{found.score:.4f}"}


def capitalized(text: str) -> str:
    """Return the text with a capital first letter and the rest unchanged."""
    return text[:1].upper() + text[1:]


def _scatter(about: About) -> tuple[str, str] | None:
    if about.points is None or len(about.points) < 2:
        return None
    if about.points.shape[1] >= 3:
        words = f"{len(about.points):,} points, by three coordinates. They turn, and stop under the mouse pointer."
        return words, scatter.turning_chart("plane", about.points)
    words = "Each point is the result for a row or a cluster."
    if about.variance_shares is not None:
        words = f"{len(about.points):,} of the rows, along the first two axes."
    elif about.rows is not None or about.sizes is not None:
        words = "Each disc is a cluster, along the two directions in which they lie farthest apart."
    if about.sizes is not None:
        words += " Its area shows the number of rows."
    if about.rows is None or about.row_clusters is None:
        return words, scatter.scatter_chart("plane", about.points, sizes=about.sizes)
    words += f" The small points are {len(about.rows)} of the rows, in the color of their cluster."
    return words, scatter.scatter_chart("plane", about.points, sizes=about.sizes, rows=(about.rows, about.row_clusters))


def _confusion(about: About) -> dict[str, Any] | None:
    """Return the rows by class and predicted class."""
    found = about.predictions
    if found is None or found.confusion is None:
        return None
    counts = found.confusion
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    pairs = zip(found.classes, counts.tolist(), shares.tolist(), strict=True)
    return {
        "classes": found.classes,
        "all": found.count == found.total,
        "count": found.count,
        "rows": [(name, list(zip(row, of_row, strict=True))) for name, row, of_row in pairs],
    }


def _profiles(about: About) -> dict[str, Any] | None:
    """Return the means of clusters by named columns. If there are too many columns, keep those that differ most."""
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
