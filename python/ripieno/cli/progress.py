"""Provide the progress of a fit: on a terminal as a table updated in place, otherwise as one line per iteration."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from ripieno.units import bytes_text, duration_text

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.progress import Progress


#: Number of latest iterations in the table.
SHOWN_ITERATIONS = 10
#: Minimum seconds between two printed lines about a pass, without a terminal.
PROGRESS_INTERVAL_S = 30.0


class IterationProgress(ABC):
    """Shows the events of a fit: pass `on_event` to the estimator and enter this context around the fit."""

    columns: tuple[str, ...]

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        from rich.live import Live
        from rich.spinner import Spinner

        self._console = console
        self._quiet = quiet
        self._rows: deque[tuple[str, ...]] = deque(maxlen=SHOWN_ITERATIONS)
        self._spinner = Spinner("dots", "starting workers and reading the input")
        self._over = False
        self._live: AbstractContextManager[Any] = nullcontext()
        if console.is_terminal and not quiet:
            self._live = Live(get_renderable=self._table, console=console, refresh_per_second=8)

    def __enter__(self) -> IterationProgress:
        self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._over = True
        self._live.__exit__(*error)

    def on_event(self, event: dict[str, Any]) -> None:
        """Process an event of the estimator."""
        row = self.row(event)
        if row is None:
            return
        self._rows.append((*row, f"{event['compute_s']:.3f} s", f"{event['communication_s']:.3f} s"))
        if not self._console.is_terminal and not self._quiet:
            line = ", ".join(f"{name} {value}" for name, value in zip(self._names, self._rows[-1], strict=True))
            self._console.print(line, highlight=False, soft_wrap=True)

    @abstractmethod
    def row(self, event: dict[str, Any]) -> tuple[str, ...] | None:
        """Return the cells of an iteration in the order of `columns`, or None for another event."""

    @property
    def _names(self) -> tuple[str, ...]:
        return (*self.columns, "compute", "communicate")

    def report(self, text: str) -> None:
        """Show the current work on a terminal; without a terminal, print it as a line."""
        self.set_status(text)
        if not self._console.is_terminal and not self._quiet:
            self._console.print(text, highlight=False, soft_wrap=True)

    def set_status(self, text: str) -> None:
        """Show the current work on a terminal."""
        self._spinner.update(text=text)

    def _table(self) -> Group:
        from rich.console import Group
        from rich.table import Table

        table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
        for name in self._names:
            table.add_column(name, justify="right")
        for row in self._rows:
            table.add_row(*row)
        return Group(*[table] * bool(self._rows), *[self._spinner] * (not self._over))


class KMeansProgress(IterationProgress):
    """Progress of `KMeans`."""

    columns = ("iteration", "inertia", "shift²", "rows/s")
    _printed_s = -math.inf

    def row(self, event: dict[str, Any]) -> tuple[str, ...] | None:
        """Return the cells of an iteration of any run."""
        described = {"seeding": self._seeding, "centroids": self._centroids, "pass": self._part}.get(event["event"])
        if described is not None:
            described(event)
            return None
        self.set_status(f"iterating, run {event['run']}")
        return (
            f"{event['iteration']}" if event["run"] == 1 else f"{event['run']}:{event['iteration']}",
            f"{event['inertia']:.8g}",
            f"{event['squared_shift']:.3g}",
            _rate(event["rows_per_s"]),
        )

    def _centroids(self, event: dict[str, Any]) -> None:
        if event["divided"]:
            whole, free = bytes_text(event["whole_bytes"]), bytes_text(event["free_bytes"])
            self.report(
                f"centroids are divided among the workers: all of them need {whole} per worker, {free} are available"
            )

    def _part(self, event: dict[str, Any]) -> None:
        text = (
            f"iteration {event['iteration']}: {event['part']:.0%} assigned, {duration_text(event['seconds_left'])} left"
        )
        now = time.monotonic()
        if now - self._printed_s < PROGRESS_INTERVAL_S:
            self.set_status(text)
        else:
            self._printed_s = now
            self.report(text)

    def _seeding(self, event: dict[str, Any]) -> None:
        text = f"choosing first centroids among {event['row_count']:,} rows ({event['init']})"
        if event["chosen"] == 0:
            self.report(text)
        else:
            self.set_status(f"{text}: {event['chosen']:,} of {event['n_clusters']:,}")


class MeasureProgress(IterationProgress):
    """Progress of fits with named measures in their events; `columns` follow the number of the iteration."""

    def __init__(self, console: Console, columns: tuple[str, ...], *, quiet: bool = False) -> None:
        super().__init__(console, quiet=quiet)
        self.columns = ("iteration", *columns)

    def row(self, event: dict[str, Any]) -> tuple[str, ...] | None:
        """Return the cells of an iteration."""
        self.set_status("iterating")
        values = (event[name] for name in self.columns)
        return tuple(f"{value:.8g}" if isinstance(value, float) else str(value) for value in values)


class PageRankProgress(IterationProgress):
    """Progress of `PageRank`."""

    columns = ("iteration", "error", "goal", "edges/s")

    def row(self, event: dict[str, Any]) -> tuple[str, ...] | None:
        """Return the cells of an iteration."""
        self.set_status("iterating")
        return f"{event['iteration']}", f"{event['error']:.3g}", f"{event['goal']:.3g}", _rate(event["edges_per_s"])


def patch_progress(console: Console, *, quiet: bool) -> Progress:
    """Return a progress bar for patches of pictures."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("describing patches"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=quiet or not console.is_terminal,
    )


def _rate(per_s: float) -> str:
    for limit, suffix in ((1e6, "M"), (1e3, "k")):
        if per_s >= limit:
            return f"{per_s / limit:.3g} {suffix}"
    return f"{per_s:.3g}"
