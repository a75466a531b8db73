"""Search lines in splits of files with ranks and their threads; rank 0 receives the matches in file order.

Splits are searched in rounds, one split per thread of all ranks, so at most one round of matches is in memory.
Partitions are searched on hosts that store them. Cost: one pass over the text, and two exchanges of objects per round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

import ripieno._native as _native
from ripieno._threads import mapped
from ripieno.comm.agreement import agreement
from ripieno.errors import InputError
from ripieno.files.sources import PathLike
from ripieno.input import Split, assign, splits
from ripieno.keyed.columns import Strings

if TYPE_CHECKING:
    import pyarrow as pa

    from ripieno.comm.communicator import Communicator

#: Bytes that one thread searches in one round.
SPLIT_BYTES = 16 << 20
#: Bytes that are searched at once.
BLOCK_BYTES = 2 << 20


@dataclass(frozen=True)
class Query:
    """The lines to search for.

    Attributes
    ----------
    pattern : str
        A regular expression in the syntax of Rust's crate regex, except for the classes of ages and of breaks
        (``\\p{Age=…}``, ``\\p{WB=…}``). ``^`` and ``$`` match at the ends of a line.
    fixed : bool
        Whether the pattern is a literal string.
    ignore_case : bool
        Whether the search ignores case.
    invert : bool
        Whether to return the lines that do not match.
    max_count : int or None
        Maximum number of lines per file.
    """

    pattern: str
    fixed: bool = False
    ignore_case: bool = False
    invert: bool = False
    max_count: int | None = None

    def compiled(self) -> _native.LineSearch:
        """Return the search of the native module.

        Raises
        ------
        InputError
            The pattern is not a regular expression, or `max_count` is not a count.
        """
        if self.max_count is not None and self.max_count < 0:
            raise InputError(f"max_count={self.max_count}: expected 0 or more")
        return _native.LineSearch(self.pattern, fixed=self.fixed, ignore_case=self.ignore_case, invert=self.invert)


@dataclass
class SearchMatches:
    """Matches in a split: lines by block, or only their number."""

    split: Split
    blocks: list[_native.FoundLines] = field(default_factory=list)
    match_count: int = 0
    line_count: int = 0
    #: Known after the search of earlier splits: the preceding lines of the file, and how many of the found lines
    #: are wanted.
    lines_before: int = 0
    wanted_count: int = 0

    def wanted(self) -> Iterator[tuple[_native.FoundLines, int, int]]:
        """Yield blocks of lines, the line number of each block's first line, from 1, and the number of wanted lines."""
        number, left = 1 + self.lines_before, self.wanted_count
        for block in self.blocks:
            count = min(left, len(block))
            yield block, number, count
            number += block.line_count
            left -= count


def search(
    comm: Communicator,
    source: PathLike | Sequence[PathLike],
    query: Query,
    form: Callable[[SearchMatches], Any] | None = None,
) -> Iterator[list[tuple[Split, int, Any]]]:
    """Search files. Every rank calls it.

    Parameters
    ----------
    source : path, glob, folder, URL, or list of them
        Text files, also compressed; or a partition file, whose partitions count as files.
    form : callable, optional
        Converts the matches in a split to the result for rank 0. Without it lines are only counted.

    Yields
    ------
    list of (Split, int, object)
        The splits of a round, in file order, with the number of wanted lines of each. On rank 0 also the result of
        `form`, elsewhere None.

    Raises
    ------
    InputError
        On every rank: the pattern is not a regular expression; no file matches `source`; a file is missing or damaged.
    """
    with agreement(comm):
        lines = query.compiled()
        cut = splits(source, bytes=SPLIT_BYTES, format="text")
    # Files may grow between two calls.
    cut = comm.broadcast(cut)
    lines_before = found_before = 0
    for begin in range(0, len(cut), comm.world_size * comm.threads):
        now = cut[begin : begin + comm.world_size * comm.threads]
        own = assign(now, comm.hosts)[comm.rank]
        limits = list(_at_most(now, query.max_count, found_before))
        with agreement(comm):
            mine = [(now[at], limits[at]) for at in own]
            found = list(mapped(lambda each: _find(lines, *each, counting=form is None), mine, comm.threads))
        results = dict(zip(own, found, strict=True))
        counts = _in_order(comm.allgather({at: (each.line_count, each.match_count) for at, each in results.items()}))
        wanted_counts = []
        for at, (line_count, match_count) in enumerate(counts):
            if now[at].start == 0:
                lines_before = found_before = 0
            wanted = match_count if query.max_count is None else min(match_count, query.max_count - found_before)
            if at in results:
                results[at].lines_before, results[at].wanted_count = lines_before, wanted
            lines_before += line_count
            found_before += wanted
            wanted_counts.append(wanted)
        made = None if form is None else comm.gather({at: form(each) for at, each in results.items()})
        forms = [None] * len(now) if made is None else _in_order(made)
        yield list(zip(now, wanted_counts, forms, strict=True))


