"""The command `ripieno grep`: find lines of files."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ripieno.cli.number_types import Count
from ripieno.cli.options import communicator, dashboard_option, long_workers_option, threads_option
from ripieno.comm.communicator import Communicator
from ripieno.files.sources import find_files
from ripieno.launch import launch

if TYPE_CHECKING:
    from ripieno.text.search import Query, SearchMatches


#: The exit code when no line matches, as in grep.
NOTHING_FOUND = 1


@click.command("grep")
@click.argument("pattern")
@click.argument("inputs", nargs=-1, required=True)
@click.option("-i", "--ignore-case", is_flag=True, help="Ignore case.")
@click.option("-v", "--invert-match", is_flag=True, help="Print the lines that do not match.")
@click.option("-c", "--count", "counting", is_flag=True, help="Print the number of lines of each file, not the lines.")
@click.option("-F", "--fixed-strings", is_flag=True, help="PATTERN is plain text, not a regular expression.")
@click.option("-n", "--line-number", "numbered", is_flag=True, help="Print the number of each line in its file.")
@click.option("-m", "--max-count", type=Count(0), metavar="COUNT", help="Print at most COUNT lines of each file.")
@long_workers_option
@dashboard_option
@threads_option
def grep_command(
    pattern: str,
    inputs: tuple[str, ...],
    ignore_case: bool,
    invert_match: bool,
    counting: bool,
    fixed_strings: bool,
    numbered: bool,
    max_count: int | None,
    workers: int | None,
    threads: int | None,
) -> int:
    """Print the lines of INPUTS that match PATTERN, in the order of the files.

    INPUTS are text files, globs, folders or URLs, also compressed (.gz, .bz2, .xz), or a partition file: its partitions
    count as files. PATTERN is a regular expression of the syntax of Rust and ripgrep. With several files, each line
    starts with its file, as path:line. Lines are bytes, and printed unchanged.

    The exit code is 0 if lines match, 1 if none match, and 2 after an error, as in grep.

    \b
    Example:
      ripieno grep ERROR logs/*.gz --workers 4
      ripieno grep -n -i "out of (memory|space)" logs/
    """
    from ripieno.input.cutting import partitions_in
    from ripieno.text.search import Query

    query = Query(pattern, fixed_strings, ignore_case, invert_match, max_count)
    query.compiled()
    comm = communicator(workers, threads, None)
    parts = partitions_in(inputs)
    if parts is None:
        paths = [file.path for file in find_files(list(inputs))]
    else:
        # Several partitions may be ranges of one file.
        paths = [part.path for part in parts if part.start == 0]
    printer = _Printer(paths, counting)
    sources = paths if parts is None else list(inputs)
    arguments = (sources, query, None if counting else _Labeled(len(paths) > 1, numbered))
    if comm is not None:
        _search(comm, *arguments, emit=printer.on_event)
        matches = comm.broadcast(printer.match_count)
    else:
        with launch(workers or 1, threads=threads, on_event=printer.on_event) as job:
            job.run(_search, *arguments)
        matches = printer.match_count
    if comm is None or comm.rank == 0:
        printer.finish()
    return 0 if matches else NOTHING_FOUND


def _search(
    comm: Communicator,
    sources: list[str],
    query: Query,
    form: Callable[[SearchMatches], bytes] | None,
    emit: Callable[[dict[str, Any]], None] | None = None,
) -> None:
    """Search files; rank 0 reports the matches of each split, in order."""
    from ripieno.text.search import search

    for splits in search(comm, sources, query, form):
        if comm.rank == 0:
            for split, count, printed in splits:
                (emit or comm.emit)({"event": "found", "path": split.path, "count": count, "printed": printed})


class _Labeled:
    """Formats the matches of a split as they are printed."""

    def __init__(self, with_path: bool, numbered: bool) -> None:
        self._with_path = with_path
        self._numbered = numbered

    def __call__(self, matches: SearchMatches) -> bytes:
        label = f"{matches.split.path}:".encode(errors="surrogateescape") if self._with_path else b""
        return b"".join(
            block.printed(label, number if self._numbered else None, count)
            for block, number, count in matches.results()
        )


class _Printer:
    """Prints lines as they arrive, or the counts of all files at the end."""

    def __init__(self, paths: list[str], counting: bool) -> None:
        self.match_count = 0
        # A file may be named several times, and is searched each time.
        self._times = Counter(paths)
        self._counts = dict.fromkeys(self._times, 0)
        self._paths = paths
        self._counting = counting

    def on_event(self, event: dict[str, Any]) -> None:
        self.match_count += event["count"]
        self._counts[event["path"]] += event["count"]
        if not self._counting:
            sys.stdout.buffer.write(event["printed"])

    def finish(self) -> None:
        if self._counting:
            for path in self._paths:
                count = self._counts[path] // self._times[path]
                click.echo(f"{path}:{count}" if len(self._paths) > 1 else count)
        sys.stdout.flush()
