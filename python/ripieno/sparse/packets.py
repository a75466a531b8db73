"""Packet costs between ranks, and their JSON files.

`Communicator.measure_packets` measures the costs, ``ripieno packets`` writes a file, and ``ripieno explain sparse``
reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ripieno._native import EFFICIENT_SHARE, PacketCurve
from ripieno.errors import InputError
from ripieno.files.sources import parsed_json, read_whole


def of_rate(bits_per_s: float, efficient_bytes: float) -> PacketCurve:
    """Return the curve of links with this rate and with `efficient_bytes` as the minimum efficient packet."""
    beta_s_per_byte = 8 / bits_per_s
    alpha_s = efficient_bytes * beta_s_per_byte * (1 / EFFICIENT_SHARE - 1)
    return PacketCurve([(size, alpha_s + size * beta_s_per_byte) for size in (1.0, 1e12)], 0.0)


def as_json(curve: PacketCurve) -> dict[str, Any]:
    """Return all values of a curve as JSON values."""
    return {
        "points": [{"bytes": size, "seconds": seconds} for size, seconds in curve.points],
        "latency_s": curve.latency_s,
        "contention_s": curve.contention_s,
        "alpha_s": curve.alpha_s,
        "beta_s_per_byte": curve.beta_s_per_byte,
        "best_bytes_per_s": curve.best_throughput,
        "efficient_bytes": curve.efficient_bytes,
    }


def from_json(values: Mapping[str, Any]) -> PacketCurve:
    """Return the curve from the values of `as_json`; recompute derived values."""
    return PacketCurve(
        [(point["bytes"], point["seconds"]) for point in values["points"]], values["latency_s"], values["contention_s"]
    )


def read(path: Path) -> PacketCurve:
    """Read the curve in a file of ``ripieno packets --json``.

    Raises
    ------
    InputError
        The file does not exist, or has other contents.
    """
    text = read_whole(path)
    try:
        return from_json(parsed_json(text))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: expected a file of ripieno packets --json, but {error!r}") from error
