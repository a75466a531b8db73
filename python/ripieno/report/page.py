"""The report page of a fit: numbers, charts, patches and environment, rendered into one template."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from ripieno import log
from ripieno.algorithms.clock import IterationTime
from ripieno.algorithms.iteration_log import FitReport, RunReport
from ripieno.algorithms.kmeans.fit_report import KMeansReport
from ripieno.features import Patches
from ripieno.features.hog import CELL_PIXELS, ORIENTATIONS
from ripieno.files import disk
from ripieno.report import charts, montage
from ripieno.report.filling import fill
from ripieno.report.result import PageChart, capitalized, charts_of, result_variables
from ripieno.units import bytes_text

LIBRARIES = ("numpy", "scikit-learn", "pyarrow")


def write_report(
    path: Path,
    fit: KMeansReport,
    *,
    parameters: Mapping[str, Any],
    inertia: float,
    inputs: list[str],
    patches: Patches | None = None,
    command: str | None = None,
) -> None:
    """Write the report page of a K-means fit.

    Parameters
    ----------
    path
        File to write.
    fit
        Report of the fit.
    parameters
        Parameters of the estimator, which the page lists.
    inertia
        Inertia of the final centroids.
    inputs
        Names of the input files.
    patches
        Sources of the rows if they are picture patches. The page then shows the patches nearest to the centroids.
    command
        Command that repeats the fit; by default taken from the report.
    """
    html = _kmeans_page(fit, parameters=parameters, inertia=inertia, inputs=inputs, patches=patches, command=command)
    disk.write_text(path, html)


def _kmeans_page(
    fit: KMeansReport,
    *,
    parameters: Mapping[str, Any],
    inertia: float,
    inputs: Sequence[str] = (),
    patches: Patches | None = None,
    command: str | None = None,
) -> str:
    return _page(
        "kmeans.html",
        fit,
        title="K-means",
        step_name="iteration",
        tiles={
            "inertia at the end": figure(inertia),
            "iterations": str(len(fit.history)),
            "rows per second": count(fit.rows_per_s),
        },
        charted=[
            PageChart(
                "Convergence",
                "The inertia, the sum of the squared distances of all rows to their centroids, before each move; and "
                "how far the centroids then moved.",
                charts.inertia_chart(fit.history),
            )
        ],
        measures=[
            {"inertia": each.inertia, "squared shift": each.squared_shift}
            | ({"recall": each.recall, "inertia gap": each.gap} if parameters.get("assign") == "near" else {})
            for each in fit.iterations
        ],
        parameters=parameters,
        inputs=inputs,
        size_chart=charts.size_chart(fit.cluster_sizes),
        median_size=int(np.median(fit.cluster_sizes)),
        clusters=[] if patches is None else _clusters(fit, patches),
        command=command,
    )


def write_fit_report(
    path: Path,
    fit: RunReport,
    *,
    title: str,
    step_name: str = "iteration",
    tiles: Mapping[str, str],
    charted: Sequence[PageChart],
    parameters: Mapping[str, Any],
    inputs: Sequence[str],
    words: tuple[str, str] = ("rows", "columns"),
    command: str | None = None,
    draws: bool = False,
    what: str | None = None,
) -> None:
    """Write the page of a fit described by a `RunReport`.

    Parameters
    ----------
    path
        File to write.
    fit
        Report of the fit.
    title
        Title of the page.
    step_name
        Unit of work of the fit: "iteration" or "stage".
    tiles
        Figures at the top, by name.
    charted
        Charts, in order.
    parameters
        Parameters of the estimator, which the page lists.
    inputs
        Names of the input files.
    words
        Names for rows and columns of the data.
    command
        Command that repeats the fit; by default taken from the report.
    draws
        Whether the charts include the positions.
    what
        Deprecated name of `step_name`.
    """
    if what is not None:
        log.warn("write_fit_report(what=) is deprecated, use step_name", DeprecationWarning)
        step_name = what
    html = _page(
        "fit.html",
        fit,
        title=title,
        step_name=step_name,
        tiles=tiles,
        charted=charted,
        measures=[each.measures for each in fit.iterations],
        parameters=parameters,
        inputs=inputs,
        words=words,
        command=command,
        draws=draws,
    )
    disk.write_text(path, html)


def _page(
    template: str,
    fit: FitReport,
    *,
    charted: Sequence[PageChart],
    parameters: Mapping[str, Any],
    inputs: Sequence[str],
    words: tuple[str, str] = ("rows", "columns"),
    command: str | None = None,
    draws: bool = False,
    step_name: str = "iteration",
    **more: Any,
) -> str:
    result = result_variables(fit.about, command) | ({"scatter": None} if draws else {})
    return filled(
        template,
        fit=fit,
        step_name=step_name,
        charts=[*charted, *charts_of(fit.about)],
        compute_s=_per_rank(fit.iterations, "compute_s"),
        communication_s=_per_rank(fit.iterations, "communication_s"),
        time_chart=charts.time_chart(fit.iterations, step_name) if fit.iterations else "",
        panel_limit=charts.PANEL_LIMIT,
        parameters={name: _brief(value) for name, value in parameters.items()},
        inputs=list(inputs),
        row_word=words[0],
        column_word=words[1],
        threads=[(rank, each) for rank, counted in enumerate(fit.traffic) for each in counted["threads"]],
        surroundings=_environment(fit.hosts, fit.threads),
        **result,
        **more,
    )


def filled(template: str, **values: Any) -> str:
    """Return the rendered page."""
    filters: dict[str, Callable[..., Any]] = {
        "count": count,
        "seconds": seconds,
        "bytes": bytes_text,
        "capitalized": capitalized,
        "counted": _counted,
        "measure": _measure,
        "zip": zip,
    }
    return fill(template, filters, **values)


def _clusters(fit: KMeansReport, patches: Patches) -> list[dict[str, Any]]:
    side = patch_side(fit.column_count)
    tiles = [[montage.Tile(*patches.locate(int(row)), side) for row in rows if row >= 0] for rows in fit.exemplar_rows]
    images = montage.cut(tile for row in tiles for tile in row)
    found = [[images[tile] for tile in row if tile in images] for row in tiles]
    return [
        {"number": int(number), "size": int(fit.cluster_sizes[number]), "image": montage.strip(row)}
        for number, row in zip(fit.exemplar_clusters, found, strict=True)
        if row
    ]


def patch_side(column_count: int) -> int:
    """Return the side in pixels of a patch from the length of its HOG vector: 32 for 512."""
    return CELL_PIXELS * math.isqrt(column_count // ORIENTATIONS)


def _per_rank(laps: Sequence[IterationTime], name: str) -> list[float]:
    sums: list[float] = np.sum([getattr(each, name) for each in laps], axis=0).tolist() if laps else [0.0]
    return sums


def _environment(hosts: Sequence[str], threads: Sequence[int]) -> dict[str, str]:
    return {
        "Machine": f"{_processor()}, {platform.machine()}, {platform.system()} {platform.release()}",
        "Hosts": ", ".join(sorted(set(hosts))),
        "Workers and threads": f"{len(threads)} × {max(threads)}",
        "Ripieno": _version("ripieno"),
        "Python": platform.python_version(),
        "Libraries": ", ".join(f"{name} {_version(name)}" for name in LIBRARIES),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or "unknown processor")


def _version(name: str) -> str:
    try:
        return version(name)
    except ModuleNotFoundError:
        return "from source"


def count(number: float) -> str:
    """Return 1234567 as 1 234 567, with thin spaces."""
    return f"{number:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def _counted(number: int | None) -> str:
    """Return the count as text, or a placeholder if the kernel reports none."""
    return "?" if number is None else count(number)


def seconds(seconds: float) -> str:
    """Return a duration as text, in seconds or milliseconds."""
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.4g} s"


def figure(number: float) -> str:
    """Return a number with six significant digits, or with all digits before the decimal point."""
    return count(number) if 1e5 <= abs(number) < 1e12 else f"{number:.6g}"


def _measure(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.8g}"


def _brief(value: Any) -> str:
    return f"array of shape {value.shape}" if isinstance(value, np.ndarray) else str(value)
