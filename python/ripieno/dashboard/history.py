"""Provide the activity of a job's ranks over time, in bounded memory: sums in time bins of increasing width.

When the last bin is full, adjacent bins are merged in pairs, and the bin width doubles. The history thus always covers
the whole job. Cost: 24 bytes per rank and bin, with 256 to 512 bins in use.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

BIN_COUNT = 512
#: Initial width of bins in seconds.
WIDTH_S = 0.5
#: Quantities per bin: seconds that a rank spent on each activity, and seconds of processor time.
SUMS = ("computing", "waiting", "communicating", "cpu")
#: Shares are encoded in this many steps; `UNKNOWN` marks a bin without data.
SHARE_STEPS = 250
UNKNOWN = 255


class MetricHistory:
    """Sums by rank and bin.

    Attributes
    ----------
    width_s
        Width of a bin in seconds.
    """

    def __init__(self, bin_count: int = BIN_COUNT, width_s: float = WIDTH_S) -> None:
        self.width_s = width_s
        self._bin_count = bin_count
        # Axes: quantity, rank, bin.
        self._sums = np.zeros((len(SUMS), 0, bin_count), np.float32)
        self._memory = np.zeros((0, bin_count), np.float32)

    def add(self, rank: int, since_s: float, until_s: float, sums: dict[str, float], memory_bytes: float) -> None:
        """Add the activity of a rank between two times, spread evenly over the bins."""
        self._add_ranks(rank)
        self.reach(until_s)
        first, last = int(since_s / self.width_s), int(until_s / self.width_s)
        edges = np.clip(np.arange(first, last + 2) * self.width_s, since_s, until_s)
        length_s = until_s - since_s
        shares = np.diff(edges) / length_s if length_s > 0 else np.eye(1, last - first + 1)[0]
        for number, name in enumerate(SUMS):
            self._sums[number, rank, first : last + 1] += (sums[name] * shares).astype(np.float32)
        np.maximum(
            self._memory[rank, first : last + 1],
            np.float32(memory_bytes),
            out=self._memory[rank, first : last + 1],
        )

    @property
    def rank_count(self) -> int:
        """Number of ranks with data."""
        return self._sums.shape[1]

    def share(self, name: str) -> NDArray[np.float64]:
        """Return by rank and bin the share of one activity in the recorded time; NaN without data."""
        busy_s = self._sums[:3].sum(axis=0)
        sums = self._sums[SUMS.index(name)]
        shares: NDArray[np.float64] = np.divide(sums, busy_s, out=np.full(sums.shape, np.nan), where=busy_s > 0)
        return shares

    def memory(self) -> NDArray[np.float32]:
        """Return the memory in bytes by rank and bin; 0 without data."""
        return self._memory

    def coded(self, first: int, until: int) -> dict[str, Any]:
        """Encode bins `first` to `until` for the page: shares as base64 bytes, rank by rank; memory of all ranks."""
        shares = {name: self.share(name)[:, first:until] for name in ("waiting", "communicating")}
        memory = self._memory[:, first:until].sum(axis=0, dtype=np.float64)
        return {
            "width_s": self.width_s,
            "first": first,
            "until": until,
            **{name: _coded(share) for name, share in shares.items()},
            "memory": [round(float(each)) for each in memory],
        }

    def _add_ranks(self, rank: int) -> None:
        more = rank + 1 - self.rank_count
        if more > 0:
            self._sums = np.pad(self._sums, ((0, 0), (0, more), (0, 0)))
            self._memory = np.pad(self._memory, ((0, more), (0, 0)))

    def reach(self, until_s: float) -> None:
        """Merge bins until they cover the time `until_s`."""
        while until_s >= self._bin_count * self.width_s:
            self._merge()

    def _merge(self) -> None:
        half = self._bin_count // 2
        sums = self._sums.reshape(len(SUMS), self.rank_count, half, 2).sum(axis=3)
        memory = self._memory.reshape(self.rank_count, half, 2).max(axis=2)
        self._sums[:, :, :half], self._sums[:, :, half:] = sums, 0
        self._memory[:, :half], self._memory[:, half:] = memory, 0
        self.width_s *= 2


def _coded(share: NDArray[np.float64]) -> str:
    steps = np.where(np.isnan(share), UNKNOWN, np.round(np.nan_to_num(share) * SHARE_STEPS))
    return base64.b64encode(steps.astype(np.uint8).tobytes()).decode()
