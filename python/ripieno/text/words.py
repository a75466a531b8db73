"""Word count: every rank counts the words of its splits, and counts of equal words meet.

A thread counts into a table of its own; what leaves a rank is one row per distinct word. Cost: one pass over the text,
then a regroup of the distinct words.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import ripieno._native as _native
from ripieno._threads import mapped
from ripieno.comm.agreement import agreement
from ripieno.errors import InputError
from ripieno.files.sources import PathLike
from ripieno.input import Split, share, splits
from ripieno.keyed import Emitter, KeyedForm, KeyValues, regroup
from ripieno.keyed.columns import Strings

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: So many splits for each thread, so that none has much to do when the others are done.
SPLITS_PER_THREAD = 8
#: Below this, words go to temporary files almost one by one.
LEAST_MEMORY = 1 << 18
FORM = KeyedForm("binary", "int64", None)


def count_words(
    source: PathLike | Sequence[PathLike],
    *,
    lower: bool = False,
    workers: int = 1,
    threads: int | None = None,
    memory_limit: int | None = None,
    spill_directory: str | os.PathLike[str] | None = None,
    comm: Communicator | None = None,
    on_event: Callable[[dict[str, Any]], None] | None = None,
) -> KeyValues:
    """Count the words of files.

    A word is a longest run of bytes that are not ASCII white space, as `bytes.split` finds it.

    Parameters
    ----------
    source : path, glob, folder, URL, or list of them
        Text, also compressed (.gz, .bz2, .xz). Plain files are divided among workers and threads, between lines.
    lower : bool
        Whether ASCII capitals count as small letters.
    workers, threads : int
        As for `ripieno.launch`.
    memory_limit : int, optional
        Bytes that a worker's words and counts may take while they are counted, 262,144 or more; what is more goes to
        temporary files.
    spill_directory : path, optional
        Where these are; by default where Python's are.
    comm : Communicator, optional
        Ranks that run already. Each of them makes this call; `workers` and `on_event` are ignored.
    on_event : callable, optional
        Gets ``{"event": "counted", "rank", "bytes", "total_bytes"}`` whenever a split is done.

    Returns
    -------
    KeyValues
        Words and int64 counts, the most frequent first and, of equal counts, in the order of their bytes; words are
        strings if all are UTF-8, otherwise bytes. With `comm` those at home on this rank.

    Raises
    ------
    InputError
        Nothing matches, a file is missing or damaged, or `memory_limit` is too little.
    SpillError
        Temporary files cannot be written.
    """
    if memory_limit is not None and memory_limit < LEAST_MEMORY:
        raise InputError(f"memory_limit={memory_limit}: expected {LEAST_MEMORY:,} bytes or more")
    options = (source, lower, memory_limit, spill_directory)
    if comm is not None:
        return _ordered(_counted(comm, *options))
    # Imported late: what computes and what launches know of each other only here.
    from ripieno.launch import launch

    with launch(workers, threads=threads, on_event=on_event) as job:
        return _ordered(KeyValues.joined(job.run(_counted, *options)))


def _counted(
    comm: Communicator,
    source: PathLike | Sequence[PathLike],
    lower: bool,
    memory_limit: int | None,
    spill_directory: str | os.PathLike[str] | None,
) -> KeyValues:
    """The words whose home is here, counted on all ranks."""
    with agreement(comm):
        cut = splits(source, count=SPLITS_PER_THREAD * comm.threads * comm.world_size, format="text")
    mine = share(cut, comm)
    # One half for the threads' tables, the other for what they have put together.
    half = None if memory_limit is None else memory_limit // 2
    emitter = Emitter(comm.world_size, memory_limit=half, spill_directory=spill_directory, threads=comm.threads)
    total_bytes = sum(split.size_bytes for split in cut)
    with agreement(comm):
        for size_bytes in _add_words(mine, emitter, lower, comm.threads, half):
            comm.emit({"event": "counted", "bytes": size_bytes, "total_bytes": total_bytes})
    rows, _ = regroup(comm, emitter)
    return _with_type(comm, rows)


def _add_words(
    mine: Sequence[Split], emitter: Emitter, lower: bool, threads: int, memory_limit: int | None
) -> Iterator[int]:
    """Add the words of splits to an emitter; gives the size of each split that is done."""
    rows = emitter.aggregation(FORM)
    most_bytes = None if memory_limit is None else memory_limit // threads
    tables: SimpleQueue[_native.WordCounts] = SimpleQueue()
    for _ in range(threads):
        tables.put(_native.WordCounts(lower))

    def count(split: Split) -> int:
        words = tables.get()
        for text in split.blocks():
            words.add(text)
            if most_bytes is not None and words.size_bytes > most_bytes:
                rows.add(*words.take())
        tables.put(words)
        return split.size_bytes

    yield from mapped(count, mine, threads)
    while not tables.empty():
        rows.add(*tables.get().take(), None, threads)
    emitter.row_count += rows.row_count


def _with_type(comm: Communicator, rows: KeyValues) -> KeyValues:
    """Words as strings, if those of all ranks are UTF-8."""
    import pyarrow as pa

    try:
        rows.keys.cast(pa.large_string())
        is_text = True
    except pa.ArrowInvalid:
        is_text = False
    is_text = all(comm.allgather(is_text))
    assert isinstance(rows.key_column, Strings), "words are strings"
    return KeyValues(rows.key_column._replace(is_text=is_text), rows.values)


def _ordered(rows: KeyValues) -> KeyValues:
    return rows.sorted("value", descending=True)
