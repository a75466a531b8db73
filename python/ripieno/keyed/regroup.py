"""Regroup: rows with equal keys come together on one rank, combined.

Equal keys are combined on their way in (*local reduction*), their rows leave for their home ranks once, and are
combined there with those of other ranks as they come. Cost: local reduction, an allreduce of 32 bytes, the exchange of
sizes, and the combined rows once.
Source: Zhang et al., "Harp: collective communication on Hadoop", IC2E 2015, section IV; Zhang et al., "Social image
clustering with iterative MapReduce (Twister)", section 5.1 (local reduction).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ripieno import _native
from ripieno._arrays import reducible
from ripieno._handles import Talk
from ripieno.errors import InputError
from ripieno.keyed import agreement, columns, partitioners
from ripieno.keyed.columns import Form
from ripieno.keyed.combiners import CONCAT, Combine, combiner_of, fold
from ripieno.keyed.gather import allgathered
from ripieno.keyed.groups import Groups, offsets_of
from ripieno.keyed.key_values import KeyValues
from ripieno.keyed.partitioners import Partitioner
from ripieno.keyed.table import Table
from ripieno.keyed.table_calls import table_regrouping

if TYPE_CHECKING:
    from ripieno.comm import Communicator


class Emitter:
    """Rows on their way to their home ranks: those of equal keys are combined as they are added.

    Parameters
    ----------
    world_size : int
        How many ranks the keys have their homes at.
    combine, partitioner, local_reduction, memory_limit, spill_directory
        As for `Communicator.regroup`.
    threads : int
        How many compute.

    Attributes
    ----------
    form : Form or None
        What has been added: kind of keys, dtype and width; None as long as nothing was.
    """

    def __init__(
        self,
        world_size: int,
        combine: Combine = "sum",
        *,
        partitioner: Partitioner = None,
        local_reduction: bool = True,
        memory_limit: int | None = None,
        spill_directory: str | os.PathLike[str] | None = None,
        threads: int = 1,
    ) -> None:
        partitioners.check(partitioner)
        self.form: Form | None = None
        self._world_size = world_size
        self._combiner = combiner_of(combine)
        self._partitioner = partitioner
        self._local_reduction = local_reduction
        self._memory_limit, self._spill_directory = _checked_limit(memory_limit, spill_directory)
        self._threads = threads
        self._rows: _native.Aggregation | None = None
        # What a function has to fold before it leaves: all rows of each key, and how many bytes they are.
        self._unfolded: _native.Aggregation | None = None
        self._unfolded_bytes = 0

    def add(self, rows: KeyValues) -> None:
        """Add rows; all that are added have keys of one kind and values of one dtype and width.

        Raises
        ------
        InputError
            Rows differ from those before, the combination is not defined on their values, or the partitioner gives
            anything but ranks.
        SpillError
            The memory limit is reached, and temporary files cannot be written.
        """
        keys, values = rows.key_column, rows.values
        if self.form is None or (self.row_count == 0 and len(rows)):
            self._check_combine(values)
            self.form = rows.form
        if len(rows) == 0:
            return
        if rows.form != self.form:
            raise InputError(f"add: {rows.form} after {self.form}: expected rows of one form")
        if not self._folds_first:
            self._send_later(keys, values)
            return
        row_bytes = -(-rows.nbytes // len(rows))
        step = len(rows) if self._memory_limit is None else max(1, self._memory_limit // row_bytes)
        for begin in range(0, len(rows), step):
            part, end = columns.slice_keys(keys, begin, begin + step), min(begin + step, len(rows))
            if self._unfolded is None:
                self._unfolded = _native.Aggregation(*self.form.native, CONCAT, 1)
            self._unfolded.add(columns.native_keys(part), values[begin:end], None, self._threads)
            self._unfolded_bytes += (end - begin) * row_bytes
            if self._memory_limit is not None and self._unfolded_bytes >= self._memory_limit:
                self._fold()

    def absorb(self, other: Emitter) -> None:
        """Add what was added to `other`, of the same options, behind what was added here; `other` is over then."""
        other._fold()
        self._fold()
        if other._rows is None:
            return
        if self.row_count and other.form != self.form:
            raise InputError(f"absorb: {other.form} into {self.form}: expected rows of one form")
        if self._rows is None:
            self.form, self._rows = other.form, other._rows
        else:
            self._rows.absorb(other._rows)
        other._rows = None

    @property
    def row_count(self) -> int:
        """How many rows there are to send; of those that a function has still to fold, all."""
        return sum(each.row_count for each in (self._rows, self._unfolded) if each is not None)

    def aggregation(self, form: Form) -> _native.Aggregation:
        """The native aggregation that rows of `form` go to, for kernels that add to it by themselves."""
        if self._rows is None:
            self.form = form
            combine = self._native_combine if self._local_reduction or not form.dtype else CONCAT
            limit = (self._memory_limit, self._spill_directory)
            self._rows = _native.Aggregation(*form.native, combine, self._world_size, *limit)
        return self._rows

    def combined(self) -> KeyValues | Groups:
        """The rows of this rank alone; of an emitter for a world of one."""
        self._fold()
        if self.form is None:
            raise InputError("combined: nothing was added, so there is no type of keys and values")
        return self._result(self.aggregation(self.form).blocks(self._threads))

    def regroup(
        self, native: Any, on_block: Callable[[KeyValues | Groups], None] | None = None, **exchange: Any
    ) -> tuple[KeyValues | Groups | None, dict[str, Any]]:
        """Send all rows home, and get those that have their home here; see `Communicator.regroup`.

        Returns
        -------
        KeyValues or Groups, or None with `on_block`
        dict
            Statistics: "rows_in", "rows_sent", "keys", "waves", "bytes_sent", "spilled_bytes" and seconds.
        """
        self._fold()
        form = self.form or Form("int64", "", None)
        form = agreement.common_form(native, self._call, form, self.row_count)
        if self.row_count == 0:
            self._rows = None
        rows, self._rows = self.aggregation(form), None

        def give(block: _native.Block) -> None:
            on_block(self._result([block]))  # type: ignore[misc]

        blocks, statistics = native.regroup(
            rows,
            merge=self._native_combine,
            balanced=self._is_balanced,
            threads=self._threads,
            memory_limit_bytes=self._memory_limit,
            on_block=None if on_block is None else give,
            **exchange,
        )
        return None if on_block is not None else self._result(blocks), statistics

    @property
    def _call(self) -> str:
        by = partitioners.name_of(self._partitioner, "balanced" if self._is_balanced else "hash")
        return f"regroup of key-values by {by}, combine={self._combiner.name}"

    @property
    def _is_balanced(self) -> bool:
        return self._partitioner == "balanced" or (self._partitioner is None and self._combiner.name == CONCAT)

    @property
    def _native_combine(self) -> str:
        """Rows without values have nothing to fold."""
        has_values = self.form is None or self.form.dtype
        return self._combiner.native if has_values or self._combiner.function is None else "sum"

    @property
    def _folds_first(self) -> bool:
        assert self.form is not None, "rows were added"
        return self._combiner.function is not None and self._local_reduction and bool(self.form.dtype)

    def _check_combine(self, values: np.ndarray | None) -> None:
        if values is not None and self._combiner.function is None and self._combiner.name != CONCAT:
            reducible(values, self._combiner.name, "regroup")

    def _fold(self) -> None:
        """Let the function make one row per key of what it has not seen yet."""
        if self._unfolded is None or self.form is None:
            return
        unfolded, self._unfolded, self._unfolded_bytes = self._unfolded, None, 0
        groups = self._groups(unfolded.blocks(self._threads))
        self._send_later(groups.key_column, fold(self._combiner, groups.values, groups.counts))

    def _send_later(self, keys: columns.Keys, values: np.ndarray | None) -> None:
        assert self.form is not None, "rows were added"
        homes = None
        if callable(self._partitioner):
            homes = partitioners.homes_of(self._partitioner, KeyValues(keys).keys, self._world_size)
        given = columns.native_values(values, columns.key_count(keys))
        self.aggregation(self.form).add(columns.native_keys(keys), given, homes, self._threads)

    def _groups(self, blocks: list[_native.Block]) -> Groups:
        form = self.form
        parts = [
            Groups(form.keys_of(block.keys), offsets_of(block.counts), form.rows_of(block.values)) for block in blocks
        ]
        keys, values = form.empty
        return Groups.joined(parts) if parts else Groups(keys, offsets_of(np.empty(0, np.int64)), values)

    def _result(self, blocks: list[_native.Block]) -> KeyValues | Groups:
        form = self.form
        if self._native_combine == CONCAT:
            groups = self._groups(blocks)
            if self._combiner.function is None:
                return groups
            return KeyValues(groups.key_column, fold(self._combiner, groups.values, groups.counts))
        parts = [KeyValues(form.keys_of(block.keys), form.rows_of(block.values)) for block in blocks]
        return KeyValues.joined(parts or [KeyValues(*form.empty)])


def regroup(
    comm: Communicator,
    rows: KeyValues | Table | Emitter,
    *,
    on_block: Callable[[Any], None] | None = None,
    exchange: dict[str, int] | None = None,
    **options: Any,
) -> tuple[Any, dict[str, Any]]:
    """As `Communicator.regroup`, with statistics beside the result.

    Parameters
    ----------
    rows : KeyValues, Table or Emitter
        An emitter is empty afterwards.
    on_block : callable, optional
        As for `Communicator.regroup`.
    exchange : dict, optional
        How rows travel: "wave_bytes", "eager_bytes" and "pulls". Not for tables.
    options
        Those of `Communicator.regroup`; an emitter has its own, so none beside it.

    Returns
    -------
    KeyValues, Groups or Table; or None
    dict
        What `Emitter.regroup` tells.
    """
    return comm._do(Talk(regrouping(comm, rows, on_block=on_block, exchange=exchange, **options)))


def regrouping(
    comm: Communicator,
    rows: Any,
    *,
    on_block: Callable[[Any], None] | None = None,
    exchange: dict[str, int] | None = None,
    **options: Any,
) -> Callable[[Any], tuple[Any, dict[str, Any]]]:
    """The call that `regroup` makes, for the native communicator; the options are checked here."""
    if isinstance(rows, Table):
        return table_regrouping(rows, on_block=on_block, **options)
    if isinstance(rows, KeyValues):
        emitter = Emitter(comm.world_size, options.pop("combine", None) or "sum", threads=comm.threads, **options)
    elif isinstance(rows, Emitter):
        if options:
            raise InputError(f"{', '.join(options)} beside an emitter, which has its own")
        emitter = rows
    else:
        raise InputError(f"regroup of a {type(rows).__name__}: expected KeyValues or a Table")

    def call(native: Any) -> tuple[Any, dict[str, Any]]:
        if isinstance(rows, KeyValues):
            emitter.add(rows)
        return emitter.regroup(native, on_block, **(exchange or {}))

    return call


def allreduced(comm: Communicator, rows: KeyValues, op: Combine) -> Talk:
    """One row per key, of all ranks' rows, on every rank."""
    if op == CONCAT:
        raise InputError("op='concat': allgather brings all rows to every rank")
    regroup_rows = regrouping(comm, rows, combine=op)
    return Talk(lambda native: allgathered(native, regroup_rows(native)[0]))


def _checked_limit(
    memory_limit: int | None, spill_directory: str | os.PathLike[str] | None
) -> tuple[int | None, str | None]:
    """Bytes, and the directory of the temporary files."""
    if memory_limit is None:
        if spill_directory is not None:
            raise InputError(f"spill_directory={str(spill_directory)!r}: expected a memory_limit with it")
        return None, None
    if isinstance(memory_limit, bool) or not isinstance(memory_limit, int | np.integer) or memory_limit <= 0:
        raise InputError(f"memory_limit={memory_limit!r}: expected a number of bytes, 1 or more")
    directory = os.fspath(spill_directory) if spill_directory is not None else tempfile.gettempdir()
    if not os.path.isdir(directory):
        raise InputError(f"spill_directory={directory!r}: expected a directory")
    return int(memory_limit), directory
