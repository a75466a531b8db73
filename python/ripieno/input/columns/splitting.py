"""Provide the options for creating splits, and the attributes of a split that formats use."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO, Protocol

from ripieno.files.sources import File
from ripieno.input.columns.source import TableOptions
from ripieno.input.records import RecordType

#: Start and stop in the format's unit, and the size in bytes.
Range = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class FormatOptions(TableOptions):
    """Options for tables, and for records of raw files."""

    record: RecordType | None = None
    #: Bytes of a CSV file that are read to infer the types of its columns.
    sample_bytes: int = 1 << 20

    def chosen_of(self, file: File, names: Sequence[str], index: Sequence[str] = ()) -> tuple[str, ...] | None:
        """Return the columns to read, or None for all. Columns from names of folders may be chosen, too."""
        default = [name for name in names if name not in index]
        chosen = self.chosen(file.path, [*names, *(key for key, _ in file.keys)], default)
        found = tuple(name for name in chosen if name in names)
        return None if found == tuple(names) else found


class FilePart(Protocol):
    """A range of a file, and how to open the file, as `ripieno.input.split.Split`."""

    @property
    def path(self) -> str: ...

    @property
    def start(self) -> int: ...

    @property
    def stop(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def compression(self) -> str | None: ...

    def place(self) -> str:
        """Return the location to read."""

    def opened(self, place: str) -> AbstractContextManager[IO[bytes]]:
        """Open the file at a place, decompressed."""
