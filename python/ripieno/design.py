"""The design of sparse reductions: which degrees suit some data, ranks and links, and what they are predicted to cost.

Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section IV.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ripieno import _native
from ripieno._native import DensityCurve, PacketCurve


@dataclass(frozen=True)
class Data:
    """What ranks hold: sets of rows, as many out-indices as in-indices.

    Parameters
    ----------
    ranks
        How many.
    features
        How many different indices there may be.
    curve
        Densities of the unions of ranks' sets.
    row_bytes
        Of a row's values.
    """

    ranks: int
    features: int
    curve: DensityCurve
    row_bytes: int

    @property
    def rows(self) -> float:
        """Rows of a rank."""
        return self.features * self.curve.density(1)

    @property
    def sets(self) -> tuple[DensityCurve, float]:
        """As the native module takes them."""
        return self.curve, self.rows


@dataclass(frozen=True)
class Explanation:
    """Designs side by side.

    Parameters
    ----------
    data, packets
        What they are for.
    least_packet_bytes
        The minimum efficient packet.
    designs
        By what speaks for them: "by packet", "cheapest", "direct", "binary", and "given" if there is one. Each is a
        dict: "degrees", "seconds" and "sent_bytes" of a rank in a reduction, "layers" and "bottom", with "degree",
        "set_count", "packet_count", and for "down" and "up" "density", "rows", "packet_bytes", "seconds".
    """

    data: Data
    packets: PacketCurve
    least_packet_bytes: float
    designs: dict[str, dict[str, Any]]

    def as_json(self) -> dict[str, Any]:
        """For machines to read."""
        data = self.data
        return {
            "ranks": data.ranks,
            "features": data.features,
            "density": data.curve.density(1),
            "alpha": data.curve.alpha,
            "lambda_0": data.curve.lambda_0,
            "row_bytes": data.row_bytes,
            "least_packet_bytes": self.least_packet_bytes,
            "designs": self.designs,
        }


def explain(
    data: Data, packets: PacketCurve, *, least_packet_bytes: float | None = None, degrees: str | None = None
) -> Explanation:
    """Design a network for some data, and price what else could be taken.

    Parameters
    ----------
    data
        What ranks hold.
    packets
        What packets cost.
    least_packet_bytes
        The minimum efficient packet; by default that of `packets`.
    degrees
        A network to price beside the others, such as "8x4x2".

    Raises
    ------
    InputError
        If `degrees` is no network of so many ranks.
    """
    least = packets.efficient_bytes if least_packet_bytes is None else least_packet_bytes
    candidates = _native.design_candidates(data.ranks, data.sets, data.sets, data.row_bytes, packets)
    named = {
        "by packet": _native.design_by_packet(data.ranks, *data.sets, data.row_bytes, least),
        "direct": "direct",
        "binary": "binary",
    }
    if degrees is not None:
        named["given"] = degrees
    priced = {name: price(data, packets, which) for name, which in named.items()}
    designs = {"by packet": priced.pop("by packet"), "cheapest": candidates[0], **priced}
    return Explanation(data, packets, least, designs)


def price(data: Data, packets: PacketCurve, degrees: str) -> dict[str, Any]:
    """What these degrees are predicted to cost: a design, see `Explanation`."""
    return _native.design_estimate(data.ranks, degrees, data.sets, data.sets, data.row_bytes, packets)


def volumes(design: dict[str, Any], data: Data) -> Sequence[float]:
    """Bytes that all ranks together hold above each layer on the way down, and below the last (figure 5)."""
    return [data.ranks * data.row_bytes * layer["down"]["rows"] for layer in (*design["layers"], design["bottom"])]
