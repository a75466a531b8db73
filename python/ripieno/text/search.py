"""Search lines in splits of files by ranks and their threads; rank 0 receives the matches in file order.

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

#: Bytes that one thread searches per round.
SPLIT_BYTES = 16 << 20
#: Bytes per call of the native search.
BLOCK_BYTES = 2 << 20


@dataclass(frozen=True)
class Query:
    """A pattern and the options of a line search.

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
        """Return the compiled search.

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
    #: Set after the search of earlier splits: the number of preceding lines of the file, and the number of matches
    #: to return.
    lines_before: int = 0
    result_count: int = 0

    def results(self) -> Iterator[tuple[_native.FoundLines, int, int]]:
        """Yield each block, the number of its first line, from 1, and the number of its lines to return."""
        number, remaining = 1 + self.lines_before, self.result_count
        for block in self.blocks:
            count = min(remaining, len(block))
            yield block, number, count
            number += block.line_count
            remaining -= count


def search(
    comm: Communicator,
    source: PathLike | Sequence[PathLike],
    query: Query,
    convert: Callable[[SearchMatches], Any] | None = None,
) -> Iterator[list[tuple[Split, int, Any]]]:
    """Search files. Every rank calls it.

    Parameters
    ----------
    source : path, glob, folder, URL, or list of them
        Text files, also compressed; or a partition file: its partitions count as files.
    convert : callable, optional
        Converts the matches in a split to the result for rank 0. Without it, lines are only counted.

    Yields
    ------
    list of (Split, int, object)
        The splits of a round, in file order, with the number of lines to return of each. On rank 0 also the result of
        `convert`, on other ranks None.

    Raises
    ------
    InputError
        On every rank: the pattern is not a regular expression; no file matches `source`; a file is missing or damaged.
    """
    with agreement(comm):
        lines = query.compiled()
        cut = splits(source, bytes=SPLIT_BYTES, format="text")
    # Files may grow, so all ranks use the splits of rank 0.
    cut = comm.broadcast(cut)
    lines_before = found_before = 0
    for begin in range(0, len(cut), comm.world_size * comm.threads):
        batch = cut[begin : begin + comm.world_size * comm.threads]
        own = assign(batch, comm.hosts)[comm.rank]
        limits = list(_limits(batch, query.max_count, found_before))
        with agreement(comm):
            own_splits = [(batch[at], limits[at]) for at in own]
            found = list(mapped(lambda each: _find(lines, *each, counting=convert is None), own_splits, comm.threads))
        results = dict(zip(own, found, strict=True))
        counts = _in_order(comm.allgather({at: (each.line_count, each.match_count) for at, each in results.items()}))
        result_counts = []
        for at, (line_count, match_count) in enumerate(counts):
            if batch[at].start == 0:
                lines_before = found_before = 0
            count = match_count if query.max_count is None else min(match_count, query.max_count - found_before)
            if at in results:
                results[at].lines_before, results[at].result_count = lines_before, count
            lines_before += line_count
            found_before += count
            result_counts.append(count)
        converted = None if convert is None else comm.gather({at: convert(each) for at, each in results.items()})
        objects = [None] * len(batch) if converted is None else _in_order(converted)
        yield list(zip(batch, result_counts, objects, strict=True))


def _in_order(by_rank: Sequence[dict[int, Any]]) -> list[Any]:
    """Return the results of the splits of all ranks in the order of the splits."""
    results = {at: each for rank_results in by_rank for at, each in rank_results.items()}
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
        Text files, also compressed (.gz, .bz2, .xz); or a partition file: its partitions count as files.
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
    # Imported here, because the other functions of this module do not need launchers.
    from ripieno.launch import launch

    with launch(workers, threads=threads) as job:
        return job.run(_table, source, query)[0]


def _limits(batch: Sequence[Split], max_count: int | None, found_before: int) -> Iterator[int | None]:
    """Yield, before a round, the maximum number of lines of each split."""
    for split in batch:
        if split.start == 0:
            found_before = 0
        yield None if max_count is None else max_count - found_before


def _find(lines: _native.LineSearch, split: Split, limit: int | None, *, counting: bool) -> SearchMatches:
    found = SearchMatches(split)
    if limit == 0:
        return found
    for text in split.blocks(BLOCK_BYTES):
        remaining = None if limit is None else limit - found.match_count
        if counting:
            found.match_count += lines.count(text, remaining)
        else:
            found.blocks.append(lines.find(text, remaining))
            found.match_count += len(found.blocks[-1])
            found.line_count += found.blocks[-1].line_count
        if found.match_count == limit:
            break
    return found


def _table(comm: Communicator, source: PathLike | Sequence[PathLike], query: Query) -> pa.Table:
    import pyarrow as pa

    parts = [rows for found in search(comm, source, query, _rows) for _, _, rows in found if rows is not None]
    empty = pa.schema([("path", pa.string()), ("line", pa.int64()), ("text", pa.large_binary())]).empty_table()
    table = pa.concat_tables([empty, *parts])
    try:
        return table.cast(empty.schema.set(2, pa.field("text", pa.large_string())))
    except pa.ArrowInvalid:
        return table


def _rows(matches: SearchMatches) -> pa.Table:
    import pyarrow as pa

    from ripieno.keyed.arrow import array_of_keys

    parts = []
    for block, number, count in matches.results():
        numbers, _, (offsets, data) = block.columns()
        text = array_of_keys(Strings(offsets, data, False))[:count]
        line = (numbers[:count] + np.uint64(number)).astype(np.int64)
        parts.append(pa.table({"path": pa.repeat(matches.split.path, count), "line": line, "text": text}))
    return pa.concat_tables(parts) if parts else None
