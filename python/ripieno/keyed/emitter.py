"""Provide `Emitter`: it combines rows by key and sends them to the owners of the keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numpy.typing import NDArray

import ripieno._native as _native
from ripieno import log
from ripieno._checks import check_threads
from ripieno.errors import CollectiveMismatch, InputError
from ripieno.keyed import agreement, columns, partitioners
from ripieno.keyed.columns import KeyedSchema
from ripieno.keyed.combiners import CONCAT, Combine, fold
from ripieno.keyed.groups import Groups, offsets_of
from ripieno.keyed.key_values import KeyValues
from ripieno.keyed.options import options_of
from ripieno.units import bytes_text
from ripieno.wire import objects


class Emitter:
    """Combines added rows of equal keys immediately, and sends all rows to their owners at once.

    If adding rows fails, only some of them may have been added. Every later call then raises the same error.

    Parameters
    ----------
    world_size : int
        The number of ranks that own keys.
    combine : str or callable
        As for `Communicator.regroup`.
    threads : int
        Number of computing threads.
    options
        "partitioner", "local_reduction", "memory_limit" and "spill_directory", as for `Communicator.regroup`; and
        "widen": False keeps the dtype of integers in sums and products, which then overflow in it.

    Attributes
    ----------
    schema : KeyedSchema or None
        The schema of the added rows: kind of keys, dtype and width; None before the first.
    row_count : int
        The number of added rows.
    """

    def __init__(self, world_size: int, combine: Combine = "sum", *, threads: int = 1, **options: Any) -> None:
        check_threads(threads)
        self.schema: KeyedSchema | None = None
        self.row_count = 0
        self._world_size = world_size
        self._threads = threads
        self._options = options_of(combine, **options)
        self._rows: _native.Aggregation | None = None
        # Rows for a function to fold before they are sent: all rows of each key, and their size in bytes.
        self._unfolded: _native.Aggregation | None = None
        self._unfolded_bytes = 0
        self._failed: BaseException | None = None

    def __repr__(self) -> str:
        return f"<Emitter for {self._world_size} ranks: {self.row_count} rows added>"

    def add(self, rows: KeyValues) -> None:
        """Add rows. All added rows have keys of one kind and values of one dtype and width.

        Raises
        ------
        InputError
            Rows differ in schema from earlier ones, the combination does not support their values, or the partitioner
            returns invalid ranks.
        SpillError
            The memory limit is reached, and temporary files cannot be written.
        """
        self._check_usable()
        rows = rows.widened(self._options.combiner) if self._options.widen else rows
        self._options.check(rows.values)
        schema, count = rows.schema, len(rows)
        if self.row_count == 0:
            self.schema = schema
        if count == 0:
            return
        if schema != self.schema:
            raise InputError(f"add: {schema} after {self.schema}: expected rows of one schema")
        self.row_count += count
        with self._storing_failure():
            if self._options.local_reduction and self._options.combination(schema).is_folded:
                self._add_unfolded(rows)
            else:
                self._add_combined(schema, rows.key_column, rows.values)

    def absorb(self, other: Emitter) -> None:
        """Add the rows of `other`, with the same options, after the rows of this one. `other` is empty afterwards."""
        self._check_usable()
        other._check_usable()
        if other.schema is None or other.row_count == 0:
            return
        if self.row_count and other.schema != self.schema:
            raise InputError(f"absorb: {other.schema} into {self.schema}: expected rows of one schema")
        self.schema, self.row_count = other.schema, self.row_count + other.row_count
        with self._storing_failure():
            theirs = other._take_rows(other.schema)
            self._fold()
            if self._rows is None:
                self._rows = theirs
            else:
                self._rows.absorb(theirs)

    def aggregation(self, schema: KeyedSchema) -> _native.Aggregation:
        """Return the native aggregation for rows of `schema`, for kernels that add to it directly.

        Such kernels also update `row_count`.
        """
        self._check_usable()
        return self._aggregation(schema)

    def _aggregation(self, schema: KeyedSchema) -> _native.Aggregation:
        if self._rows is None:
            self.schema = schema
            local_op = self._options.combination(schema).local_op
            self._rows = _native.Aggregation(*schema.native, local_op, self._world_size, *self._options.limit)
        return self._rows

    def combined(self) -> KeyValues | Groups:
        """Return the rows of this rank only, from an emitter for a world of one. The emitter is empty afterwards.

        Raises
        ------
        InputError
            No rows were added, so the types of keys and values are unknown.
        """
        self._check_usable()
        if self.schema is None:
            raise InputError("combined: nothing was added, so keys and values have no type")
        return self._result(self.schema, self._take_rows(self.schema).block(self._threads))

    def regroup(
        self, native: Any, on_block: Callable[[KeyValues | Groups], None] | None = None, **exchange: Any
    ) -> tuple[KeyValues | Groups | None, dict[str, Any]]:
        """Send all rows to their owners, and return the rows that this rank owns. The emitter is empty afterwards.

        Parameters
        ----------
        native : ripieno._native.Communicator
            A communicator of `world_size` ranks. Every rank makes this call.
        on_block : callable, optional
            As for `Communicator.regroup`.
        exchange
            Options of the exchange: "wave_bytes", "eager_bytes" and "pulls".

        Returns
        -------
        KeyValues or Groups, or None with `on_block`
        dict
            Statistics: "rows_added" to this rank's emitter, "rows_in" after local reduction, "rows_sent" and
            "bytes_sent" to other ranks, "waves" of the exchange, "keys" and "rows" that this rank owns, "spilled_bytes"
            in temporary files, and seconds: "sealing_s", "sizes_s", "exchange_s", "merge_s" and "callback_s" (in
            `on_block`).

        Raises
        ------
        CollectiveMismatch
            On every rank: calls or the schemas of rows differ between ranks. Then the emitter is empty, too.
        """
        self._check_usable()
        schema, options, row_count = self.schema or KeyedSchema("int64", "", None), self._options, self.row_count
        on_native_block = None if on_block is None else lambda block: on_block(self._result(schema, block))
        try:
            block, statistics = native.regroup(
                self._take_rows(schema),
                options.call,
                merge=options.combination(schema).merge_op,
                balanced=options.is_balanced,
                threads=self._threads,
                memory_limit_bytes=options.limit.memory_bytes,
                on_block=on_native_block,
                **exchange,
            )
        except CollectiveMismatch:
            # The native module detects only that the calls differ. This comparison names the differences.
            agreement.check(objects.allgather(native, agreement.call_text(options.call, schema, row_count), None))
            raise
        if statistics["spilled_bytes"]:
            limit, spilled = options.limit, bytes_text(statistics["spilled_bytes"])
            log.note("ripieno.keyed", f"{spilled} of rows went to {limit.directory}: memory_limit={limit.memory_bytes}")
        result = None if block is None else self._result(schema, block)
        return result, {"rows_added": row_count, **statistics}

    @contextmanager
    def _storing_failure(self) -> Iterator[None]:
        """Store an exception from the block, so that every later call raises it."""
        try:
            yield
        except BaseException as error:
            self._failed = error
            raise

    def _check_usable(self) -> None:
        if self._failed is not None:
            raise self._failed

    def _add_unfolded(self, rows: KeyValues) -> None:
        """Keep rows until a function folds them: at the end, or when they reach the memory limit."""
        limit_bytes, row_bytes = self._options.limit.memory_bytes, -(-rows.nbytes // len(rows))
        step = len(rows) if limit_bytes is None else max(1, limit_bytes // row_bytes)
        for begin in range(0, len(rows), step):
            keys = columns.slice_keys(rows.key_column, begin, begin + step)
            values = rows.values[begin : begin + step]
            if self._unfolded is None:
                self._unfolded = _native.Aggregation(*rows.schema.native, CONCAT, 1)
            native_values = columns.native_values(values, len(values))
            self._unfolded.add(columns.native_keys(keys), native_values, None, self._threads)
            self._unfolded_bytes += len(values) * row_bytes
            if limit_bytes is not None and self._unfolded_bytes >= limit_bytes:
                self._fold()

    def _fold(self) -> None:
        """Let the function fold the new rows to one row per key."""
        if self._unfolded is None or self.schema is None:
            return
        unfolded, self._unfolded, self._unfolded_bytes = self._unfolded, None, 0
        groups = _groups(self.schema, unfolded.block(self._threads))
        self._add_combined(self.schema, groups.key_column, fold(self._options.combiner, groups.values, groups.counts))

    def _add_combined(self, schema: KeyedSchema, keys: columns.Keys, values: NDArray[Any] | None) -> None:
        owners = None
        if callable(self._options.partitioner):
            owners = partitioners.owners_of(
                self._options.partitioner, KeyValues.of_columns(keys, None).keys, self._world_size
            )
        native_values = columns.native_values(values, columns.key_count(keys))
        self._aggregation(schema).add(columns.native_keys(keys), native_values, owners, self._threads)

    def _take_rows(self, schema: KeyedSchema) -> _native.Aggregation:
        """Return all added rows, as rows of `schema`, and leave the emitter empty."""
        if self._unfolded is not None:
            with self._storing_failure():
                self._fold()
        if self.row_count == 0:
            # An empty aggregation may have another schema.
            self._rows = None
        rows = self._aggregation(schema)
        self._rows, self.row_count = None, 0
        return rows

    def _result(self, schema: KeyedSchema, block: _native.KeyedArrays) -> KeyValues | Groups:
        """Return the rows that this rank owns. `schema` is the one of this rank's rows, or any if it had none."""
        schema = schema if block.label == schema.label else KeyedSchema.of_label(block.label)
        if block.counts is None:
            return KeyValues.of_columns(schema.keys_of(block.keys), schema.rows_of(block.values))
        groups = _groups(schema, block)
        if not self._options.combination(schema).is_folded:
            return groups
        return KeyValues.of_columns(groups.key_column, fold(self._options.combiner, groups.values, groups.counts))


def _groups(schema: KeyedSchema, block: _native.KeyedArrays) -> Groups:
    assert block.counts is not None, "grouped rows have counts"
    return Groups(schema.keys_of(block.keys), offsets_of(block.counts), schema.rows_of(block.values))