def _in_order(by_rank: Sequence[dict[int, Any]]) -> list[Any]:
    """Return the results of the splits of all ranks in the order of the splits."""
    results = {at: each for of_rank in by_rank for at, each in of_rank.items()}
    return [results[at] for at in range(len(results))]


def grep(
    pattern: str,
    source: PathLike | Sequence[PathLike],
    *,
    fixed: bool = False,
    ignore_case: bool = False,
    invert: bool = False,
    max_count: int | None = None,
    workers: int = 1,
    threads: int | None = None,
    comm: Communicator | None = None,
) -> pa.Table:
    """Return the lines of files that match a pattern.

    Parameters
    ----------
    pattern, fixed, ignore_case, invert, max_count
        As for `Query`.
    source : path, glob, folder, URL, or list of them
        Text files, also compressed (.gz, .bz2, .xz); or a partition file, whose partitions count as files.
    workers, threads : int
        As for `ripieno.launch`.
    comm : Communicator, optional
        Ranks of a running program. Each of them makes this call; `workers` is ignored.

    Returns
    -------
    pyarrow.Table
        Columns "path", "line" (the line number, from 1) and "text" (the line without its end): strings if all are
        UTF-8, otherwise bytes. With `comm`, ranks above 0 get no rows.

    Raises
    ------
    InputError
        The pattern is not a regular expression; no file matches `source`; a file is missing or damaged.
    """
    query = Query(pattern, fixed, ignore_case, invert, max_count)
    if comm is not None:
        return _table(comm, source, query)
    # Imported here, because other code keeps computation and launching independent of each other.
    from ripieno.launch import launch

    with launch(workers, threads=threads) as job:
        return job.run(_table, source, query)[0]


def _at_most(now: Sequence[Split], max_count: int | None, found_before: int) -> Iterator[int | None]:
    """Yield the maximum number of lines that each split may contribute, as known before a round."""
    for split in now:
        if split.start == 0:
            found_before = 0
        yield None if max_count is None else max_count - found_before


def _find(lines: _native.LineSearch, split: Split, at_most: int | None, *, counting: bool) -> SearchMatches:
    found = SearchMatches(split)
    if at_most == 0:
        return found
    for text in split.blocks(BLOCK_BYTES):
        left = None if at_most is None else at_most - found.match_count
        if counting:
            found.match_count += lines.count(text, left)
        else:
            found.blocks.append(lines.find(text, left))
            found.match_count += len(found.blocks[-1])
            found.line_count += found.blocks[-1].line_count
        if found.match_count == at_most:
            break
    return found


def _table(comm: Communicator, source: PathLike | Sequence[PathLike], query: Query) -> pa.Table:
    import pyarrow as pa

    parts = [rows for found in search(comm, source, query, _rows) for _, _, rows in found if rows is not None]
    none = pa.schema([("path", pa.string()), ("line", pa.int64()), ("text", pa.large_binary())]).empty_table()
    table = pa.concat_tables([none, *parts])
    try:
        return table.cast(none.schema.set(2, pa.field("text", pa.large_string())))
    except pa.ArrowInvalid:
        return table


def _rows(found: SearchMatches) -> pa.Table:
    import pyarrow as pa

    from ripieno.keyed.arrow import array_of_keys

    parts = []
    for block, number, count in found.wanted():
        numbers, _, (offsets, data) = block.columns()
        text = array_of_keys(Strings(offsets, data, False))[:count]
        line = (numbers[:count] + np.uint64(number)).astype(np.int64)
        parts.append(pa.table({"path": pa.repeat(found.split.path, count), "line": line, "text": text}))
    return pa.concat_tables(parts) if parts else None
