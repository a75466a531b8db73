"""Provide a comparison of designs: by packet size, cheapest, direct and binary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ripieno._native as _native
from ripieno._checks import whole_number
from ripieno._native import DensityCurve, PacketCurve


@dataclass(frozen=True)
class DataDistribution:
    """The distribution of data over ranks.

    Parameters
    ----------
    ranks
        Number of ranks.
    features
        The number of possible indices.
    out
        Densities of the unions of ranks' out-indices.
    row_bytes
        Bytes of a row's values.
    requested
        Densities of the unions of ranks' in-indices; by default equal to `out`.
    """

    ranks: int
    features: int
    out: DensityCurve
    row_bytes: int
    requested: DensityCurve | None = None

    def __post_init__(self) -> None:
        whole_number("ranks", self.ranks, 1, 2**16)
        whole_number("row_bytes", self.row_bytes, 1, 2**40)

    @property
    def rows(self) -> float:
        """Return the number of rows that a rank contributes."""
        return self.features * self.out.density(1)

    @property
    def sets(self) -> tuple[tuple[DensityCurve, float], tuple[DensityCurve, float]]:
        """Return the out- and in-indices for the native module: a density curve, and the rows of a rank."""
        requested = self.requested or self.out
        return (self.out, self.rows), (requested, self.features * requested.density(1))


@dataclass(frozen=True)
class DesignComparison:
    """A printable comparison of designs.

    Parameters
    ----------
    data, packets
        The data and the packet costs of the comparison.
    min_packet_bytes
        The minimum efficient packet.
    designs
        Designs by criterion: "by packet", "cheapest", "direct", "binary", and "given" if degrees were passed. Each is a
        dict: "degrees", "seconds" and "sent_bytes" of a rank in a reduction, "layers", "bottom" and, if ranks are
        folded, "fold". These have "degree", "set_count", "part_count", "holder_count", "packet_count", and for "down"
        and "up" "density", "rows", "packet_bytes", "seconds".
    """

    data: DataDistribution
    packets: PacketCurve
    min_packet_bytes: float
    designs: dict[str, dict[str, Any]]

    def __str__(self) -> str:
        from ripieno.sparse.design import text

        return text.of(self)

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as JSON values."""
        data = self.data
        return {
            "ranks": data.ranks,
            "features": data.features,
            "density": data.out.density(1),
            "alpha": data.out.alpha,
            "lambda_0": data.out.lambda_0,
            "row_bytes": data.row_bytes,
            "min_packet_bytes": self.min_packet_bytes,
            "designs": self.designs,
        }


def explain(
    data: DataDistribution, packets: PacketCurve, *, min_packet_bytes: float | None = None, degrees: str | None = None
) -> DesignComparison:
    """Design a network for the data, and predict the costs of the alternatives.

    Parameters
    ----------
    data
        The distribution of data over ranks.
    packets
        The costs of packets.
    min_packet_bytes
        The minimum efficient packet; by default the minimum of `packets`.
    degrees
        Degrees of an additional network, such as "8x4x2".

    Raises
    ------
    InputError
        `degrees` is not a network for this number of ranks.
    """
    min_bytes = packets.efficient_bytes if min_packet_bytes is None else min_packet_bytes
    degrees_by_name = {
        "by packet": _native.design_by_packet(data.ranks, *data.sets[0], data.row_bytes, min_bytes),
        "direct": "direct",
        "binary": "binary",
    }
    if degrees is not None:
        degrees_by_name["given"] = degrees
    priced = {name: price(data, packets, degrees) for name, degrees in degrees_by_name.items()}
    cheapest = _native.design_candidates(data.ranks, *data.sets, data.row_bytes, packets)[0]
    designs = {"by packet": priced.pop("by packet"), "cheapest": cheapest, **priced}
    return DesignComparison(data, packets, min_bytes, designs)


def price(data: DataDistribution, packets: PacketCurve, degrees: str) -> dict[str, Any]:
    """Return the design with these degrees and its predicted cost, as in `DesignComparison`."""
    return _native.design_estimate(data.ranks, degrees, *data.sets, data.row_bytes, packets)


def levels(design: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the levels from top to bottom: above the fold, above each layer, and below the last layer."""
    return [*([design["fold"]] if design["fold"] else []), *design["layers"], design["bottom"]]


def volumes(design: dict[str, Any], data: DataDistribution) -> Sequence[float]:
    """Return the total bytes of all ranks at each level on the way down (figure 5)."""
    return [level["holder_count"] * data.row_bytes * level["down"]["rows"] for level in levels(design)]
