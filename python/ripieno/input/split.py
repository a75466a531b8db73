"""`Split`: a part of a file that a worker reads by itself, cut between records."""

from __future__ import annotations

import os
import socket
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any, Protocol

from ripieno import log
from ripieno.errors import InputError
from ripieno.files.sources import File, is_url, opened
from ripieno.input.checksums import Checksum
from ripieno.input.matrix.records import RecordType

#: Start and stop in the format's unit, and what the split holds in bytes.
Range = tuple[int, int, int]


class Format(Protocol):
    """How records lie in a file, and what they are when they are read."""

    @property
    def name(self) -> str: ...

    @property
    def unit(self) -> str:
        """What begins and ends of splits count."""

    @property
    def block_bytes(self) -> int:
        """Of a block where nothing else is asked for."""

    def cut(self, file: File, count: int) -> list[Range]:
        """Ranges that hold all records of a file, each once; at most `count`."""

    def read(self, split: Split) -> Any:
        """All records of a split."""

    def blocks(self, split: Split, block_bytes: int) -> Iterator[Any]:
        """The same, some at a time."""

    def extents(self, split: Split) -> tuple[tuple[int, int], ...]:
        """The bytes of the file, as it is stored, that a split is made of."""


@dataclass(frozen=True)
class FormatOptions:
    """What the user says about the columns of files that have some, and the records of those that say nothing."""

    header: bool | None = None
    types: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] | None = None
    delimiter: str | None = None
    record: RecordType | None = None
    #: How much of a file of CSV is read to know the types of its columns.
    sample_bytes: int = 1 << 20

    def chosen(self, path: str, names: Sequence[str]) -> tuple[str, ...] | None:
        """The columns to read; an error if a file lacks one."""
        missing = next((name for name in self.columns or () if name not in names), None)
        if missing is not None:
            raise InputError(f"columns={missing!r}: {path} has the columns {', '.join(map(repr, names))}")
        return self.columns


@dataclass(frozen=True)
class Split:
    """A part of a file that one worker reads. It is small, and travels to the worker in place of the data.

    Attributes
    ----------
    path : str
        The file: a local path, or a URL of fsspec.
    format : Format
        How the records lie in it; ``format.name`` is "text", "csv", "npy", "parquet" or "binary".
    start, stop : int
        The range that this split has, in ``format.unit``: bytes of text and CSV, rows of arrays, row groups of Parquet.
        Of text, the lines that *begin* there are the split's; those of CSV begin and end with a record.
    size_bytes : int
        Its bytes as they are stored, by which splits are balanced.
    hosts : tuple of str
        Hosts that have the file on a disk of their own; empty if all are equally near.
    compression : str or None
        fsspec's name of the compression. The split is then the whole file, and `stop` its length as it is stored.
    copies : tuple of str
        Other paths of the same file. The first one that is there and undamaged is read.
    checksum : Checksum, optional
        Checksum of the split's bytes, from the partition file. Bytes that differ from it are not read.
    """

    path: str
    format: Format
    start: int
    stop: int
    size_bytes: int
    hosts: tuple[str, ...] = ()
    compression: str | None = None
    copies: tuple[str, ...] = ()
    checksum: Checksum | None = None

    def __str__(self) -> str:
        where = "whole" if self.compression else f"{self.format.unit} {self.start:,} … {self.stop:,}"
        return f"{self.path}, {where}"

    def read(self) -> Any:
        """The records: lines of text as bytes, rows of .npy and binary as an array, tables as a `pyarrow.Table`.

        Raises
        ------
        InputError
            The file is missing, damaged, or shorter than it was; names the file and the place. Of several copies it is
            raised if none is left; before that a warning names each that is damaged.
        """
        return self.format.read(self)

    def blocks(self, block_bytes: int | None = None) -> Iterator[Any]:
        """The records of `read` in pieces of about `block_bytes`, cut between records, in bounded memory.

        Parameters
        ----------
        block_bytes : int, optional
            By default 256 KiB of text and 8 MiB of other formats.

        Raises
        ------
        InputError
            As from `read`, when the block in question is asked for.
        """
        if block_bytes is not None and block_bytes < 1:
            raise InputError(f"block_bytes={block_bytes}: expected >= 1")
        return self.format.blocks(self, block_bytes or self.format.block_bytes)

    def verify(self) -> None:
        """Read all copies of the split that are here.

        Raises
        ------
        InputError
            A copy differs from the checksum of the partition file, and the message names all that do. Or there is no
            checksum.
        """
        if self.checksum is None:
            raise InputError(f"{self} has no checksum: only what a partition file lists has one")
        damages = list(filter(None, map(self._damage, self._found())))
        if damages:
            raise InputError("; ".join(damages))

    def place(self) -> str:
        """Where the file is read: the first of `path` and `copies` that is there and, by the checksum, what it was.

        Every copy that is not is named by a warning.

        Raises
        ------
        InputError
            There is none.
        """
        damages: list[str] = []
        for place in self._found():
            damage = self._damage(place)
            if damage is None:
                for told in damages:
                    log.note("ripieno.input", f"{told}; {place} is read in its place")
                    warnings.warn(f"{told}; {place} is read in its place", stacklevel=2)
                return place
            damages.append(damage)
        places = (self.path, *self.copies)
        owners = f" here; on {', '.join(self.hosts)} it should" if self.hosts else ""
        if not damages:
            raise InputError(f"{' and '.join(places)} {'do' if self.copies else 'does'} not exist{owners}")
        raise InputError(f"{'; '.join(damages)}; no other copy is{' here' if self.copies else ' listed'}")

    def _found(self) -> list[str]:
        return [path for path in (self.path, *self.copies) if is_url(path) or os.path.exists(path)]

    def _damage(self, place: str) -> str | None:
        """What is wrong with a copy, in words that name it and its node."""
        if self.checksum is None:
            return None
        try:
            damage = self.checksum.damage(place)
        except InputError as error:
            return str(error)
        return damage and f"{place} on {self._node(place)} is damaged: {damage}"

    def _node(self, place: str) -> str:
        """The node that a copy belongs to; this host where all have it under one path."""
        places = (self.path, *self.copies)
        return self.hosts[places.index(place)] if len(self.hosts) == len(places) else socket.gethostname()

    @contextmanager
    def opened(self, place: str) -> Iterator[IO[bytes]]:
        """The file at a place, unpacked; refused if it has become too short to hold what the split stands for."""
        with opened(place, self.compression) as file:
            if self.compression is None and self.format.unit == "bytes" and file.seek(0, os.SEEK_END) < self.stop:
                raise InputError(f"{place} has {file.tell():,} bytes, but had {self.stop:,} when it was split")
            file.seek(0)
            yield file
