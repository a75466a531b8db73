"""Provide `divide`: write files as even partitions, cut between records, with a partition file that lists them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from numpy.typing import DTypeLike

from ripieno._checks import check_count
from ripieno.errors import InputError
from ripieno.files import disk
from ripieno.files.results import new_folder
from ripieno.files.sources import File, PathLike, find_files, is_url
from ripieno.input.checksums import Checksum
from ripieno.input.columns.source import FormatOptions
from ripieno.input.cuts import piece_size
from ripieno.input.cutting import check_format, open_formats, splits
from ripieno.input.dividing.record_streams import RECORD_STREAMS, Arrays, RecordStream, Tables
from ripieno.input.dividing.replicas import place_replicas
from ripieno.input.partitions import FILE_NAME, open_partitions, write_partitions
from ripieno.input.records import RecordType
from ripieno.input.split import Format, Split

#: If partitions of text or CSV are smaller than this, `divide` counts the records before it writes.
COUNTED_PARTITION_BYTES = 64 << 10
REPLICAS_MAX = 1000


def divide(
    source: PathLike | Sequence[PathLike],
    out: PathLike,
    *,
    partitions: int,
    replicas: int | None = None,
    nodes: Sequence[str] = (),
    racks: Mapping[str, str] | None = None,
    format: str | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    record_bytes: int | None = None,
    dtype: DTypeLike | None = None,
    shape: int | tuple[int, ...] | None = None,
    in_place: bool = False,
    overwrite: bool = False,
) -> Path:
    """Divide files, as one list of records, into even partitions. Either all output is written or none.

    Partitions are files in the format of the source, ``part-00000.txt`` and so on. With `nodes`, each node has a folder
    with its name and partitions. With `replicas` alone, there is one folder per replica, ``copy-0`` and so on. Folders
    may be moved to disks of their own: a partition is read at its present location. Until then the replicas of a
    partition are hard links to one file, if the file system supports them.

    Parameters
    ----------
    source : path, glob, folder, URL, or list of them
        As for `splits`. Compressed files are decompressed, and read twice.
    out : path
        The folder to create.
    partitions : int
        Number of partitions, at most one per record. Their sizes differ by about 1/64, or by the longest record. Very
        long records may leave some partitions empty.
    replicas : int, optional
        Number of nodes that hold each partition; by default one, or all with `in_place`.
    nodes : sequence of str
        Hosts that hold the partitions.
    racks : mapping of str to str, optional
        The rack of every node. The replicas of a partition are in different racks.
    format : {"text", "csv", "npy", "parquet", "binary"}, optional
        By default determined by file names. It is the same for all files.
    header : bool, optional
        Whether CSV begins with the names of the columns. Every partition gets this header.
    delimiter, record_bytes, dtype, shape : optional
        As for `splits`.
    in_place : bool, default=False
        Copy no data: list ranges of the unchanged files. As with `splits`, the number of partitions may then differ.
    overwrite : bool, default=False
        Replace `out` if it is a folder that this function has created.

    Returns
    -------
    Path
        The partition file, ``partitions.json`` in `out`.

    Raises
    ------
    InputError
        As for `splits`; there is no data, or not a record for each partition; files differ in format or columns; there
        are fewer nodes than replicas; or `out` exists.
    """
    _check(partitions, replicas, nodes, in_place)
    if is_url(out):
        raise InputError(f"{out}: partitions are files on disks of the nodes: expected a path, not a URL")
    out = Path(out)
    record = RecordType.of(record_bytes, dtype, shape)
    check_format(format, record)
    described: dict[str, Any] = {"delimiter": delimiter, "record_bytes": record_bytes, "dtype": dtype, "shape": shape}
    with new_folder(out, _replaceable(out) if overwrite else ()) as folder:
        if in_place:
            parts = _in_place(splits(source, count=partitions, format=format, header=header, **described))
            hosts = place_replicas(len(parts), nodes, replicas or len(nodes), racks) if nodes else [()] * len(parts)
        else:
            files = [file for file in find_files(source) if file.size_bytes]
            keyed = next((file.path for file in files if file.keys), None)
            if keyed is not None:
                raise InputError(f"{keyed}: copies lack the columns in names of folders: expected in_place=True")
            options = FormatOptions(header=header, delimiter=delimiter, record=record)
            stream = _record_stream(files, open_formats(files, format, options))
            _check_enough(stream, partitions)
            count = replicas or 1
            hosts = place_replicas(partitions, nodes, count, racks) if nodes else [()] * partitions
            copies = tuple(f"copy-{i}" for i in range(count)) if count > 1 else (".",)
            parts = _written(stream, folder, hosts if nodes else [copies] * partitions)
        parts = [replace(part, hosts=names) for part, names in zip(parts, hosts, strict=True)]
        write_partitions(folder / FILE_NAME, parts)
    return out / FILE_NAME


def _check(partitions: int, replicas: int | None, nodes: Sequence[str], in_place: bool) -> None:
    for name, value in (("partitions", partitions), ("replicas", 1 if replicas is None else replicas)):
        check_count(name, value)
    if replicas is not None and replicas > REPLICAS_MAX:
        raise InputError(f"replicas={replicas}: expected {REPLICAS_MAX} or fewer")
    wrong = next((node for node in nodes if not node or "/" in node or node.startswith(".")), None)
    if wrong is not None:
        raise InputError(f"nodes: {wrong!r} is not a name of a host")
    if in_place and not nodes and replicas is not None:
        raise InputError("replicas with in_place=True: expected nodes, the hosts that have the files")


def _record_stream(files: Sequence[File], formats: Sequence[Format]) -> RecordStream:
    kinds = {format.name: file.path for file, format in zip(files, formats, strict=True)}
    if len(kinds) > 1:
        formats_text = ", ".join(f"{path} as {name}" for name, path in kinds.items())
        raise InputError(
            f"files are read in different ways ({formats_text}): name one format for all, or divide "
            "each format separately"
        )
    if not files:
        raise InputError("there is nothing to divide: the files are empty")
    if formats[0].name not in RECORD_STREAMS:
        raise InputError(
            f"{files[0].path}: {formats[0].name} files cannot be divided into copies: expected in_place=True, "
            "or .parquet"
        )
    stream: RecordStream = RECORD_STREAMS[formats[0].name](files, formats)
    if not stream.length:
        raise InputError(f"there is nothing to divide: {files[0].path} has no records")
    return stream


def _check_enough(stream: RecordStream, count: int) -> None:
    """Raise InputError if some of `count` partitions would be empty. Large files are not checked."""
    if isinstance(stream, Arrays | Tables):
        used = min(count, stream.length)
    elif stream.length < count * COUNTED_PARTITION_BYTES:
        used = len({number for number, _ in _numbered(stream, count)})
    else:
        return
    if used < count:
        raise InputError(
            f"partitions={count}: there are records for {used:,}, the others would be empty: expected {used} or fewer"
        )


def _in_place(parts: list[Split]) -> list[Split]:
    """Return partitions as ranges of the existing files."""
    if not parts:
        raise InputError("there is nothing to divide: the files are empty")
    listed = []
    for part in parts:
        path = part.path if is_url(part.path) else os.path.abspath(part.path)
        extents = ((0, part.stop),) if part.compression else part.format.extents(part)
        if part.format.name == "text" and not part.compression:
            # Other programs can use ranges that begin and end at lines, too.
            start, stop = extents[0]
            part = replace(part, start=start, stop=stop, size_bytes=stop - start)
        listed.append(replace(part, path=path, checksum=Checksum.of(path, *extents)))
    return listed


def _written(stream: RecordStream, folder: Path, places: Sequence[tuple[str, ...]]) -> list[Split]:
    """Write new files into the folders of each partition, and return their splits."""
    for name in sorted({name for place in places for name in place}):
        if name != ".":
            disk.make_folder(folder / name)
    groups = groupby(_numbered(stream, len(places)), key=lambda piece: piece[0])
    parts, group = [], next(groups, None)
    for number, (first, *others) in enumerate(places):
        name = f"part-{number:05}{stream.ending}"
        path = folder / first / name
        with disk.create(path) as file, closing(stream.sink(file)) as sink:
            if group is not None and group[0] == number:
                for _, records in group[1]:
                    sink.write(records)
                group = next(groups, None)
        for other in others:
            disk.link(path, folder / other / name)
        written = File(str(path), path.stat().st_size)
        format = stream.format(written)
        range = next(iter(format.cut(written, 1)), (0, 0, 0))
        copies = tuple(os.path.join(other, name) for other in others)
        checksum = Checksum.of(str(path), (0, written.size_bytes))
        relative = os.path.normpath(os.path.join(first, name))
        parts.append(Split(relative, format, *range, copies=copies, checksum=checksum))
    return parts


def _numbered(stream: RecordStream, count: int) -> Iterator[tuple[int, Any]]:
    begin = 0
    for size, records in stream.pieces(piece_size(stream.length, count)):
        yield begin * count // stream.length, records
        begin += size


def _replaceable(out: Path) -> Collection[str]:
    """Return the names in a folder of partitions. Raise an error if it contains anything else."""
    # The listed paths are absolute.
    out = out.absolute()
    if not (out / FILE_NAME).is_file():
        return (FILE_NAME,)
    listed = {Path(path) for part in open_partitions(out / FILE_NAME) for path in (part.path, *part.copies)}
    other = sorted(path for path in out.rglob("*") if path.is_file() and path not in {*listed, out / FILE_NAME})
    if other:
        raise InputError(
            f"{out} holds {str(other[0].relative_to(out))!r}, which is not a partition: choose another folder"
        )
    return [path.name for path in out.iterdir()]
