"""The report page for Python callers, and its frame for notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ripieno.algorithms.iteration_log import RunReport
from ripieno.algorithms.kmeans.fit_report import KMeansReport
from ripieno.report import charts, page
from ripieno.report.result import PageChart, charts_of, result_variables, score_of

FRAME_PIXELS = 560
#: Display names of measures that differ from their keys.
TILE_NAMES = {"rmse": "RMSE of these ratings"}
#: Names for rows and columns of the data, by estimator.
DIMENSION_NAMES = {"ALS": ("users", "items"), "FruchtermanReingold": ("vertices", "edges")}


def page_of(report: Any) -> str:
    """Return the page of any `report_`."""
    about = report.about
    parameters, results = ({}, {}) if about is None else (about.parameters, about.results)
    if isinstance(report, KMeansReport):
        return page._kmeans_page(report, parameters=parameters, inertia=results.get("inertia", float("nan")))
    measured = _measures(report)
    charted = _charted(measured)
    shown = {name: page.figure(value) for name, value in results.items()}
    title = "A fit" if about is None else about.estimator
    if isinstance(report, RunReport):
        step_name = "iteration" if charted else "stage"
        tiles = {TILE_NAMES.get(name, name.replace("_", " ")): f"{values[-1]:.4g}" for name, values in measured.items()}
        steps = [each.measures for each in report.iterations]
        return page._page(
            "fit.html",
            report,
            title=title,
            step_name=step_name,
            tiles={**score_of(about), **({"iterations": str(len(steps))} if charted else {}), **tiles, **shown},
            charted=charted,
            measures=steps,
            parameters=parameters,
            inputs=[],
            words=DIMENSION_NAMES.get(title, ("rows", "columns")),
        )
    count = max(len(report.ranks), 1)
    tiles = {"total": page.seconds(report.total_s), "ranks" if count > 1 else "rank": str(count)}
    for name in ("vertex_count", "edge_count"):
        if hasattr(report, name):
            tiles[name.replace("_count", "s").replace("vertexs", "vertices")] = page.count(getattr(report, name))
    tiles |= {name: f"{values[-1]:.4g}" for name, values in measured.items()} | shown
    return page.filled(
        "plain.html",
        title=title,
        fit=report,
        tiles=tiles,
        charts=[*charted, *charts_of(about)],
        parameters={name: page._brief(value) for name, value in parameters.items()},
        **result_variables(about),
    )


def framed(report: Any) -> str:
    """Return the page of a report in a frame, so that its style does not affect the notebook."""
    html = escape(page_of(report), quote=True)
    return (
        f'<iframe srcdoc="{html}" style="width:100%;height:{FRAME_PIXELS}px;border:1px solid #8885;border-radius:8px" '
        'title="Report of a fit"></iframe>'
    )


def _measures(report: Any) -> dict[str, list[float]]:
    """Return the numeric measures of each iteration."""
    steps: list[Mapping[str, Any]] = [
        each.measures if hasattr(each, "measures") else {"error": each.error}
        for each in report.iterations
        if hasattr(each, "measures") or hasattr(each, "error")
    ]
    names = [name for name, value in (steps[0] if steps else {}).items() if isinstance(value, int | float)]
    return {name: [float(each[name]) for each in steps] for name in names if all(name in each for each in steps)}


def _charted(measured: Mapping[str, Sequence[float]]) -> list[PageChart]:
    moving = {name: values for name, values in measured.items() if len(values) > 1 and len(set(values)) > 1}
    if not moving:
        return []
    first = dict(list(moving.items())[:2])
    is_log = all(min(values) > 0 and max(values) > 100 * min(values) for values in first.values())
    names = " and ".join(name.replace("_", " ") for name in first)
    svg = charts.line_chart("measures", {name.replace("_", " "): values for name, values in first.items()}, log=is_log)
    return [PageChart("Convergence", f"The {names} of each iteration.", svg)]
