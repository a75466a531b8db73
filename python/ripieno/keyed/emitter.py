"""`Emitter`: rows on their way to their home ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numpy.typing import NDArray

import ripieno._native as _native
from ripieno import log
from ripieno._checks import check_count
from ripieno.errors import CollectiveMismatch, InputError
from ripieno.keyed import agreement, columns, partitioners
from ripieno.keyed.columns import KeyedForm
from ripieno.keyed.combiners import CONCAT, Combine, fold
from ripieno.keyed.groups import Groups, offsets_of
from ripieno.keyed.key_values import KeyValues
from ripieno.keyed.options import options_of
from ripieno.units import bytes_text
from ripieno.wire import objects


class Emitter:
    """Rows of equal keys are combined as they are added; all leave for their homes at once.

    If adding rows fails, some of them are added and others not. Every later call raises the same error.

    Parameters
    ----------
    world_size : int
        How many ranks the keys have their homes at.
    combine : str or callable
        As for `Communicator.regroup`.
    threads : int
        How many compute.
    options
        "partitioner", "local_reduction", "memory_limit" and "spill_directory", as for `Communicator.regroup`; and
        "widen": False keeps the dtype of whole numbers in sums and products, which wrap around in it.

    Attributes
    ----------
    form : Form or None
        The form of the added rows: kind of keys, dtype and width; None before the first.
    row_count : int
        How many rows were added.
    """

    def __init__(self, world_size: int, combine: Combine = "sum", *, threads: int = 1, **options: Any) -> None:
        check_count("threads", threads)
        self.form: KeyedForm | None = None
        self.row_count = 0
        self._world_size = world_size
        self._threads = threads
        self._options = options_of(combine, **options)
        self._rows: _native.Aggregation | None = None
        # What a function has to fold before it leaves: all rows of each key, and how many bytes they are.
        self._unfolded: _native.Aggregation | None = None
        self._unfolded_bytes = 0
        self._failed: BaseException | None = None

    def __repr__(self) -> str:
        return f"<Emitter for {self._world_size} ranks: {self.row_count} rows added>"

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
        self._check_whole()
        rows = rows.widened(self._options.combiner) if self._options.widen else rows
        self._options.check(rows.values)
        form, count = rows.form, len(rows)
        if self.row_count == 0:
            self.form = form
        if count == 0:
            return
        if form != self.form:
            raise InputError(f"add: {form} after {self.form}: expected rows of one form")
        self.row_count += count
        with self._changing():
            if self._options.local_reduction and self._options.combination(form).is_folded:
                self._add_unfolded(rows)
            else:
                self._add_leaving(form, rows.key_column, rows.values)

    def absorb(self, other: Emitter) -> None:
        """Add the rows of `other`, of the same options, behind those of this one; `other` is empty then."""
        self._check_whole()
        other._check_whole()
        if other.form is None or other.row_count == 0:
            return
        if self.row_count and other.form != self.form:
            raise InputError(f"absorb: {other.form} into {self.form}: expected rows of one form")
        self.form, self.row_count = other.form, self.row_count + other.row_count
        with self._changing():
            theirs = other._sealed(other.form)
            self._fold()
            if self._rows is None:
                self._rows = theirs
            else:
                self._rows.absorb(theirs)

    def aggregation(self, form: KeyedForm) -> _native.Aggregation:
        """The native aggregation that rows of `form` go to, for kernels that add to it by themselves.

        They add to `row_count`, too.
        """
        self._check_whole()
        return self._aggregation(form)

    def _aggregation(self, form: KeyedForm) -> _native.Aggregation:
        if self._rows is None:
            self.form = form
            leaving = self._options.combination(form).leaving
            self._rows = _native.Aggregation(*form.native, leaving, self._world_size, *self._options.limit)
        return self._rows

    def combined(self) -> KeyValues | Groups:
        """The rows of this rank alone, of an emitter for a world of one; it is empty then.

        Raises
        ------
        InputError
            Nothing was added, so there is no type of keys and values.
        """
        self._check_whole()
        if self.form is None:
            raise InputError("combined: nothing was added, so keys and values have no type")
        return self._result(self.form, self._sealed(self.form).block(self._threads))

    def regroup(
        self, native: Any, on_block: Callable[[KeyValues | Groups], None] | None = None, **exchange: Any
    ) -> tuple[KeyValues | Groups | None, dict[str, Any]]:
        """Send all rows home, and get those that have their home here; the emitter is empty then.

        Parameters
        ----------
        native : ripieno._native.Communicator
            Of `world_size` ranks; all of them call.
        on_block : callable, optional
            As for `Communicator.regroup`.
        exchange
            How rows travel: "wave_bytes", "eager_bytes" and "pulls".

        Returns
        -------
        KeyValues or Groups, or None with `on_block`
        dict
            Statistics: "rows_added" to this rank's emitter, "rows_in" that local reduction has left of them,
            "rows_sent" and "bytes_sent" to other ranks, "waves" in which they went, "keys" and "rows" at home here,
            "spilled_bytes" to temporary files, and seconds for "sealing_s", "sizes_s", "exchange_s", "merge_s" and
            "handing_on_s" (to `on_block`).

        Raises
        ------
        CollectiveMismatch
            On every rank: ranks make other calls, or have rows of other forms. The emitter is empty then, too.
        """
        self._check_whole()
        form, options, row_count = self.form or KeyedForm("int64", "", None), self._options, self.row_count
        give = None if on_block is None else lambda block: on_block(self._result(form, block))
        try:
            block, statistics = native.regroup(
                self._sealed(form),
                options.call,
                merge=options.combination(form).arriving,
                balanced=options.is_balanced,
                threads=self._threads,
                memory_limit_bytes=options.limit.memory_bytes,
                on_block=give,
                **exchange,
            )
        except CollectiveMismatch:
            # Of what ranks call, the native module knows only whether it is the same.
            agreement.check(objects.allgather(native, agreement.described(options.call, form, row_count), None))
            raise
        if statistics["spilled_bytes"]:
            limit, spilled = options.limit, bytes_text(statistics["spilled_bytes"])
            log.note("ripieno.keyed", f"{spilled} of rows went to {limit.directory}: memory_limit={limit.memory_bytes}")
        result = None if block is None else self._result(form, block)
        return result, {"rows_added": row_count, **statistics}

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """What is raised within is what every later call raises."""
        try:
            yield
        except BaseException as error:
            self._failed = error
            raise

    def _check_whole(self) -> None:
        if self._failed is not None:
            raise self._failed

    def _add_unfolded(self, rows: KeyValues) -> None:
        """Keep rows until a function folds them: at the end, or when they are as many as memory may hold."""
        limit_bytes, row_bytes = self._options.limit.memory_bytes, -(-rows.nbytes // len(rows))
        step = len(rows) if limit_bytes is None else max(1, limit_bytes // row_bytes)
        for begin in range(0, len(rows), step):
            keys = columns.slice_keys(rows.key_column, begin, begin + step)
            values = rows.values[begin : begin + step]
            if self._unfolded is None:
                self._unfolded = _native.Aggregation(*rows.form.native, CONCAT, 1)
            given = columns.native_values(values, len(values))
            self._unfolded.add(columns.native_keys(keys), given, None, self._threads)
            self._unfolded_bytes += len(values) * row_bytes
            if limit_bytes is not None and self._unfolded_bytes >= limit_bytes:
                self._fold()

    def _fold(self) -> None:
        """Let the function make one row per key of what it has not seen yet."""
        if self._unfolded is None or self.form is None:
            return
        unfolded, self._unfolded, self._unfolded_bytes = self._unfolded, None, 0
        groups = _groups(self.form, unfolded.block(self._threads))
        self._add_leaving(self.form, groups.key_column, fold(self._options.combiner, groups.values, groups.counts))

    def _add_leaving(self, form: KeyedForm, keys: columns.Keys, values: NDArray[Any] | None) -> None:
        homes = None
        if callable(self._options.partitioner):
            homes = partitioners.homes_of(
                self._options.partitioner, KeyValues.of_columns(keys, None).keys, self._world_size
            )
        given = columns.native_values(values, columns.key_count(keys))
        self._aggregation(form).add(columns.native_keys(keys), given, homes, self._threads)

    def _sealed(self, form: KeyedForm) -> _native.Aggregation:
        """All that was added, of rows of `form`; none of it stays here."""
        if self._unfolded is not None:
            with self._changing():
                self._fold()
        if self.row_count == 0:
            # It may have been made for another form.
            self._rows = None
        rows = self._aggregation(form)
        self._rows, self.row_count = None, 0
        return rows

    def _result(self, form: KeyedForm, block: _native.Block) -> KeyValues | Groups:
        """What is at home here; `form` is that of this rank's rows, or any if it had none."""
        form = form if block.label == form.label else KeyedForm.of_label(block.label)
        if block.counts is None:
            return KeyValues.of_columns(form.keys_of(block.keys), form.rows_of(block.values))
        groups = _groups(form, block)
        if not self._options.combination(form).is_folded:
            return groups
        return KeyValues.of_columns(groups.key_column, fold(self._options.combiner, groups.values, groups.counts))


def _groups(form: KeyedForm, block: _native.Block) -> Groups:
    assert block.counts is not None, "rows that are kept side by side are counted"
    return Groups(form.keys_of(block.keys), offsets_of(block.counts), form.rows_of(block.values))
