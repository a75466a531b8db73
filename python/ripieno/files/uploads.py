"""Write results to URLs atomically: create them locally, send them under a temporary name, then rename them.

Renaming is a single step in HDFS. Object stores have no such step; their objects are copied file by file. fsspec opens
the URLs, as for input.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ripieno.errors import InputError
from ripieno.files.sources import file_system

if TYPE_CHECKING:
    import fsspec

#: Bytes per request, if the file system sends files in parts.
REQUEST_BYTES = 32 << 20


@contextmanager
def sent_file(url: str) -> Iterator[Path]:
    """Yield a local path to write to. At the end the file is sent to `url` and replaces an older file."""
    with _uploaded(url) as part:
        yield part


@contextmanager
def sent_folder(url: str) -> Iterator[Path]:
    """Yield a local folder to write to. At the end it is sent to `url` and replaces an older folder."""
    with _uploaded(url) as part:
        part.mkdir()
        yield part


def check_sent_file(url: str) -> None:
    """Raise InputError, before any work is done, if the file system is unreachable or has a folder with that name."""
    with _output_errors(url):
        system, name = file_system(url)
        if _kind(system, name) == "directory":
            raise InputError(f"{url} is a folder")


def exists(url: str) -> bool:
    """Whether a file or folder with that name exists.

    Raises
    ------
    InputError
        The file system cannot be reached.
    """
    with _output_errors(url):
        return _kind(*file_system(url)) is not None


def listed(url: str) -> list[str]:
    """Return the names in a folder, which need not exist.

    Raises
    ------
    InputError
        It is not a folder, or the file system cannot be reached.
    """
    with _output_errors(url):
        system, name = file_system(url)
        kind = _kind(system, name)
        if kind == "file":
            raise InputError(f"{url} is not a folder")
        entries: Collection[Any] = system.ls(name, detail=False) if kind else ()
    return sorted(PurePosixPath(entry).name for entry in entries)


@contextmanager
def _uploaded(url: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ripieno-") as folder:
        part = Path(folder) / PurePosixPath(url).name
        yield part
        with _output_errors(url):
            system, name = file_system(url)
            _send(part, system, PurePosixPath(name))


def _send(local: Path, system: fsspec.AbstractFileSystem, name: PurePosixPath) -> None:
    part, old = (str(name.with_name(f".{name.name}.{secrets.token_hex(8)}.{end}")) for end in ("part", "old"))
    system.makedirs(str(name.parent), exist_ok=True)
    try:
        _copy(local, system, part)
        # Remove the old result only after the new one is complete.
        if _kind(system, str(name)) is None:
            _rename(system, part, str(name))
        else:
            _exchange(system, part, str(name), old)
            system.rm(old, recursive=True)
    except BaseException:
        # The error reports why the result is missing. Failures of the cleanup are ignored.
        with suppress(Exception):
            _remove(system, part)
        raise


def _exchange(system: fsspec.AbstractFileSystem, part: str, name: str, old: str) -> None:
    """Move the older result aside for the new one. Restore it if that fails."""
    is_moved = False
    try:
        _rename(system, name, old)
        is_moved = True
        _rename(system, part, name)
    except BaseException as error:
        try:
            if is_moved:
                # If renaming a folder copies it, a part of it may exist.
                _remove(system, name)
            if _kind(system, name) is None:
                _rename(system, old, name)
        except Exception as again:
            raise OSError(f"{error}; the older result is now {old}, because restoring it failed: {again}") from error
        raise


def _copy(local: Path, system: fsspec.AbstractFileSystem, name: str) -> None:
    if local.is_dir():
        system.makedirs(name, exist_ok=True)
        for entry in local.iterdir():
            _copy(entry, system, f"{name}/{entry.name}")
        return
    with open(local, "rb") as source, system.open(name, "wb", block_size=REQUEST_BYTES) as file:
        shutil.copyfileobj(source, file, REQUEST_BYTES)


def _rename(system: fsspec.AbstractFileSystem, old: str, new: str) -> None:
    system.mv(old, new, recursive=True)
    # WebHDFS reports a failed rename, but fsspec ignores the response.
    if _kind(system, new) is None:
        raise OSError(f"{old} could not be renamed to {new}")


def _remove(system: fsspec.AbstractFileSystem, name: str) -> None:
    if _kind(system, name) is not None:
        system.rm(name, recursive=True)


def _kind(system: fsspec.AbstractFileSystem, name: str) -> str | None:
    """Return "file" or "directory" for an existing name, or None."""
    system.invalidate_cache()
    try:
        kind: str = system.info(name)["type"]
    except FileNotFoundError:
        return None
    return kind


@contextmanager
def _output_errors(url: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        # The packages for other file systems may raise any type of error.
        raise InputError(f"{url} cannot be written: {error}") from error
