"""Provide `Split`: a part of a file that a worker reads on its own, cut between records."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Protocol

import pyarrow as pa

from ripieno import log
from ripieno.errors import InputError
from ripieno.files.sources import File, is_url, opened
from ripieno.input.checksums import Checksum

#: Start and stop in the format's unit, and the size in bytes.
Range = tuple[int, int, int]
_ZONED = re.compile(r"timestamp\[(s|ms|us|ns), tz=(.+)\]")
#: Name of the logger for reports of damaged copies.
LOGGER = "ripieno.input"


@dataclass(frozen=True)
class Key:
    """A column with one value for a whole file, from a folder name such as ``year=2024``."""

    name: str
    type: str
    value: str | None

    def column(self, length: int) -> pa.Array:
        """Return a column of `length` equal values."""
        return pa.repeat(pa.scalar(self.value, pa.string()).cast(arrow_type(self.type)), length)


class Format(Protocol):
    """A file format: cuts files between records, and reads the records."""

    @property
    def name(self) -> str: ...

    @property
    def unit(self) -> str:
        """The unit of the start and stop of splits."""

    @property
    def block_bytes(self) -> int:
        """The default size of a block."""

    def cut(self, file: File, count: int) -> list[Range]:
        """Return at most `count` ranges that together contain each record of a file once."""

    def read(self, split: Split) -> Any:
        """Return all records of a split."""

    def blocks(self, split: Split, block_bytes: int) -> Iterator[Any]:
        """Yield all records of a split in blocks."""

    def empty(self, split: Split) -> Any:
        """Return an empty result of the type that `read` returns for a split."""

    def extents(self, split: Split) -> tuple[tuple[int, int], ...]:
        """Return the byte ranges of the stored file with the data of a split."""


@dataclass(frozen=True)
class Split:
    """A part of a file that one worker reads. It is small and is sent to the worker instead of the data.

    Attributes
    ----------
    path : str
        A local path, or an fsspec URL.
    format : Format
        The format of the file; ``format.name`` is "text", "csv", "npy", "parquet", "arrow", "npz",
        "mtx" or "binary".
    start, stop : int
        The range of the split in ``format.unit``: bytes of text and CSV, rows of arrays, row groups of Parquet. For
        text, the split has the lines that *begin* in the range. For CSV, the range begins and ends with a record.
    size_bytes : int
        Stored size in bytes, used for balancing.
    hosts : tuple of str
        Hosts with the file on their own disk; empty if all hosts are equally near.
    compression : str or None
        fsspec's name of the compression. The split is then the whole file, and `stop` is its stored length.
    copies : tuple of str
        Other paths of the same file. The first path that exists and is undamaged is read.
    checksum : Checksum, optional
        Checksum of the split's bytes, from the partition file. Data with another checksum is not read.
    keys : tuple of Key
        Columns from names of folders such as ``year=2024``, which are added to the columns of the file.
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
    keys: tuple[Key, ...] = ()

    def __str__(self) -> str:
        where = "whole" if self.compression else f"{self.format.unit} {self.start:,} … {self.stop:,}"
        return f"{self.path}, {where}"

    def read(self) -> Any:
        """Return the records: lines of text as bytes, rows of .npy and binary as an array, tables as a `pyarrow.Table`.

        Raises
        ------
        InputError
            The file is missing, damaged, or truncated. The message names the file and the place. With several copies,
            it is raised if none is usable; a warning names each damaged copy.
        """
        return self._keyed(self.format.read(self))

    def empty(self) -> Any:
        """Return an empty result of the type that `read` returns. Tables in Parquet and Arrow are opened for this."""
        return self._keyed(self.format.empty(self))

    def blocks(self, block_bytes: int | None = None) -> Iterator[Any]:
        """Yield the records of `read` in pieces of about `block_bytes`, cut between records, in bounded memory.

        Parameters
        ----------
        block_bytes : int, optional
            By default 256 KiB of text and 8 MiB of other formats.

        Raises
        ------
        InputError
            As for `read`, when the damaged block is requested.
        """
        if block_bytes is not None and block_bytes < 1:
            raise InputError(f"block_bytes={block_bytes}: expected >= 1")
        blocks = self.format.blocks(self, block_bytes or self.format.block_bytes)
        return map(self._keyed, blocks) if self.keys else blocks

    def _keyed(self, records: Any) -> Any:
        for key in self.keys:
            records = records.append_column(key.name, key.column(len(records)))
        return records

    def verify(self) -> None:
        """Read all local copies of the split and compare their checksums.

        Raises
        ------
        InputError
            A copy differs from the checksum of the partition file; the message names all such copies. Or there is no
            checksum.
        """
        if self.checksum is None:
            raise InputError(f"{self} has no checksum: only splits from a partition file have one")
        damages = list(filter(None, map(self._damage, self._existing())))
        if damages:
            raise InputError("; ".join(damages))

    def place(self) -> str:
        """Return the location to read: the first of `path` and `copies` that exists and matches the checksum.

        A warning names every damaged copy before it.

        Raises
        ------
        InputError
            No copy is usable.
        """
        damages: list[str] = []
        for place in self._existing():
            damage = self._damage(place)
            if damage is None:
                for text in damages:
                    log.note(LOGGER, f"{text}; {place} is read instead")
                    log.warn(f"{text}; {place} is read instead")
                return place
            damages.append(damage)
        places = (self.path, *self.copies)
        owners = f" here; expected on {', '.join(self.hosts)}" if self.hosts else ""
        if not damages:
            raise InputError(f"{' and '.join(places)} {'do' if self.copies else 'does'} not exist{owners}")
        raise InputError(f"{'; '.join(damages)}; no other copy is{' here' if self.copies else ' listed'}")

    def _existing(self) -> list[str]:
        return [path for path in (self.path, *self.copies) if is_url(path) or os.path.exists(path)]

    def _damage(self, place: str) -> str | None:
        """Return a description of the damage of a copy, which names the copy and its node, or None."""
        if self.checksum is None:
            return None
        try:
            damage = self.checksum.damage(place)
        except InputError as error:
            return str(error)
        return damage and f"{place} on {self._node(place)} is damaged: {damage}"

    def _node(self, place: str) -> str:
        """Return the node of a copy, or this host if all nodes have it under one path."""
        places = (self.path, *self.copies)
        return self.hosts[places.index(place)] if len(self.hosts) == len(places) else socket.gethostname()

    @contextmanager
    def opened(self, place: str) -> Iterator[IO[bytes]]:
        """Open the file at a place, decompressed. Raise if it is too short for the split."""
        with opened(place, self.compression) as file:
            if self.compression is None and self.format.unit == "bytes" and file.seek(0, os.SEEK_END) < self.stop:
                raise InputError(f"{place} has {file.tell():,} bytes, but had {self.stop:,} when it was split")
            file.seek(0)
            yield file


def arrow_type(name: str) -> pa.DataType:
    """Return the type that Arrow prints with this name.

    Raises
    ------
    ValueError
        There is no such type.
    """
    zoned = _ZONED.fullmatch(name)
    return pa.timestamp(zoned[1], zoned[2]) if zoned else pa.type_for_alias(name)
