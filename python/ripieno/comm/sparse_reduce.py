"""Provide `SparseReduce`: a configured sparse reduction between the ranks of a communicator."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native
from ripieno._checks import check_count
from ripieno._types import Array, Op
from ripieno.sparse.reduction import reduced, rows_of
from ripieno.wire.arrays import resolved_operation

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from ripieno.comm.communicator import Communicator
    from ripieno.sparse.design import LiveExplanation

#: Timed reductions in `SparseReduce.explain`, after one untimed reduction.
ROUND_COUNT = 5


class SparseReduce:
    """A configured sparse reduction, which can run any number of times. `Communicator.sparse` creates it.

    Attributes
    ----------
    size : int
        The exclusive upper bound of the indices.
    degrees : str
        The number of ranks that exchange at each layer, ``"8x4x2"``.
    volumes : list of dict
        Volumes of this rank before the first layer and after each: "range", the number of indices in its range;
        "out_rows", its rows while rows are reduced; "in_rows", its rows while results are returned.
    """

    def __init__(self, comm: Communicator, native: _native.SparseReduce) -> None:
        self._comm = comm
        self._configured = native
        self.size: int = native.size
        self.degrees: str = native.degrees
        self.volumes: list[dict[str, Any]] = native.volumes

    def __repr__(self) -> str:
        rows = f"{self._configured.out_count} rows out, {self._configured.in_count} in"
        return f"<SparseReduce {self.degrees}, {rows}, indices below {self.size}>"

    @overload
    def reduce(self, values: Any, op: Op = "sum", *, out: Array) -> Array: ...

    @overload
    def reduce(self, values: Array, op: Op = "sum") -> Array: ...

    @overload
    def reduce(self, values: Any, op: Op = "sum", *, out: NDArray[Any] | None = None) -> NDArray[Any]: ...

    def reduce(self, values: Any, op: Op = "sum", *, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the combination of all ranks' rows for each in-index of this rank.

        Every rank calls it. The order of the combination is fixed, so results have the same bits in every run, with any
        number of threads, and, for one index, on every rank. Sums and products of float32 and shorter floats accumulate
        in float64 over the rows of this rank with the same index, and are rounded once to the dtype of `values`. Rows
        of different ranks are combined in that dtype.

        Parameters
        ----------
        values : array of shape (len(out_indices),) or (len(out_indices), width)
            A row for each out-index, in their order. Any dtype that `Communicator.allreduce` accepts. Dtype and width
            are the same on every rank, also on a rank without rows. Rows may have more axes.
        op : {"sum", "prod", "min", "max", "and", "or", "xor"} or callable
            The combination of two elements. A function that corresponds to an operation, such as ``np.maximum``, is
            accepted instead of its name; other functions are rejected.
        out : ndarray of shape (len(in_indices),) or (len(in_indices), width), optional
            Receives the result.

        Returns
        -------
        ndarray
            A row for each in-index, in their order, in the dtype of `values`.

        Raises
        ------
        InputError
            `values` or `out` do not fit; nothing has been sent.
        CollectiveMismatch
            Ranks use different configurations, widths, dtypes or operations.
        RankFailed
            A rank died; no rank gets a result.
        """
        name = resolved_operation(op, values)
        rows = rows_of(values, name, self._configured.out_count)

        def reduce(source: NDArray[Any], into: NDArray[Any], width: int, row: str) -> None:
            self._configured.reduce(self._comm._native, source, into, width, name, row)

        return reduced(reduce, rows, self._configured.in_count, out)

    def explain(self, width: int = 1, dtype: DTypeLike = np.float32) -> LiveExplanation:
        """Return measured and predicted rows and times of the layers, and the times of other degrees.

        Every rank calls it and gets the same result, which is printable.

        Parameters
        ----------
        width : int
            Elements per row.
        dtype : dtype
            Type of an element.
        """
        from ripieno.sparse.design.live import ConfiguredReduction, explain_configured

        check_count("width", width)
        dtype = np.dtype(dtype)
        comm, own = self._comm, [[each["out_rows"], each["in_rows"]] for each in self.volumes]
        totals = comm.allreduce(np.array(own, np.int64))
        packets = _native.packet_curve(comm._native)
        seconds = self._timed(width, dtype) if comm.replicas == 1 else None
        reduction = ConfiguredReduction(comm.world_size, self.size, self.degrees, width * dtype.itemsize)
        return explain_configured(reduction, totals, packets, seconds)

    def _timed(self, width: int, dtype: np.dtype[Any]) -> float:
        """Return the median seconds of a reduction of zeros on the slowest rank."""
        values = np.zeros((self._configured.out_count, width), dtype)
        into = self.reduce(values)
        seconds = []
        for _ in range(ROUND_COUNT):
            self._comm.barrier()
            start = time.perf_counter()
            self.reduce(values, out=into)
            seconds.append(time.perf_counter() - start)
        slowest: list[float] = self._comm.allreduce(np.array(seconds), op="max").tolist()
        return statistics.median(slowest)
