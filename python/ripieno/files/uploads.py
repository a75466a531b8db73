"""Results behind URLs, there as a whole or not at all: made here, sent under another name, and renamed once complete.

To rename is one step in HDFS. Object stores have no such step: what they hold is copied, file by file.
URLs are those of fsspec, as for input.
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

#: Bytes that are sent in one request, where the file system sends files in parts.
REQUEST_BYTES = 32 << 20


@contextmanager
def sent_file(url: str) -> Iterator[Path]:
    """A path here to write to; at the end the file takes the name `url`, and an older one of that name goes."""
    with _made(url) as part:
        yield part


@contextmanager
def sent_folder(url: str) -> Iterator[Path]:
    """A folder here to write to; at the end it takes the name `url`, and an older one of that name goes."""
    with _made(url) as part:
        part.mkdir()
        yield part


def check_sent_file(url: str) -> None:
    """Raise InputError, before any work is done, if the file system cannot be reached or has a folder of that name."""
    with _blamed_on(url):
        system, name = file_system(url)
        if _kind(system, name) == "directory":
            raise InputError(f"{url} is a folder")


def exists(url: str) -> bool:
    """Whether there is something of that name.

    Raises
    ------
    InputError
        The file system cannot be reached.
    """
    with _blamed_on(url):
        return _kind(*file_system(url)) is not None


def listed(url: str) -> list[str]:
    """Names of what lies in a folder, which need not exist.

    Raises
    ------
    InputError
        It is no folder, or the file system cannot be reached.
    """
    with _blamed_on(url):
        system, name = file_system(url)
        kind = _kind(system, name)
        if kind == "file":
            raise InputError(f"{url} is not a folder")
        entries: Collection[Any] = system.ls(name, detail=False) if kind else ()
    return sorted(PurePosixPath(entry).name for entry in entries)


@contextmanager
def _made(url: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ripieno-") as folder:
        part = Path(folder) / PurePosixPath(url).name
        yield part
        with _blamed_on(url):
            system, name = file_system(url)
            _send(part, system, PurePosixPath(name))


def _send(made: Path, system: fsspec.AbstractFileSystem, name: PurePosixPath) -> None:
    part, old = (str(name.with_name(f".{name.name}.{secrets.token_hex(8)}.{end}")) for end in ("part", "old"))
    system.makedirs(str(name.parent), exist_ok=True)
    try:
        _copy(made, system, part)
        # The old result goes only once the new one is complete.
        if _kind(system, str(name)) is None:
            _rename(system, part, str(name))
        else:
            _exchange(system, part, str(name), old)
            system.rm(old, recursive=True)
    except BaseException:
        # What is told is why the result is not there, not that its parts could not be removed, either.
        with suppress(Exception):
            _remove(system, part)
        raise


def _exchange(system: fsspec.AbstractFileSystem, part: str, name: str, old: str) -> None:
    """Put the older result aside for the new one; it gets its name back if that fails."""
    is_aside = False
    try:
        _rename(system, name, old)
        is_aside = True
        _rename(system, part, name)
    except BaseException as error:
        try:
            if is_aside:
                # Where a renamed folder is copied, some of it may be there.
                _remove(system, name)
            if _kind(system, name) is None:
                _rename(system, old, name)
        except Exception as again:
            raise OSError(
                f"{error}; the older result is now {old}, from where it could not be put back: {again}"
            ) from error
        raise


def _copy(made: Path, system: fsspec.AbstractFileSystem, name: str) -> None:
    if made.is_dir():
        system.makedirs(name, exist_ok=True)
        for entry in made.iterdir():
            _copy(entry, system, f"{name}/{entry.name}")
        return
    with open(made, "rb") as source, system.open(name, "wb", block_size=REQUEST_BYTES) as file:
        shutil.copyfileobj(source, file, REQUEST_BYTES)


def _rename(system: fsspec.AbstractFileSystem, old: str, new: str) -> None:
    system.mv(old, new, recursive=True)
    # WebHDFS answers no, and fsspec does not listen.
    if _kind(system, new) is None:
        raise OSError(f"{old} could not be renamed to {new}")


def _remove(system: fsspec.AbstractFileSystem, name: str) -> None:
    if _kind(system, name) is not None:
        system.rm(name, recursive=True)


def _kind(system: fsspec.AbstractFileSystem, name: str) -> str | None:
    """Whether there is a "file" or a "directory" of that name, or nothing."""
    system.invalidate_cache()
    try:
        kind: str = system.info(name)["type"]
    except FileNotFoundError:
        return None
    return kind


@contextmanager
def _blamed_on(url: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        # What the packages raise that know of other file systems nobody can list.
        raise InputError(f"{url} cannot be written: {error}") from error
