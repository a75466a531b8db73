"""`splits`: files as parts that workers read by themselves, cut between records; `Split` is one of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any, Protocol

from ripieno.data.dataset import PathLike
from ripieno.errors import InputError
from ripieno.input.checksums import Checksum
from ripieno.input.csv import Csv, arrow_type, of_same_types
from ripieno.input.cuts import apportioned
from ripieno.input.files import File, found, is_url, opened
from ripieno.input.npy import Npy
from ripieno.input.parquet import Parquet
from ripieno.input.text import Text

#: Bytes of a split where nothing else is asked for, and of a block of one.
SPLIT_BYTES = 64 << 20
BLOCK_BYTES = 8 << 20

#: Start and stop in the format's unit, and what the split holds in bytes.
Range = tuple[int, int, int]


class Format(Protocol):
    """How records lie in a file, and what they are when they are read."""

    name: str
    unit: str

    def cut(self, file: File, count: int) -> list[Range]:
        """Ranges that hold all records of a file, each once; at most `count`."""

    def read(self, split: Split) -> Any:
        """All records of a split."""

    def blocks(self, split: Split, block_bytes: int) -> Iterator[Any]:
        """The same, some at a time."""

    def extent(self, split: Split) -> tuple[int, int]:
        """The bytes of the file, as it is stored, in which a split lies."""


FORMATS: dict[str, Any] = {"text": Text, "csv": Csv, "npy": Npy, "parquet": Parquet}
#: What the end of a name says, without that of a compression; all others are text.
SUFFIXES = {".csv": "csv", ".tsv": "csv", ".npy": "npy", ".parquet": "parquet", ".pq": "parquet"}


@dataclass(frozen=True)
class Options:
    """What the user says about the columns of files that have some."""

    header: bool = True
    types: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] | None = None

    def chosen(self, path: str, names: Sequence[str]) -> tuple[str, ...] | None:
        """The columns to read; an error if a file lacks one."""
        missing = next((name for name in self.columns or () if name not in names), None)
        if missing is not None:
            raise InputError(f"columns={missing!r}: {path} has the columns {', '.join(map(repr, names))}")
        return self.columns


@dataclass(frozen=True)
class Split:
    """A part of a file that one worker reads. Small: it travels to the worker in place of what it stands for.

    Attributes
    ----------
    path : str
        The file: a local path, or a URL of fsspec.
    format : Format
        How the records lie in it; ``format.name`` is "text", "csv", "npy" or "parquet".
    start, stop : int
        The range that this split has, in ``format.unit``: bytes of text and CSV, rows of .npy, row groups of Parquet.
        Of text, the lines that *begin* there are the split's; those of CSV begin and end with a record.
    size_bytes : int
        What it holds, as it is stored: what splits are balanced by.
    hosts : tuple of str
        Hosts that have the file on a disk of their own; empty where all are as near.
    compression : str or None
        What fsspec calls it. The split is then the whole file, and `stop` its length as it is stored.
    copies : tuple of str
        Other paths of the same file. The first of all that is there is read.
    checksum : Checksum, optional
        Of the bytes in which the split lies, from the partition file.
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
        """The records: of text, the bytes of whole lines; of .npy, an array; of CSV and Parquet, a `pyarrow.Table`.

        Raises
        ------
        InputError
            The file is missing, damaged, or shorter than it was; names the file and the place.
        """
        return self.format.read(self)

    def blocks(self, block_bytes: int = BLOCK_BYTES) -> Iterator[Any]:
        """What `read` gives, in pieces of about `block_bytes`, cut between records: in bounded memory.

        Raises
        ------
        InputError
            As from `read`, when the block in question is asked for.
        """
        if block_bytes < 1:
            raise InputError(f"block_bytes={block_bytes}: expected >= 1")
        return self.format.blocks(self, block_bytes)

    def verify(self) -> None:
        """Read the bytes in which the split lies.

        Raises
        ------
        InputError
            They are not what they were when the partition file was written, or there is none.
        """
        if self.checksum is None:
            raise InputError(f"{self} has no checksum: only what a partition file lists has one")
        place = self.place()
        if self.checksum != Checksum.of(place, self.checksum.start, self.checksum.stop):
            raise InputError(f"{place}, {self.format.unit} {self.start:,} … {self.stop:,}: not what was written there")

    def place(self) -> str:
        """Where the file is read: the first of `path` and `copies` that is there."""
        places = (self.path, *self.copies)
        found = next((path for path in places if is_url(path) or os.path.exists(path)), None)
        if found is None:
            owners = f" here; on {', '.join(self.hosts)} it should" if self.hosts else ""
            raise InputError(f"{' and '.join(places)} {'do' if self.copies else 'does'} not exist{owners}")
        return found

    @contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """The file, unpacked; refused if it has become too short to hold what the split stands for."""
        place = self.place()
        with opened(place, self.compression) as file:
            if self.compression is None and self.format.unit == "bytes" and file.seek(0, os.SEEK_END) < self.stop:
                raise InputError(f"{place} has {file.tell():,} bytes, but had {self.stop:,} when it was split")
            file.seek(0)
            yield file


