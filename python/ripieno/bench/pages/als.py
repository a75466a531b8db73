"""Provide the chart of a fit of alternating least squares as a separate SVG file."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ripieno.algorithms.iteration_log import FitStep
from ripieno.report import charts


def als_chart(title: str, steps: Sequence[FitStep], held_out: Sequence[float]) -> str:
    """Return the errors of training and held-out ratings, and the seconds of the slowest rank, by iteration."""
    numbers = np.arange(1, len(steps) + 1)
    fitted = [float(step.measures["rmse"]) for step in steps]
    # The rank with the longest compute time waits least.
    slowest = [int(np.argmax(step.compute_s)) for step in steps]
    computing = 1e3 * np.array([step.compute_s[at] for step, at in zip(steps, slowest, strict=True)])
    communicating = 1e3 * np.array([step.communication_s[at] for step, at in zip(steps, slowest, strict=True)])
    with matplotlib.rc_context(charts.STYLE):
        drawing = Figure((charts.WIDTH_INCHES, 3.4), layout="constrained")
        errors, times = drawing.subplots(1, 2)
        style = {"linewidth": 2, "marker": "o", "markersize": 4}
        errors.plot(numbers, held_out, color=charts.SECOND, label="held out", **style)
        errors.plot(numbers, fitted, color=charts.FIRST, label="fitted", **style)
        errors.set_title("root mean square error")
        times.bar(numbers, computing, width=0.62, color=charts.FIRST, label="computing, slowest rank")
        times.bar(numbers, communicating, width=0.62, bottom=computing, color=charts.SECOND, label="communicating")
        times.set_title("ms of an iteration")
        times.set_ylim(0, 1.35 * float(max(computing + communicating)))
        for axes in (errors, times):
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.set_xlabel("iteration")
            axes.legend(frameon=False, labelcolor=charts.MUTED)
        drawing.suptitle(title, color=charts.MUTED, fontsize=10)
        caption = f"Held-out error {held_out[0]:.4f} falls to {held_out[-1]:.4f} in {len(steps)} iterations."
        return charts.standalone(charts.svg_of(drawing, "als", caption))
