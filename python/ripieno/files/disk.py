"""Create, rename and remove files: all changes of the file system go through this module.

A result is written under a hidden name next to its own, synced to disk, and renamed. Then its folder is synced. So
after a failure, or a power loss, the name stands for the complete old result or for the complete new one.
Source: Pillai et al., "All file systems are not created equal", OSDI 2014, section 4.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import math
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ripieno.errors import InputError

PART_SUFFIX = ".part"
OLD_SUFFIX = ".old"

# Errors of file systems that lack an operation, such as syncing a folder or exchanging two names.
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)
# Constants of linux/fcntl.h and linux/fs.h.
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def part_path(path: Path) -> Path:
    """Return a new hidden name next to `path` for its unfinished contents."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}{PART_SUFFIX}")


def create(path: str | os.PathLike[str], *, exclusive: bool = False) -> BinaryIO:
    """Open an empty file to write. With `exclusive`, an existing file is an error."""
    return open(path, "xb" if exclusive else "wb")


def update(path: str | os.PathLike[str]) -> BinaryIO:
    """Open an existing file to change its bytes."""
    return open(path, "r+b")


def write_text(path: Path, text: str) -> None:
    """Write a text as UTF-8. Bytes of file names that are not UTF-8 appear as ``\\udcff``."""
    with create(path) as file:
        file.write(text.encode("utf-8", "backslashreplace"))


def copy(source: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Copy the contents of a file."""
    with open(source, "rb") as file, create(path) as target:
        shutil.copyfileobj(file, target, 1 << 20)


def link(path: Path, other: Path) -> None:
    """Make `other` a hard link to a file, or a copy where the file system has no links."""
    try:
        os.link(path, other)
    except OSError as error:
        if error.errno not in (*_UNSUPPORTED, errno.EXDEV, errno.EPERM, errno.EMLINK):
            raise
        copy(path, other)


def make_folder(path: Path) -> None:
    """Create a folder."""
    os.mkdir(path)


def make_folders(path: Path, mode: int = 0o777) -> None:
    """Create a folder, with this mode, and its missing parents. Make their names durable."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(folder, mode if folder == path else 0o777)
        sync(folder.parent)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))


def sync(path: str | os.PathLike[str]) -> None:
    """Make the contents of a file durable, or the names in a folder."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except PermissionError:
        # A folder that can be written but not read cannot be synced.
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    finally:
        os.close(descriptor)


def publish(part: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Make a file durable and rename it to `path`. The new name is durable after the next sync of the folder."""
    sync(part)
    os.replace(part, path)


def replace_folder(part: Path, path: Path) -> None:
    """Make a folder durable and rename it to `path`. Remove the older folder of that name."""
    try:
        for folder, _, names in os.walk(part):
            for name in names:
                sync(os.path.join(folder, name))
            sync(folder)
        old = _put_in_place(part, path)
    except BaseException:
        remove_folder(part)
        raise
    # A power loss can restore the older name until this sync. If it fails, both folders stay.
    sync(path.parent)
    if old is not None:
        remove_folder(old)


def _put_in_place(part: Path, path: Path) -> Path | None:
    """Rename a folder to `path`, and return the new path of the older folder, if one exists."""
    if not path.exists():
        os.rename(part, path)
        return None
    try:
        exchange(part, path)
        return part
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    old = part.with_suffix(OLD_SUFFIX)
    os.rename(path, old)
    try:
        os.rename(part, path)
    except BaseException as error:
        try:
            os.rename(old, path)
        except OSError as again:
            raise InputError(
                f"{path}: {error}; its older contents are in {old}, as restoring failed: {again}"
            ) from error
        raise
    return old


def exchange(one: Path, other: Path) -> None:
    """Exchange two names in a single step. Not every file system supports it."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(one))


def rename(old: Path, new: Path) -> None:
    """Rename a file within its folder."""
    os.replace(old, new)


def remove(path: str | os.PathLike[str]) -> None:
    """Remove a file, if it exists."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def remove_empty_folder(path: Path) -> None:
    """Remove a folder without contents."""
    os.rmdir(path)


def remove_folder(path: Path) -> None:
    """Remove a folder with its contents, as far as possible."""
    shutil.rmtree(path, ignore_errors=True)


@contextmanager
def scratch_array(folder: str | os.PathLike[str], shape: tuple[int, ...], dtype: DTypeLike) -> Iterator[NDArray[Any]]:
    """Yield an array in an unnamed file of a folder, so that its values take no memory.

    Raises
    ------
    OSError
        The disk has no space for it.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        # Writing to a mapped file that has no space on the disk would kill the process.
        try:
            os.posix_fallocate(file.fileno(), 0, max(1, math.prod(shape) * np.dtype(dtype).itemsize))
        except OSError as error:
            error.filename = os.fspath(folder)
            raise
        yield np.asarray(np.memmap(file, dtype, "w+", shape=shape))


def interrupted_replacement(path: str) -> Path | None:
    """Return the hidden older folder of a folder that is missing after an interrupted replacement, or None.

    `path` is the folder, or a file in it.
    """
    place = Path(os.path.abspath(path))
    missing = next((each for each in (*reversed(place.parents), place) if not os.path.lexists(each)), place)
    return next(missing.parent.glob(f".{glob.escape(missing.name)}.*{OLD_SUFFIX}"), None)
