"""Explain a configured reduction: actual and predicted sizes of its layers, and its time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native
from ripieno._native import DensityCurve, PacketCurve
from ripieno.sparse.design.explain import DataDistribution, DesignComparison, explain, levels

DIRECTIONS = ("down", "up")


@dataclass(frozen=True)
class LiveExplanation:
    """Predicted and measured sizes and times of a configured reduction. Printable.

    Parameters
    ----------
    explanation
        Its design, as "given", and alternatives, with predicted costs for its data.
    rows
        A rank's mean rows above each layer and below the last, for "down" and "up".
    deviation
        The relative deviation of the densities of "down" and "up" from the nearest power law. None if no
        law can be fitted, because fewer than two densities lie between 0 and 1.
    seconds
        The measured median seconds of a reduction on the slowest rank. None if ranks have replicas, because their times
        would differ.
    """

    explanation: DesignComparison
    rows: dict[str, list[float]]
    deviation: dict[str, float | None]
    seconds: float | None

    def __str__(self) -> str:
        from ripieno.sparse.design import text

        return text.of_live(self)

    def as_json(self) -> dict[str, Any]:
        """Return the explanation as JSON values."""
        measured = {"rows": self.rows, "deviation": self.deviation, "seconds": self.seconds}
        return self.explanation.as_json() | {"measured": measured}


class ConfiguredReduction(NamedTuple):
    """The shape of a configured reduction and of its rows."""

    world_size: int
    size: int
    degrees: str
    row_bytes: int


def explain_configured(
    reduction: ConfiguredReduction, totals: NDArray[np.int64], packets: PacketCurve, seconds: float | None
) -> LiveExplanation:
    """Compare predictions with the total sizes of all ranks at each level (`totals`) and with the measured time."""
    data, means, deviation = data_of(reduction, totals, packets)
    explanation = explain(data, packets, degrees=reduction.degrees)
    rows = {direction: means[:, index].tolist() for index, direction in enumerate(DIRECTIONS)}
    return LiveExplanation(explanation, rows, deviation, seconds)


def data_of(
    reduction: ConfiguredReduction, totals: NDArray[np.int64], packets: PacketCurve
) -> tuple[DataDistribution, NDArray[np.float64], dict[str, float | None]]:
    """Return the data of a configured reduction, derived from the sizes at its levels.

    Also return a rank's mean sizes by level and direction, and the deviation of the densities from the nearest power
    law.
    """
    # The counts of a level depend only on the degrees, not on the density.
    empty = DensityCurve.through([(1.0, 0.0)])
    outline = _native.design_estimate(
        reduction.world_size, reduction.degrees, (empty, 0.0), (empty, 0.0), reduction.row_bytes, packets
    )
    means = totals / np.array([level["holder_count"] for level in levels(outline)])[:, None]
    curves, deviation = {}, {}
    for direction, rows in zip(DIRECTIONS, means.T, strict=True):
        curves[direction], deviation[direction] = _curve(reduction.size, outline, rows)
    data = DataDistribution(reduction.world_size, reduction.size, curves["down"], reduction.row_bytes, curves["up"])
    return data, means, deviation


def _curve(size: int, outline: dict[str, Any], rows: NDArray[np.float64]) -> tuple[DensityCurve, float | None]:
    """Return the fitted power law of the levels' densities, or the densities if no power law fits."""
    points = {
        level["set_count"]: float(row_count * level["part_count"] / max(size, 1))
        for level, row_count in zip(levels(outline), rows, strict=True)
    }
    between = [(sets, density) for sets, density in points.items() if 0 < density < 1]
    if len(between) < 2:
        return DensityCurve.through(sorted(points.items())), None
    return DensityCurve.fit(size, between)
