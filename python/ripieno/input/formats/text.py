"""Provide text as splits of lines. A line belongs to the split with its first byte; a compressed file is one split."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from ripieno.files.sources import File, held, input_errors
from ripieno.input import lines
from ripieno.input.columns.libsvm import LibsvmText
from ripieno.input.columns.source import FormatOptions
from ripieno.input.cuts import even
from ripieno.input.split import Range, Split


@dataclass(frozen=True)
class Text:
    """Lines of arbitrary bytes, each including its line feed."""

    name = "text"
    # Names without suffix are text, too, for example Hadoop's results.
    suffixes = ("", ".txt", ".text", ".log", ".t12", ".md", ".jsonl", ".ndjson", *LibsvmText.suffixes)
    unit = "bytes"
    # The allocator maps larger blocks again for each read, and the mapping takes longer than the read.
    block_bytes = 256 << 10

    @classmethod
    def open(cls, file: File, options: FormatOptions) -> Text:
        """Return the format, without a read."""
        return cls()

    def cut(self, file: File, count: int) -> list[Range]:
        """Return even ranges of bytes."""
        return [(start, stop, stop - start) for start, stop in even(file.size_bytes, count)]

    def read(self, split: Split) -> bytes:
        """Return all lines."""
        return b"".join(held(split.path, self.blocks(split, split.size_bytes)))

    def blocks(self, split: Split, block_bytes: int) -> Iterator[bytes]:
        """Yield whole lines in blocks of about `block_bytes`, each up to the end of its last line."""
        at = split.start
        place = split.place()
        with split.opened(place) as file:
            stop = split.stop if split.compression is None else sys.maxsize
            blocks = lines.blocks(place, file, split.start, stop, block_bytes)
            while True:
                with input_errors(
                    place, f" from byte {at:,} on{' of the decompressed text' * bool(split.compression)}"
                ):
                    begin, text = next(blocks, (at, b""))
                if not text:
                    return
                yield text
                at = begin + len(text)

    def empty(self, split: Split) -> bytes:
        """Return no lines."""
        return b""

    def extents(self, split: Split) -> tuple[tuple[int, int], ...]:
        """Return the range of the split, from the first line that begins in it to the end of the last one."""
        with split.opened(split.path) as file, input_errors(split.path):
            return ((lines.line_start(file, split.start), lines.line_start(file, split.stop)),)
