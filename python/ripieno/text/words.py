"""Count words: every rank counts the words of its splits, and a regroup adds the counts of equal words.

Each thread counts into its own table, and a rank sends one row per distinct word. Cost: one pass over the text, then a
regroup of the distinct words.
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
from ripieno.keyed import Emitter, KeyedSchema, KeyValues, regroup
from ripieno.keyed.columns import Strings

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: Number of splits per thread. With several splits, threads finish at about the same time.
SPLITS_PER_THREAD = 8
#: Minimum memory. With less, almost every word would be spilled alone.
MIN_MEMORY_BYTES = 1 << 18
FORM = KeyedSchema("binary", "int64", None)


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

    A word is a maximal run of bytes that are not ASCII white space, as for `bytes.split`.

    Parameters
    ----------
    source : path, glob, folder, URL, or list of them
        Text files, also compressed (.gz, .bz2, .xz). Plain files are divided among workers and threads, between lines.
    lower : bool
        Whether to convert ASCII capitals to lower case.
    workers, threads : int
        As for `ripieno.launch`.
    memory_limit : int, optional
        Bytes for a worker's words and counts while it counts, 262,144 or more. Beyond this they are spilled to
        temporary files.
    spill_directory : path, optional
        Folder of temporary files; by default Python's.
    comm : Communicator, optional
        Ranks of a running program. Each of them makes this call; `workers` and `on_event` are ignored.
    on_event : callable, optional
        Called with ``{"event": "counted", "rank", "bytes", "total_bytes"}`` after each split.

    Returns
    -------
    KeyValues
        Words and int64 counts, the most frequent first, and words with equal counts in the order of their bytes. Words
        are strings if all are UTF-8, otherwise bytes. With `comm`: the words that this rank owns.

    Raises
    ------
    InputError
        No file matches, a file is missing or damaged, or `memory_limit` is too small.
    SpillError
        Temporary files cannot be written.
    """
    if memory_limit is not None and memory_limit < MIN_MEMORY_BYTES:
        raise InputError(f"memory_limit={memory_limit}: expected {MIN_MEMORY_BYTES:,} bytes or more")
    options = (source, lower, memory_limit, spill_directory)
    if comm is not None:
        return _by_frequency(_count(comm, *options))
    # Imported here, because the other functions of this module do not need launchers.
    from ripieno.launch import launch

    with launch(workers, threads=threads, on_event=on_event) as job:
        return _by_frequency(KeyValues.joined(job.run(_count, *options)))


def _count(
    comm: Communicator,
    source: PathLike | Sequence[PathLike],
    lower: bool,
    memory_limit: int | None,
    spill_directory: str | os.PathLike[str] | None,
) -> KeyValues:
    """Return the words that this rank owns, counted on all ranks."""
    with agreement(comm):
        cut = splits(source, count=SPLITS_PER_THREAD * comm.threads * comm.world_size, format="text")
    own = share(cut, comm)
    # Half of the memory is for the tables of the threads, half for the merged counts.
    half = None if memory_limit is None else memory_limit // 2
    emitter = Emitter(comm.world_size, memory_limit=half, spill_directory=spill_directory, threads=comm.threads)
    total_bytes = sum(split.size_bytes for split in cut)
    with agreement(comm):
        for size_bytes in _add_words(own, emitter, lower, comm.threads, half):
            comm.emit({"event": "counted", "bytes": size_bytes, "total_bytes": total_bytes})
    rows, _ = regroup(comm, emitter)
    return _with_type(comm, rows)


def _add_words(
    own: Sequence[Split], emitter: Emitter, lower: bool, threads: int, memory_limit: int | None
) -> Iterator[int]:
    """Add the words of splits to an emitter. Yield the size of each completed split."""
    rows = emitter.aggregation(FORM)
    table_limit_bytes = None if memory_limit is None else memory_limit // threads
    tables: SimpleQueue[_native.WordCounts] = SimpleQueue()
    for _ in range(threads):
        tables.put(_native.WordCounts(lower))

    def count(split: Split) -> int:
        words = tables.get()
        for text in split.blocks():
            words.add(text)
            if table_limit_bytes is not None and words.size_bytes > table_limit_bytes:
                rows.add(*words.take())
        tables.put(words)
        return split.size_bytes

    yield from mapped(count, own, threads)
    while not tables.empty():
        rows.add(*tables.get().take(), None, threads)
    emitter.row_count += rows.row_count


def _with_type(comm: Communicator, rows: KeyValues) -> KeyValues:
    """Return words as strings, if the words of all ranks are UTF-8."""
    import pyarrow as pa

    try:
        rows.keys.cast(pa.large_string())
        is_text = True
    except pa.ArrowInvalid:
        is_text = False
    is_text = all(comm.allgather(is_text))
    assert isinstance(rows.key_column, Strings), "words are strings"
    return KeyValues(rows.key_column._replace(is_text=is_text), rows.values)


def _by_frequency(rows: KeyValues) -> KeyValues:
    return rows.sorted("value", descending=True)
