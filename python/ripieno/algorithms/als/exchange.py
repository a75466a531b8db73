"""Exchange of user or item factors: an allgather, or only the rows that each rank needs.

For `n` rows of `w` bytes on `p` ranks, an allgather delivers `n - n/p` rows to each rank, at `β` seconds per byte. If
no rank receives or sends more than `m` needed rows, their exchange costs `m·w·(β + γ)`, because selected rows are
packed at `γ` seconds per byte. Both take `p - 1` messages. `FactorTransfer` chooses the cheaper method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native
from ripieno import log

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: Seconds to copy one byte of a selected row in memory.
GAMMA_S_PER_BYTE = 0.2e-9


@dataclass(frozen=True)
class FactorExchange:
    """The method of a factor exchange, and its costs.

    Parameters
    ----------
    side
        "users" or "items".
    chosen
        "allgather"; "needed": each rank gets only the rows that its ratings need; "stay": no exchange, with one rank.
    row_count, row_bytes
        Number of rows of all ranks, and bytes per row.
    allgather_rows, needed_rows
        Rows that the busiest rank receives or sends.
    allgather_s, needed_s
        Predicted seconds, without latency.
    """

    side: str
    chosen: str
    row_count: int
    row_bytes: int
    allgather_rows: int
    needed_rows: int
    allgather_s: float
    needed_s: float

    @property
    def what(self) -> str:
        """Deprecated name of `side`."""
        log.warn("FactorExchange.what is deprecated, use side", DeprecationWarning)
        return self.side

    @property
    def moved_bytes(self) -> int:
        """Return the bytes that the busiest rank receives or sends per iteration."""
        rows = {"allgather": self.allgather_rows, "needed": self.needed_rows}.get(self.chosen, 0)
        return rows * self.row_bytes

    def __str__(self) -> str:
        if self.chosen == "stay":
            return f"{self.side}: not exchanged"
        costs = f"allgather {self.allgather_s * 1e3:.3g} ms, needed rows {self.needed_s * 1e3:.3g} ms"
        return f"{self.side}: {self.chosen}, {self.moved_bytes / 1e6:.3g} MB to a rank ({costs})"


class FactorTransfer:
    """Delivers the factors of the users, or of the items, to this rank.

    Parameters
    ----------
    comm
        The ranks.
    side
        "users" or "items".
    cuts : (p + 1,) int64
        Start of each rank's range.
    columns : (e,) int32
        Row numbers of the factors that this rank's ratings need.
    rank
        Number of factors per row.
    method
        "allgather" or "needed"; None selects the cheaper one.
    """

    def __init__(
        self,
        comm: Communicator,
        side: str,
        cuts: NDArray[np.int64],
        columns: NDArray[np.int32],
        rank: int,
        method: str | None,
    ) -> None:
        self._comm, self._cuts, self._rank = comm, cuts, rank
        is_needed = np.zeros(int(cuts[-1]), np.bool_)
        is_needed[columns] = True
        self._needed = np.flatnonzero(is_needed)
        self._in_counts = np.diff(np.searchsorted(self._needed, cuts))
        self._out_counts = comm.alltoall(self._in_counts, out=np.empty_like(self._in_counts))
        self.exchange = self._choose_method(side, method)
        self.columns = columns
        if self.exchange.chosen == "needed":
            places = np.cumsum(is_needed, dtype=np.int32) - np.int32(1)
            self.columns = places[columns]
            requested = np.empty(int(self._out_counts.sum()), np.int64)
            counts, out_counts = self._in_counts.tolist(), self._out_counts.tolist()
            comm.alltoall(self._needed, out=requested, counts=counts, out_counts=out_counts)
            self._sent_rows = requested - int(cuts[comm.rank])

    def __call__(self, own: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the factors that `columns` refers to, given this rank's factors."""
        if self.exchange.chosen == "stay":
            return own
        if self.exchange.chosen == "allgather":
            table = np.empty((int(self._cuts[-1]), self._rank), np.float32)
            self._comm.allgather(own, out=table, counts=np.diff(self._cuts).tolist())
            return table
        table = np.empty((len(self._needed), self._rank), np.float32)
        counts, out_counts = self._out_counts.tolist(), self._in_counts.tolist()
        return self._comm.alltoall(own[self._sent_rows], out=table, counts=counts, out_counts=out_counts)

    def _choose_method(self, side: str, method: str | None) -> FactorExchange:
        comm, row_bytes = self._comm, 4 * self._rank
        others = np.arange(comm.world_size) != comm.rank
        mine = max(int(self._in_counts[others].sum()), int(self._out_counts[others].sum()))
        row_count = int(self._cuts[-1])
        rows = np.array([mine, row_count - (self._cuts[comm.rank + 1] - self._cuts[comm.rank])])
        needed_rows, allgather_rows = comm.allreduce(rows, op="max").tolist()
        # All ranks use the value of rank 0, so that they choose the same method.
        beta = comm.broadcast(float(_native.packet_curve(comm._native).beta_s_per_byte))
        allgather_s = allgather_rows * row_bytes * beta
        needed_s = needed_rows * row_bytes * (beta + GAMMA_S_PER_BYTE)
        cheaper = "needed" if needed_s < allgather_s else "allgather"
        chosen = "stay" if comm.world_size == 1 else method or cheaper
        return FactorExchange(side, chosen, row_count, row_bytes, allgather_rows, needed_rows, allgather_s, needed_s)
