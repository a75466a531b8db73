"""Provide regroup: move keyed rows to the ranks that own their keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, overload

from ripieno._types import CombineOne
from ripieno.comm.rank import CallBase
from ripieno.keyed.regroup import regrouping
from ripieno.wire.calls import StagedCall

if TYPE_CHECKING:
    from os import PathLike

    from ripieno.keyed import Groups, KeyValues, Table
    from ripieno.keyed.combiners import Combine
    from ripieno.keyed.partitioners import Partitioner


class KeyedData(CallBase):
    """The call of a communicator that moves keyed data. `allreduce` and `allgather` accept keyed data, too."""

    @overload
    def regroup(
        self,
        rows: KeyValues | Table,
        *,
        combine: Combine | None = None,
        partitioner: Partitioner = None,
        local_reduction: bool = True,
        memory_limit: int | None = None,
        spill_directory: str | PathLike[str] | None = None,
        on_block: Callable[[Any], None],
    ) -> None: ...

    @overload
    def regroup(
        self,
        rows: Table,
        *,
        combine: Combine | None = None,
        partitioner: Partitioner = None,
        local_reduction: bool = True,
        memory_limit: int | None = None,
        spill_directory: str | PathLike[str] | None = None,
    ) -> Table: ...

    @overload
    def regroup(
        self,
        rows: KeyValues,
        *,
        combine: Literal["concat"],
        partitioner: Partitioner = None,
        local_reduction: bool = True,
        memory_limit: int | None = None,
        spill_directory: str | PathLike[str] | None = None,
    ) -> Groups: ...

    @overload
    def regroup(
        self,
        rows: KeyValues,
        *,
        combine: CombineOne | None = None,
        partitioner: Partitioner = None,
        local_reduction: bool = True,
        memory_limit: int | None = None,
        spill_directory: str | PathLike[str] | None = None,
    ) -> KeyValues: ...

    @overload
    def regroup(
        self,
        rows: KeyValues,
        *,
        combine: Combine | None = None,
        partitioner: Partitioner = None,
        local_reduction: bool = True,
        memory_limit: int | None = None,
        spill_directory: str | PathLike[str] | None = None,
    ) -> KeyValues | Groups: ...

    def regroup(
        self,
        rows: KeyValues | Table,
        *,
        combine: Combine | None = None,
        partitioner: Partitioner = None,
        local_reduction: bool = True,
        memory_limit: int | None = None,
        spill_directory: str | PathLike[str] | None = None,
        on_block: Callable[[Any], None] | None = None,
    ) -> Any:
        """Move all rows of a key to one rank, its owner, and combine them. Every rank calls it.

        Rows with equal keys are combined before they are sent, and again at the owner. All orders are fixed: the result
        has the same bits in every run, for every number of threads. Its order depends on the keys.

        Parameters
        ----------
        rows : KeyValues or Table
            Keys of one kind, and values of one dtype and width, on all ranks. A rank without rows adopts the others'
            types.
        combine : {"sum", "prod", "mul", "min", "max", "and", "or", "xor", "concat"} or callable, optional
            The combination of the rows of a key; by default "sum", or the operation of the table. "concat" keeps all
            rows side by side. A function takes two blocks of rows, of shape (m,) or (m, width), and returns a block of
            the same shape and dtype, as NumPy's ufuncs do. It must be associative. Sums and products of float32 and
            shorter floats are computed in float64 and rounded once, at the end. So partial sums are sent as float64: a
            row of an int64 key and a float32 has 16 bytes instead of 12.
        partitioner : {"hash", "balanced"} or callable, optional
            The owner of each key. "hash", the default, uses a hash that is the same on every machine. "balanced", the
            default of "concat", assigns ranges of hashes so that ranks get about equal amounts. A function takes an
            array of keys and returns an array of ranks; on every rank, equal keys must map to equal ranks. For tables
            the owner of an id is ``id % world_size``, or the rank that a function returns. Python's builtin ``hash``
            means "hash".
        local_reduction : bool
            False sends every row, to measure the savings of local reduction.
        memory_limit : int, optional
            Bytes beyond which rows are spilled to temporary files during the exchange. The result is in memory. Keys
            are divided into 256 parts, or 4 for each rank if that is more. Each part is merged as a whole, so a part
            larger than half of the limit, for example because a key has many rows, exceeds it. The limit does not
            change the bits, unless a function combines: it then combines the rows of a key in several steps.
        spill_directory : path, optional
            Folder of temporary files; by default Python's. The files are unnamed, so none is left behind.
        on_block : callable, optional
            Receives the result in pieces, KeyValues or Groups, each as soon as its keys are complete.

        Returns
        -------
        KeyValues, Groups, Table or None
            The keys that this rank owns: Groups for "concat", None with `on_block`.

        Raises
        ------
        InputError
            An argument is wrong; or `combine` or `partitioner` returned another shape or dtype, or a rank that does not
            exist.
        SpillError
            Temporary files cannot be written.
        CollectiveMismatch
            On every rank: ranks differ in the kind of keys, dtype, width, `combine` or `partitioner`.

        Notes
        -----
        Errors of `combine`, `partitioner` or `on_block` are raised at the caller; other ranks get `RankFailed`.
        """
        call = regrouping(
            rows,
            self.world_size,
            self.threads,
            combine=combine,
            partitioner=partitioner,
            local_reduction=local_reduction,
            memory_limit=memory_limit,
            spill_directory=spill_directory,
            on_block=on_block,
        )
        return self._do(StagedCall(lambda native: call(native)[0]))
