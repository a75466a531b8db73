"""Provide `splits`: cut files between records into parts that workers read on their own."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import DTypeLike

from ripieno._checks import check_count
from ripieno.errors import InputError
from ripieno.files.sources import File, PathLike, find_files, is_url
from ripieno.input.columns import Key, typed_keys
from ripieno.input.columns.csv import Csv, of_same_types
from ripieno.input.columns.source import FormatOptions
from ripieno.input.cuts import apportioned
from ripieno.input.formats import FORMATS
from ripieno.input.partitions import FILE_NAME, open_partitions
from ripieno.input.records import RecordType
from ripieno.input.split import Format, Split

#: Bytes read from all files together to infer column types, and the minimum from each file.
SAMPLE_BYTES = 32 << 20
SAMPLE_BYTES_MIN = 1 << 20
#: Default size of a split.
SPLIT_BYTES = 64 << 20
#: Formats by suffix, without compression suffixes.
SUFFIXES = {suffix: format.name for format in FORMATS.values() for suffix in format.suffixes}
TABLES = ("csv", "parquet", "arrow", "npz", "mtx")


def splits(
    source: PathLike | Sequence[PathLike],
    *,
    count: int | None = None,
    bytes: int | None = None,
    format: str | None = None,
    header: bool | None = None,
    types: Mapping[str, str] | None = None,
    columns: Sequence[str] | None = None,
    delimiter: str | None = None,
    record_bytes: int | None = None,
    dtype: DTypeLike | None = None,
    shape: int | tuple[int, ...] | None = None,
    verify: bool = True,
    ignore: Sequence[str] = (),
    decimal: str = ".",
    thousands: str | None = None,
) -> list[Split]:
    """Cut files into splits between records, in file order. Read only as much as cutting needs.

    Parameters
    ----------
    source : path, glob, folder, URL, or list of them
        URLs are opened by fsspec, including globs and folders. A compressed file (.gz, .bz2, .xz, .zst) is one split,
        because it cannot be read from the middle. The partition file of `divide`, or its folder, means its unchanged
        partitions. Tables in a folder with folders such as ``year=2024`` have the column year, too.
    count : int, optional
        Number of splits; the largest is as small as possible. More files give more splits, and too little data gives
        fewer.
    bytes : int, optional
        Approximate maximum size of a split. Records and files that cannot be cut may exceed it. Without `bytes` and
        `count`, it is 64 MiB.
    format : {"text", "csv", "npy", "parquet", "arrow", "npz", "mtx", "binary"}, optional
        By default determined by file names: .csv and .tsv; .npy; .parquet and .pq; .arrow, .feather and .ipc; .npz;
        .mtx; .txt, .text, .log, .t12, .md, .jsonl, .ndjson, .libsvm, .svmlight, .svm and names without suffix are text.
        Files with a description of records are binary. The arrays of .npz are columns. Entries of sparse matrices in
        .npz and .mtx are the columns row, col and weight.
    header : bool, optional
        Whether a CSV file begins with the names of its columns. Without a header they are f0, f1, … By default the
        first record is a header if it has words above columns of numbers, or only words.
    types : mapping of str to str, optional
        Arrow types of CSV columns, such as {"zip": "string"}. By default they are inferred from the first 32 MiB of all
        files together, and at least the first MiB of each file.
    columns : sequence of str, optional
        The columns of tables to read; by default all except for a pandas index.
    delimiter : str, optional
        The ASCII character between the fields of CSV. By default a tab if the name ends in .tsv, otherwise the most
        frequent of commas, semicolons and tabs outside quotes in the first record.
    record_bytes : int, optional
        The length of each record, for files that consist only of records. They are read as arrays of shape (n,
        record_bytes / size of a value).
    dtype : dtype, optional
        Dtype of the values in files of records; by default uint8.
    shape : int or tuple of int, optional
        Shape of a record, instead of `record_bytes`. A file is read as an array of n such records.
    verify : bool, default=True
        As for `open_partitions`. It has no effect on files without a partition file.
    ignore : sequence of str
        Columns of tables that are not read.
    decimal, thousands : str, optional
        The characters of numbers in CSV, as in ``1.234,5``; by default a decimal point and no thousands separator.

    Returns
    -------
    list of Split
        Empty files have no split. A CSV file with several splits has been read once, because line ends may be inside
        quotes.

    Raises
    ------
    InputError
        No file matches; a file is missing, is not of the format of its name, has an unknown name, does not end with a
        whole record, or needs a package.
    """
    if count is not None and bytes is not None:
        raise InputError(f"count={count} and bytes={bytes}: expected one of them")
    for name, value in (("count", count), ("bytes", bytes)):
        if value is not None:
            check_count(name, value)
    record = RecordType.of(record_bytes, dtype, shape)
    options = FormatOptions(
        header=header,
        types=types or {},
        columns=None if columns is None else tuple(columns),
        ignore=tuple(ignore),
        delimiter=delimiter,
        decimal=decimal,
        thousands=thousands,
        record=record,
    )
    check_format(format, record)
    parts = partitions_in(source, verify=verify)
    if parts is not None:
        if options != FormatOptions():
            raise InputError(f"{source}: options apply when files are divided, not to partitions")
        other = next((part for part in parts if format not in (None, part.format.name)), None)
        if other is not None:
            raise InputError(f"format={format!r}: {other.path} is listed as {other.format.name}")
        return parts
    files = [file for file in find_files(source) if file.size_bytes]
    is_compressed = [file.compression is not None for file in files]
    if count is None:
        counts = [-(-file.size_bytes // (bytes or SPLIT_BYTES)) for file in files]
    else:
        divisible = [0 if is_whole else file.size_bytes for file, is_whole in zip(files, is_compressed, strict=True)]
        counts = apportioned(divisible, count - sum(is_compressed))
    formats = open_formats(files, format, options)
    keys = [_chosen_keys(keys, options) for _, keys in typed_keys([(file.path, file.keys) for file in files])]
    return [
        replace(split, keys=own)
        for file, pieces, format, own in zip(files, counts, formats, keys, strict=True)
        for split in _cut(file, pieces, format)
    ]


def partitions_in(source: PathLike | Sequence[PathLike], *, verify: bool = True) -> list[Split] | None:
    """Return the splits of partition files, or of folders with one; None for other files.

    Raises
    ------
    InputError
        A partition file is damaged, or other files are named with it.
    """
    items: Sequence[Any] = source if isinstance(source, list | tuple) else [source]
    listed = [_partition_file(item) for item in items]
    if not any(listed):
        return None
    if not all(listed):
        raise InputError(f"{next(filter(None, listed))} and others: expected partition files, or files without them")
    return [part for path in listed if path is not None for part in open_partitions(path, verify=verify)]


def _chosen_keys(keys: tuple[Key, ...], options: FormatOptions) -> tuple[Key, ...]:
    """Return the columns from names of folders that are read."""
    selected = [key.name for key in keys] if options.columns is None else options.columns
    return tuple(key for key in keys if key.name in selected and key.name not in options.ignore)


def _partition_file(item: PathLike) -> Path | None:
    if is_url(item):
        return None
    path = Path(item) / FILE_NAME if os.path.isdir(item) else Path(item)
    return path if path.name == FILE_NAME and path.is_file() else None


def check_format(name: str | None, record: RecordType | None) -> None:
    """Raise InputError if there is no format of this name, or if it needs a description of records that is missing."""
    if name is not None and name not in FORMATS:
        raise InputError(f"format={name!r}: expected one of {', '.join(FORMATS)}")
    if name == "binary" and record is None:
        raise InputError("format='binary': expected record_bytes, the length of a record, or its shape")


def open_formats(files: Sequence[File], name: str | None, options: FormatOptions) -> list[Format]:
    """Open the format of each file. CSV columns have the same types in all files with the same columns."""
    sample_bytes = max(SAMPLE_BYTES_MIN, SAMPLE_BYTES // max(1, len(files)))
    formats = [_open_format(file, name, replace(options, sample_bytes=sample_bytes)) for file in files]
    tables = {at: format for at, format in enumerate(formats) if isinstance(format, Csv)}
    for at, table in zip(tables, of_same_types(list(tables.values())), strict=True):
        formats[at] = table
    return formats


def _open_format(file: File, name: str | None, options: FormatOptions) -> Format:
    """Open the format of a file, given by name or by the name of the file."""
    name = name or ("binary" if options.record else SUFFIXES.get(file.inner_suffix))
    if name is None:
        raise InputError(
            f"{file.path}: unknown suffix {file.inner_suffix}, expected {_suffixes_text()}; or name the format: "
            f"format={', '.join(FORMATS)}; records of equal length: record_bytes=COUNT"
        )
    for option, value, kinds in (
        ("columns", options.columns, TABLES),
        ("ignore", options.ignore, TABLES),
        ("types", options.types, ("csv",)),
        ("delimiter", options.delimiter, ("csv",)),
        ("thousands", options.thousands, ("csv",)),
        ("the folder", "/".join(f"{key}={text}" for key, text in file.keys), TABLES),
        ("record_bytes", options.record and options.record.size_bytes, ("binary",)),
    ):
        if value and name not in kinds:
            raise InputError(f"{option}={value!r}: {file.path} is read as {name}; expected {' or '.join(kinds)}")
    format: Format = FORMATS[name].open(file, options)
    return format


def _suffixes_text() -> str:
    """Return the known suffixes by format, as text."""
    kinds = {kind: [suffix for suffix, of in SUFFIXES.items() if of == kind and suffix] for kind in SUFFIXES.values()}
    return "; ".join(f"{', '.join(suffixes)} ({kind})" for kind, suffixes in kinds.items())


def _cut(file: File, count: int, format: Format) -> list[Split]:
    if file.compression is not None:
        return [Split(file.path, format, 0, file.size_bytes, file.size_bytes, (), file.compression)]
    return [Split(file.path, format, *range) for range in format.cut(file, count)]
