"""What the ranks of a job did over time, in memory that does not grow: time is cut into bins, and bins are merged.

When the last bin is full, each two become one, twice as long: so the whole of a job is always there, as finely as the
memory allows. Cost: 24 bytes for each rank and bin, of which there are 256 to 512 at a time.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

BIN_COUNT = 512
#: Of the first bins.
WIDTH_S = 0.5
#: Seconds that a rank did each of these, and seconds of the processor.
SUMS = ("computing", "waiting", "communicating", "cpu")
#: A share of a bin is told in so many steps; one more says that nothing is known.
STEPS = 250
UNKNOWN = 255


class MetricHistory:
    """By rank and bin.

    Attributes
    ----------
    width_s
        How long a bin is.
    """

    def __init__(self, bin_count: int = BIN_COUNT, width_s: float = WIDTH_S) -> None:
        self.width_s = width_s
        self._bin_count = bin_count
        # By sum, rank and bin.
        self._sums = np.zeros((len(SUMS), 0, bin_count), np.float32)
        self._memory = np.zeros((0, bin_count), np.float32)

    def add(self, rank: int, since_s: float, until_s: float, sums: dict[str, float], memory_bytes: float) -> None:
        """What a rank did between two times, which are spread evenly over the bins between."""
        self._make_room(rank)
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
        """Of which something is known."""
        return self._sums.shape[1]

    def share(self, name: str) -> NDArray[np.float64]:
        """By rank and bin: which part of what is known was spent so; not a number where nothing is."""
        busy_s = self._sums[:3].sum(axis=0)
        sums = self._sums[SUMS.index(name)]
        shares: NDArray[np.float64] = np.divide(sums, busy_s, out=np.full(sums.shape, np.nan), where=busy_s > 0)
        return shares

    def memory(self) -> NDArray[np.float32]:
        """By rank and bin: bytes, 0 where nothing is known."""
        return self._memory

    def coded(self, first: int, until: int) -> dict[str, Any]:
        """Bins from `first` to `until` for the page: shares as bytes, rank by rank, in base64; memory of all ranks."""
        shares = {name: self.share(name)[:, first:until] for name in ("waiting", "communicating")}
        memory = self._memory[:, first:until].sum(axis=0, dtype=np.float64)
        return {
            "width_s": self.width_s,
            "first": first,
            "until": until,
            **{name: _coded(share) for name, share in shares.items()},
            "memory": [round(float(each)) for each in memory],
        }

    def _make_room(self, rank: int) -> None:
        more = rank + 1 - self.rank_count
        if more > 0:
            self._sums = np.pad(self._sums, ((0, 0), (0, more), (0, 0)))
            self._memory = np.pad(self._memory, ((0, more), (0, 0)))

    def reach(self, until_s: float) -> None:
        """Have bins until then."""
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
    steps = np.where(np.isnan(share), UNKNOWN, np.round(np.nan_to_num(share) * STEPS))
    return base64.b64encode(steps.astype(np.uint8).tobytes()).decode()
