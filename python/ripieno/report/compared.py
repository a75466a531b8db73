"""The page that compares results of several runs of one algorithm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ripieno.algorithms.result_folder import ResultFolder
from ripieno.errors import InputError
from ripieno.files import disk
from ripieno.files.sources import PathLike
from ripieno.report import charts, page

#: One run per color.
RUNS_MAX = len(charts.COLORS)
UNITS = ("iteration", "stage")
MISSING = "–"


@dataclass(frozen=True)
class ComparedRun:
    """One result to compare.

    Parameters
    ----------
    folder
        Result folder written by a command.
    name
        Display name on the page.
    """

    folder: ResultFolder
    name: str

    @cached_property
    def unit(self) -> str:
        """Return the unit of work of the run: "iteration" or "stage"."""
        return next((unit for unit in UNITS if f"{unit}s" in self.folder.description), UNITS[0])

    @cached_property
    def iterations(self) -> list[dict[str, Any]]:
        """Return the iterations or stages of the run."""
        return self.folder.entry(f"{self.unit}s", list)

    @property
    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the estimator without the number of workers, which the page shows as a figure."""
        return {name: value for name, value in self.folder.entry("parameters", dict).items() if name != "workers"}

    @property
    def measures(self) -> dict[str, list[float]]:
        """Return the numbers measured in each iteration, by name."""
        names = [name for name, value in self.iterations[0].items() if isinstance(value, int | float)]
        return {name: [float(each[name]) for each in self.iterations] for name in names}

    @property
    def ends_s(self) -> list[float]:
        """Return the end of each iteration on the slowest rank, in seconds from the beginning of the first."""
        lasted = [
            max(map(sum, zip(each["compute_s"], each["communication_s"], strict=True)), default=0.0)
            for each in self.iterations
        ]
        return [float(end) for end in np.cumsum(lasted)]

    def figures(self) -> Iterator[tuple[str, float | None, str]]:
        """Yield the outcome of the run as (name, number for ratios or None, text)."""
        described = self.folder.description
        for name in ("row_count", "column_count"):
            yield name.replace("_count", "s"), None, page.count(self.folder.entry(name, int))
        yield "workers", None, page.count(len(self.iterations[0]["compute_s"]))
        yield f"{self.unit}s", len(self.iterations), page.count(len(self.iterations))
        for name, value in described.items():
            if isinstance(value, float):
                yield name.replace("_", " "), value, page.figure(value)
        for name, values in self.measures.items():
            if name not in described:
                yield f"{name.replace('_', ' ')} at the end", values[-1], page.figure(values[-1])
        compute, communication = (
            sum(sum(each[name]) for each in self.iterations) for name in ("compute_s", "communication_s")
        )
        seconds = {name: value for name, value in self.folder.entry("seconds", dict).items() if name != "iterate"}
        seconds |= {f"all {self.unit}s": self.ends_s[-1]}
        for name, value in seconds.items():
            yield f"seconds: {name}", value, page.seconds(value)
        share = communication / max(compute + communication, 1e-12)
        yield "communication share", None, f"{share:.1%}"


def write_comparison(path: Path, results: Sequence[PathLike]) -> None:
    """Write the comparison page.

    Parameters
    ----------
    path
        File to write.
    results
        Two to five folders written by the same command. The first is the baseline.

    Raises
    ------
    InputError
        If the folders are from different commands or too many, or one is damaged or has no data on its iterations.
    """
    folders = [ResultFolder.read(result) for result in results]
    runs = [ComparedRun(folder, name) for folder, name in zip(folders, _names(folders), strict=True)]
    _check(runs)
    figures = [{name: (number, text) for name, number, text in run.figures()} for run in runs]
    rows = [(name, [_difference(each.get(name), figures[0].get(name)) for each in figures]) for name in _keys(figures)]
    parameters = [
        (name, [str(run.parameters.get(name, MISSING)) for run in runs]) for name in _keys([r.parameters for r in runs])
    ]
    different = [each for each in parameters if len(set(each[1])) > 1]
    measured = [run.measures for run in runs]
    html = page.filled(
        "compared.html",
        algorithm=runs[0].folder.algorithm,
        runs=runs,
        colors=[charts.VARIABLES[color] for color in charts.COLORS],
        rows=rows,
        different=different,
        same=[(name, values[0]) for name, values in parameters if len(set(values)) == 1],
        other_input=len({str(run.folder.description.get("inputs")) for run in runs}) > 1,
        unit=runs[0].unit,
        charts=[
            (
                name.replace("_", " "),
                charts.runs_chart(
                    f"measure{number}",
                    name.replace("_", " "),
                    {
                        run.name: (run.ends_s, each[name])
                        for run, each in zip(runs, measured, strict=True)
                        if name in each
                    },
                ),
            )
            for number, name in enumerate(_keys(measured))
            # Skip a measure that is constant in all runs.
            if len({value for each in measured for value in each.get(name, ())}) > 1
        ],
    )
    disk.write_text(path, html)


def _check(runs: Sequence[ComparedRun]) -> None:
    if not 2 <= len(runs) <= RUNS_MAX:
        raise InputError(f"{len(runs)} results: expected 2 to {RUNS_MAX}")
    for run in runs:
        if run.folder.algorithm != runs[0].folder.algorithm:
            raise InputError(
                f"{run.folder.path} is of {run.folder.algorithm}, {runs[0].folder.path} of {runs[0].folder.algorithm}: "
                "expected results of one command"
            )
        if not run.iterations:
            raise InputError(f"{run.folder.path}/model.json has no {run.unit}")


def _names(folders: Sequence[ResultFolder]) -> list[str]:
    """Return the last parts of the folders' paths, or the whole paths if the last parts are not unique."""
    last = [folder.path.rstrip("/").rpartition("/")[2] for folder in folders]
    return last if len(set(last)) == len(last) else [folder.path for folder in folders]


def _keys(each: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for names in each for name in names))


def _difference(own: tuple[float | None, str] | None, first: tuple[float | None, str] | None) -> tuple[str, str]:
    """Return the text of a figure, with its ratio to the first run's figure where a ratio is meaningful."""
    if own is None:
        return MISSING, ""
    number, text = own
    base = None if first is None else first[0]
    if number is None or base is None or number == base or base <= 0 or number <= 0:
        return text, ""
    return text, f"× {number / base:.3g}"
