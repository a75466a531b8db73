"""Provide the partition file: a list of partitions with their files, hosts, sizes and checksums.

It is JSON with a line per partition. Paths are relative to the folder of the partition file, or absolute, or URLs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ripieno.errors import InputError
from ripieno.files import disk
from ripieno.files.sources import PathLike, absolute, input_errors, is_url, parsed_json, size_bytes
from ripieno.input.checksums import Checksum
from ripieno.input.columns import Key, TableFiles
from ripieno.input.formats import FORMATS
from ripieno.input.split import Format, Split

#: Name of the partition file that `ripieno split` writes.
FILE_NAME = "partitions.json"
#: File name suffix of a partition file.
SUFFIX = ".json"
VERSION = 2
_KIND = "ripieno partitions"


def open_partitions(path: PathLike, *, verify: bool = True) -> list[Split]:
    """Return the splits in a partition file, with their hosts.

    Only the partition file itself has to be accessible here.

    Parameters
    ----------
    path : path
        A file written by `ripieno split`.
    verify : bool, default=True
        Compare a partition with its checksum before any of it is returned, once per process until the file changes. For
        each damaged copy a warning is issued, and another copy is read. If false, the splits have no checksums.

    Raises
    ------
    InputError
        The file is not a partition file, or has another version.
    """
    path = Path(absolute(path))
    # Opening a pipe without a writer would block.
    size_bytes(str(path))
    with input_errors(str(path)):
        text = path.read_bytes()
    try:
        content = parsed_json(text)
    except ValueError as error:
        raise InputError(f"{path} is not a partition file: {error}") from error
    if not isinstance(content, dict) or content.get("kind") != _KIND:
        raise InputError(f"{path} is not a partition file: expected JSON that says kind = {_KIND!r}")
    if content.get("version") != VERSION:
        raise InputError(
            f"{path} is a partition file of version {content.get('version')}, expected {VERSION}: divide them again"
        )
    try:
        formats = [_format(entry) for entry in content["formats"]]
        parts = [_split(entry, formats, path.parent) for entry in content["partitions"]]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError(f"{path} is damaged: {type(error).__name__} {error}") from error
    return parts if verify else [replace(part, checksum=None) for part in parts]


def splits_of(source: Any) -> list[Split] | None:
    """Return the source if it consists of splits, or the splits in a partition file; None for any other source.

    Raises
    ------
    InputError
        The file is not a partition file, is in a list with other files, or is given with options of tables.
    """
    if isinstance(source, TableFiles):
        if splits_of(source.source) is None:
            return None
        raise InputError(
            f"{source.source}: options of tables apply when files are divided, not to partitions or splits"
        )
    items = list(source) if isinstance(source, list | tuple) else [source]
    if items and all(isinstance(item, Split) for item in items):
        return items
    listed = [item for item in items if isinstance(item, str | os.PathLike) and os.fspath(item).endswith(SUFFIX)]
    if not listed:
        return None
    if len(items) > 1:
        raise InputError(f"{listed[0]} and others: expected one partition file, or files without partition files")
    return open_partitions(listed[0])


def write_partitions(path: Path, parts: Sequence[Split]) -> None:
    """Write the partition file of `parts`. Their local files may be relative to its folder."""
    formats = list(dict.fromkeys(part.format for part in parts))
    head = {"kind": _KIND, "version": VERSION, "formats": [{"name": f.name} | _fields(f) for f in formats]}
    lines = [json.dumps(_entry(number, part, formats), ensure_ascii=False) for number, part in enumerate(parts)]
    body = ",\n".join(f"  {line}" for line in lines)
    text = f'{json.dumps(head, ensure_ascii=False)[:-1]}, "partitions": [\n{body}\n]}}\n'
    disk.write_text(path, text)


def _entry(number: int, part: Split, formats: list[Format]) -> dict[str, Any]:
    assert part.checksum is not None, "every partition in the file has a checksum"
    entry = {"id": number, "path": part.path, "start": part.start, "stop": part.stop, "size_bytes": part.size_bytes}
    entry |= {"hosts": part.hosts, "copies": part.copies, "compression": part.compression}
    entry |= {"keys": [asdict(key) for key in part.keys]} if part.keys else {}
    return entry | {"format": formats.index(part.format), "checksum": asdict(part.checksum)}


def _format(entry: dict[str, Any]) -> Format:
    fields = {name: _tuples(value) for name, value in entry.items() if name != "name"}
    format: Format = FORMATS[entry["name"]](**fields)
    return format


def _fields(format: Any) -> dict[str, Any]:
    """Return the fields of a format, which is a dataclass."""
    return asdict(format)


def _split(entry: dict[str, Any], formats: list[Format], folder: Path) -> Split:
    path, *copies = (name if is_url(name) else os.path.join(folder, name) for name in (entry["path"], *entry["copies"]))
    return Split(
        path=path,
        format=formats[entry["format"]],
        start=int(entry["start"]),
        stop=int(entry["stop"]),
        size_bytes=int(entry["size_bytes"]),
        hosts=tuple(entry["hosts"]),
        compression=entry["compression"],
        copies=tuple(copies),
        keys=tuple(Key(**key) for key in entry.get("keys", ())),
        checksum=Checksum(**{name: _tuples(value) for name, value in entry["checksum"].items()}),
    )


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
