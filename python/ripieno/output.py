"""Writing results so that they are there as a whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ripieno.errors import InputError

PART_SUFFIX = ".part"


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; at the end it takes the name `path`, after an error it is gone."""
    _require_folder(path.parent)
    descriptor, name = tempfile.mkstemp(PART_SUFFIX, f".{path.name}.", path.parent)
    os.close(descriptor)
    part = Path(name)
    try:
        yield part
        _take_name(part, path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A folder beside `path` to write to; at the end it takes the name `path`, after an error it is gone.

    Raises
    ------
    InputError
        `path` exists and may not be overwritten, or is no folder.
    """
    check_new_folder(path, overwrite=overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(PART_SUFFIX, f".{path.name}.", path.parent))
    try:
        yield part
        if path.exists():
            # The old folder goes only once the new one is complete.
            old = part.with_suffix(".old")
            path.rename(old)
            part.rename(path)
            shutil.rmtree(old)
        else:
            _take_name(part, path)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def check_new_folder(path: Path, *, overwrite: bool) -> None:
    """Raise InputError, before any work is done, if `new_folder` would."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is not a folder")
    if path.exists() and any(path.iterdir()) and not overwrite:
        raise InputError(f"{path} exists and is not empty: choose another folder, or overwrite it")


def explain(error: OSError) -> str:
    """An operating-system error of reading or writing, as a sentence."""
    where = f"{error.filename}: " if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{where}the disk is full; nothing was kept"
    return f"{where}{error.strerror or error}"


def _take_name(part: Path, path: Path) -> None:
    # What mkstemp and mkdtemp made is private; what users find has the usual permissions.
    mask = os.umask(0)
    os.umask(mask)
    part.chmod((0o777 if part.is_dir() else 0o666) & ~mask)
    part.replace(path)


def _require_folder(path: Path) -> None:
    if not path.is_dir():
        raise InputError(f"{path} is not a folder")