def splits(
    source: PathLike | Sequence[PathLike],
    *,
    count: int | None = None,
    bytes: int | None = None,
    format: str | None = None,
    header: bool = True,
    types: Mapping[str, str] | None = None,
    columns: Sequence[str] | None = None,
) -> list[Split]:
    """Cut files into splits between records, in the order of the files, reading no more than it takes to know where.

    Parameters
    ----------
    source : path, glob, folder, URL, or list of them
        URLs are those of fsspec, globs and folders included. Files that are compressed (.gz, .bz2, .xz) are one split
        each, as they cannot be read from the middle.
    count : int, optional
        How many splits; the largest is as small as can be. There are more if there are more files, and fewer if there
        is not as much to cut.
    bytes : int, optional
        About how much a split holds at most, but for what cannot be cut. By default, without `count`, 64 MiB.
    format : {"text", "csv", "npy", "parquet"}, optional
        By default what the names of the files say: .csv and .tsv, .npy, .parquet and .pq; all others are text.
    header : bool, default=True
        Whether a CSV file begins with the names of its columns; without, they are f0, f1, …
    types : mapping of str to str, optional
        Arrow types of columns of CSV, such as {"zip": "string"}; others are what the first MiB looks like.
    columns : sequence of str, optional
        The columns of CSV or Parquet that are read; by default all.

    Returns
    -------
    list of Split
        None of a file that is empty. A CSV file that is cut into several has been read once, as line ends may be inside
        quotes.

    Raises
    ------
    InputError
        Nothing matches, a file is missing, is no such thing as its name says, or needs a package.
    """
    if count is not None and bytes is not None:
        raise InputError(f"count={count} and bytes={bytes}: expected one of them")
    for name, value in (("count", count), ("bytes", bytes)):
        if value is not None and value < 1:
            raise InputError(f"{name}={value}: expected >= 1")
    if format is not None and format not in FORMATS:
        raise InputError(f"format={format!r}: expected one of {', '.join(FORMATS)}")
    options = Options(header, types or {}, None if columns is None else tuple(columns))
    for name, kind in options.types.items():
        try:
            arrow_type(kind)
        except ValueError:
            raise InputError(f"types={{{name!r}: {kind!r}}}: expected the name of an Arrow type") from None
    files = found(source)
    files = [file for file in found(source) if file.size_bytes]
    whole = [file.compression is not None for file in files]
    if count is None:
        counts = [-(-file.size_bytes // (bytes or SPLIT_BYTES)) for file in files]
    else:
        divisible = [0 if is_whole else file.size_bytes for file, is_whole in zip(files, whole, strict=True)]
        counts = apportioned(divisible, count - sum(whole))
    formats = open_formats(files, format, options)
    return [split for job in zip(files, counts, formats, strict=True) for split in _cut(*job)]


def open_formats(files: Sequence[File], name: str | None, options: Options) -> list[Format]:
    """How the records lie in each file; columns of CSV have the same types in all files that have the same columns."""
    formats = [_open_format(file, name, options) for file in files]
    tables = [at for at, format in enumerate(formats) if isinstance(format, Csv)]
    for at, format in zip(tables, of_same_types([formats[at] for at in tables]), strict=True):
        formats[at] = format
    return formats


def _open_format(file: File, name: str | None, options: Options) -> Format:
    """How the records lie in a file, by the name of a format or what the file's own name says."""
    name = name or SUFFIXES.get(file.inner_suffix, "text")
    for option, value, kinds in (("columns", options.columns, ("csv", "parquet")), ("types", options.types, ("csv",))):
        if value and name not in kinds:
            raise InputError(f"{option}={value!r}: {file.path} is read as {name}; expected {' or '.join(kinds)}")
    return FORMATS[name].open(file, options)


def _cut(file: File, count: int, format: Format) -> list[Split]:
    if file.compression is not None:
        return [Split(file.path, format, 0, file.size_bytes, file.size_bytes, (), file.compression)]
    return [Split(file.path, format, *range) for range in format.cut(file, count)]
