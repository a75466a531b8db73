"""A configured reduction explained: what its layers hold beside what the density curve predicts, and what it takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native
from ripieno._native import DensityCurve, PacketCurve
from ripieno.sparse.design.explain import DesignComparison, HeldData, explain, levels

DIRECTIONS = ("down", "up")


@dataclass(frozen=True)
class LiveExplanation:
    """What a configured reduction carries and takes, predicted and measured. Print it.

    Parameters
    ----------
    explanation
        Its design, as "given", and others, all priced for its data.
    rows
        Mean rows of a rank above each layer and below the last: of "down" and "up".
    deviation
        How far the densities of "down" and "up" are from the power law that comes nearest, as a part of them; None
        where there are not two densities between 0 and 1 to lay one through.
    seconds
        Of a reduction, measured: the slowest rank's, in the median. None where ranks have replicas, which would tell
        different times.
    """

    explanation: DesignComparison
    rows: dict[str, list[float]]
    deviation: dict[str, float | None]
    seconds: float | None

    def __str__(self) -> str:
        from ripieno.sparse.design import text

        return text.of_live(self)

    def as_json(self) -> dict[str, Any]:
        """For machines to read."""
        told = {"rows": self.rows, "deviation": self.deviation, "seconds": self.seconds}
        return self.explanation.as_json() | {"measured": told}


class Configured(NamedTuple):
    """A configured reduction, and what it is to carry."""

    world_size: int
    size: int
    degrees: str
    row_bytes: int


def explain_configured(
    reduction: Configured, totals: NDArray[np.int64], packets: PacketCurve, seconds: float | None
) -> LiveExplanation:
    """What all ranks together hold at each level, `totals`, and what a reduction took, beside what is predicted."""
    data, means, deviation = data_of(reduction, totals, packets)
    explanation = explain(data, packets, degrees=reduction.degrees)
    rows = {direction: means[:, index].tolist() for index, direction in enumerate(DIRECTIONS)}
    return LiveExplanation(explanation, rows, deviation, seconds)


def data_of(
    reduction: Configured, totals: NDArray[np.int64], packets: PacketCurve
) -> tuple[HeldData, NDArray[np.float64], dict[str, float | None]]:
    """The data that a configured reduction has, as what ranks hold at its levels tells.

    Also the means of a rank by level and direction, and how far the densities are from the nearest power law.
    """
    # Which level unites how many ranks' sets is in any price of these degrees.
    nothing = DensityCurve.through([(1.0, 0.0)])
    outline = _native.design_estimate(
        reduction.world_size, reduction.degrees, (nothing, 0.0), (nothing, 0.0), reduction.row_bytes, packets
    )
    means = totals / np.array([level["holder_count"] for level in levels(outline)])[:, None]
    curves, deviation = {}, {}
    for direction, rows in zip(DIRECTIONS, means.T, strict=True):
        curves[direction], deviation[direction] = _curve(reduction.size, outline, rows)
    data = HeldData(reduction.world_size, reduction.size, curves["down"], reduction.row_bytes, curves["up"])
    return data, means, deviation


def _curve(size: int, outline: dict[str, Any], rows: NDArray[np.float64]) -> tuple[DensityCurve, float | None]:
    """The power law nearest to the densities of all levels; as counted where there is none."""
    points = {
        level["set_count"]: float(held * level["part_count"] / max(size, 1))
        for level, held in zip(levels(outline), rows, strict=True)
    }
    between = [(sets, density) for sets, density in points.items() if 0 < density < 1]
    if len(between) < 2:
        return DensityCurve.through(sorted(points.items())), None
    return DensityCurve.fit(size, between)
