"""Regroup: rows under keys go to the ranks at which their keys are at home."""

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
    """The call of a communicator that moves keyed data; `allreduce` and `allgather` take some, too."""

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
        """Bring equal keys of all ranks together on one rank, their home, combined. Every rank calls it.

        Rows of equal keys are combined before anything is sent, and again at their home. Orders are fixed: the result
        is the same bits in every run, for every number of threads. It comes in an order that depends on the keys.

        Parameters
        ----------
        rows : KeyValues or Table
            Keys of one kind, values of one dtype and width on all ranks; a rank without rows takes those of the others.
        combine : {"sum", "prod", "mul", "min", "max", "and", "or", "xor", "concat"} or callable, optional
            How rows of a key become one; by default "sum", or the operation of the table. "concat" keeps them all, side
            by side. A function takes two blocks of rows, of shape (m,) or (m, width), and gives one of the same shape
            and dtype, as NumPy's ufuncs do; it is associative. Sums and products of float32 and shorter floats are
            computed in float64 and rounded once, at the end.
        partitioner : {"hash", "balanced"} or callable, optional
            Where keys are at home. "hash", the default, goes by a hash that is the same on every machine. "balanced",
            the default of "concat", deals the ranges of hashes so that ranks get about equal amounts. A function takes
            an array of keys and gives an array of ranks, equal ones for equal keys on every rank. Ids of tables are at
            home at ``id % world_size``, or at the rank that a function gives. Python's builtin ``hash`` means "hash".
        local_reduction : bool
            False sends every row, which shows how much local reduction saves.
        memory_limit : int, optional
            Bytes beyond which rows go to temporary files on their way. The result is in memory. Keys are divided into
            256 parts, or 4 for each rank if that is more. A part is merged and handed on whole, so a part that is
            larger than half of the limit, for instance because a key has many rows, exceeds it. The limit does not
            change the bits, unless a function combines: it then folds the rows of a key in several goes.
        spill_directory : path, optional
            Where temporary files are; by default where Python's are. They have no names, so none is left behind.
        on_block : callable, optional
            Gets the result in pieces, KeyValues or Groups, each as soon as its keys are complete.

        Returns
        -------
        KeyValues, Groups, Table or None
            The keys that are at home here: Groups for "concat", None with `on_block`.

        Raises
        ------
        InputError
            An argument is wrong; or `combine` or `partitioner` gave another shape or dtype, or a rank that is not
            there.
        SpillError
            Temporary files cannot be written.
        CollectiveMismatch
            On every rank: ranks differ in the kind of keys, dtype, width, `combine` or `partitioner`.

        Notes
        -----
        Errors of `combine`, `partitioner` or `on_block` go to the caller; other ranks get `RankFailed`.
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
