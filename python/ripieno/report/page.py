"""The page: numbers, charts, patches and surroundings of a fit, filled into one template."""

from __future__ import annotations

import datetime
import math
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from ripieno.algorithms.clock import FitReport
from ripieno.features import Patches
from ripieno.features.hog import CELL_PIXELS, ORIENTATIONS
from ripieno.report import charts, montage

LIBRARIES = ("numpy", "scikit-learn", "pyarrow")


def write_report(
    path: Path,
    fit: FitReport,
    *,
    parameters: Mapping[str, Any],
    inertia: float,
    inputs: list[str],
    patches: Patches | None = None,
) -> None:
    """Write the page.

    Parameters
    ----------
    path
        File to write.
    fit
        What happened.
    parameters
        Parameters of the estimator, to be listed.
    inertia
        Of the final centroids.
    inputs
        Names of the files that were clustered.
    patches
        Where the rows come from, if they are patches of pictures; then the page shows those nearest to the centroids.
    """
    page = Environment(
        loader=PackageLoader("ripieno.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    page.filters.update(count=_count, figure=_figure, seconds=_seconds)
    html = page.get_template("page.html").render(
        fit=fit,
        inertia=inertia,
        now=datetime.datetime.now().astimezone(),
        iterate_s=sum(each.seconds for each in fit.iterations),
        compute_s=_per_rank(fit, "compute_s"),
        communication_s=_per_rank(fit, "communication_s"),
        inertia_chart=charts.inertia_chart(fit.iterations),
        time_chart=charts.time_chart(fit.iterations),
        size_chart=charts.size_chart(fit.cluster_sizes),
        panel_limit=charts.PANEL_LIMIT,
        clusters=[] if patches is None else _clusters(fit, patches),
        median_size=int(np.median(fit.cluster_sizes)),
        parameters={name: _brief(value) for name, value in parameters.items()},
        inputs=inputs,
        surroundings=_surroundings(fit),
    )
    path.write_text(html, encoding="utf-8")


def _clusters(fit: FitReport, patches: Patches) -> list[dict[str, Any]]:
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
    """Side in pixels of a patch whose HOG vector has so many values; 32 for 512."""
    return CELL_PIXELS * math.isqrt(column_count // ORIENTATIONS)


def _per_rank(fit: FitReport, name: str) -> list[float]:
    return np.sum([getattr(each, name) for each in fit.iterations], axis=0).tolist()


def _surroundings(fit: FitReport) -> dict[str, str]:
    hosts = sorted(set(fit.hosts))
    return {
        "Machine": f"{_processor()}, {platform.machine()}, {platform.system()} {platform.release()}",
        "Hosts": ", ".join(hosts),
        "Workers and threads": f"{len(fit.threads)} × {max(fit.threads)}",
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


def _count(number: float) -> str:
    """1234567 as 1 234 567, with thin spaces."""
    return f"{number:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def _seconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.4g} s"


def _figure(number: float) -> str:
    """A number with six digits that count, or all digits before the point."""
    return _count(number) if 1e5 <= abs(number) < 1e12 else f"{number:.6g}"


def _brief(value: Any) -> str:
    return f"array of shape {value.shape}" if isinstance(value, np.ndarray) else str(value)
