"""The command `ripieno wordcount`: count the words of files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.progress import Progress

from ripieno.cli.options import (
    PathOrUrl,
    Size,
    check_files,
    communicator,
    overwrite_option,
    quiet_option,
    threads_option,
    top_option,
    trace_option,
    workers_option,
)
from ripieno.files.results import ResultPath
from ripieno.files.sources import suffix
from ripieno.files.tables import TABLE_FORMATS, write_table
from ripieno.flight.trace import traced
from ripieno.keyed import KeyValues
from ripieno.keyed.columns import Strings

if TYPE_CHECKING:
    from rich.console import Console


@click.command("wordcount")
@click.argument("inputs", nargs=-1, required=True)
@click.option("-o", "--out", type=PathOrUrl(*TABLE_FORMATS), help=f"File or URL to write: {', '.join(TABLE_FORMATS)}.")
@overwrite_option
@top_option("of the most frequent words")
@click.option("--lower", is_flag=True, help="Convert ASCII capitals to lower case.")
@workers_option
@threads_option
@click.option(
    "--memory-limit",
    type=Size(),
    help="Memory limit of each worker for words and counts, such as 2GB; the rest goes to temporary files.",
)
@trace_option
@quiet_option
def wordcount_command(
    inputs: tuple[str, ...],
    out: ResultPath | None,
    overwrite: bool,
    top: int,
    lower: bool,
    workers: int | None,
    threads: int | None,
    memory_limit: int | None,
    trace: Path | None,
    quiet: bool,
) -> None:
    """Count the words of INPUTS, and print the most frequent words.

    INPUTS are text files, globs, folders or URLs, also compressed (.gz, .bz2, .xz). A word is a longest run of bytes
    that are not ASCII white space. Plain files are divided among all workers and their threads.

    The result has the columns "word" and "count", the most frequent word first; in .npz word i is
    data[offsets[i]:offsets[i + 1]]. Words of a CSV file are the same bytes as in the text, UTF-8 or not.

    \b
    Example:
      ripieno wordcount corpus/*.txt --workers 2 --top 20 --out counts.parquet
      ripieno lab run -- ripieno wordcount /data/corpus.txt --out /data/counts.csv
    """
    from rich.console import Console

    from ripieno.text import count_words

    check_files(inputs, out, trace, overwrite=overwrite)
    comm = communicator(workers, threads, trace)
    leading = comm is None or comm.rank == 0
    console = Console(stderr=True, quiet=not leading)
    options: dict[str, Any] = {"lower": lower, "memory_limit": memory_limit}
    if comm is not None:
        parts = comm.gather(count_words(list(inputs), comm=comm, **options))
        if parts is None:
            return
        words = KeyValues.joined(parts).sorted("value", descending=True)
    else:
        with _Bar(console, quiet) as bar, traced(trace):
            words = count_words(list(inputs), workers=workers or 1, threads=threads, on_event=bar.on_event, **options)
    if out is not None:
        write_table(_columns(words, out), out)
    click.echo(_lines(words, top), nl=False)
    console.print(
        f"{words.values.sum():,} words, {len(words):,} distinct{f'; all are in {out}' if out else ''}",
        highlight=False,
        soft_wrap=True,
    )


class _Bar(Progress):
    """Shows the bytes that have been counted."""

    def __init__(self, console: Console, quiet: bool) -> None:
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeElapsedColumn, TransferSpeedColumn

        super().__init__(
            TextColumn("counting words"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=quiet or not console.is_terminal,
        )
        self._task = self.add_task("", total=None)

    def on_event(self, event: dict[str, Any]) -> None:
        self.update(self._task, advance=event["bytes"], total=event["total_bytes"])


def _columns(words: KeyValues, out: ResultPath) -> dict[str, Any]:
    if suffix(out) == ".npz":
        strings = words.key_column
        assert isinstance(strings, Strings), "words are strings"
        return {"offsets": strings.offsets - strings.offsets[0], "data": strings.used, "count": words.values}
    return {"word": words.keys, "count": words.values}


def _lines(words: KeyValues, count: int) -> bytes:
    """Return the first words as lines that start with the count."""
    top = words.take(range(min(count, len(words))))
    width = len(f"{top.values[0]:,}") if len(top) else 0
    named = zip(top.values.tolist(), top.keys.cast("large_binary").to_pylist(), strict=True)
    return b"".join(f"{number:{width},}  ".encode() + word + b"\n" for number, word in named)
