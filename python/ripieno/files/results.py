"""Write results atomically to a path or a URL: they appear complete or not at all."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.files import disk, uploads
from ripieno.files.sources import is_url

logger = logging.getLogger("ripieno.files")

#: Destination of a result: a path, or an fsspec URL.
ResultPath = str | os.PathLike[str]


@contextmanager
def new_file(path: ResultPath) -> Iterator[Path]:
    """Yield a path to write to. At the end the file is renamed to `path`; after an error it is removed.

    The unfinished file lies next to `path`. For a URL it lies in a temporary folder until it is sent.

    Parameters
    ----------
    path : path or URL
        The folders of a URL are created.

    Raises
    ------
    InputError
        A file with that name cannot exist, or sending it has failed.
    """
    check_new_file(path)
    if is_url(path):
        with uploads.sent_file(path) as part:
            yield part
        logger.info("%s is sent", path)
        return
    path = Path(path)
    part = disk.part_path(path)
    try:
        with _errors_with_path(path, part):
            disk.create(part, exclusive=True).close()
            yield part
            disk.publish(part, path)
            disk.sync(path.parent)
    finally:
        # An error of the removal would hide the reason why the result is missing.
        with suppress(OSError):
            disk.remove(part)
    logger.info("%s is written", path)


@contextmanager
def new_folder(path: ResultPath, replaceable: Collection[str] = ()) -> Iterator[Path]:
    """Yield a folder to write to. At the end it is renamed to `path`; after an error it is removed.

    The unfinished folder lies next to `path`. For a URL it lies in a temporary folder until it is sent.

    Parameters
    ----------
    path : path or URL
        The folder. Its parents are created.
    replaceable
        Names of files that an old folder of that name may hold; they are deleted with it.

    Raises
    ------
    InputError
        `path` holds other files, is not a folder, or cannot be written.
    """
    check_new_folder(path, replaceable)
    if is_url(path):
        with uploads.sent_folder(path) as part:
            yield part
        logger.info("%s is sent", path)
        return
    path = Path(path).resolve()
    part, missing = disk.part_path(path), [folder for folder in path.parents if not folder.exists()]
    try:
        with _errors_with_path(path, part):
            disk.make_folders(path.parent)
            disk.make_folder(part)
            try:
                yield part
            except BaseException:
                disk.remove_folder(part)
                raise
            disk.replace_folder(part, path)
    finally:
        for folder in missing:
            # Created parents that contain the result are not empty, so they stay.
            with suppress(OSError):
                disk.remove_empty_folder(folder)
    logger.info("%s is written", path)


def write_text(path: ResultPath, text: str) -> None:
    """Write a text to a path or URL as UTF-8, atomically; see `new_file`."""
    with new_file(path) as part:
        disk.write_text(part, text)


def check_new_file(path: ResultPath) -> None:
    """Raise InputError, before any work is done, if `new_file` would raise it."""
    if is_url(path):
        uploads.check_sent_file(path)
        return
    path = Path(path)
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a folder")
    if path.is_dir():
        raise InputError(f"{path} is a folder")
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is a pipe or a device, not a file: choose another name")
    _check_place(path)


def check_results(
    paths: Mapping[str, ResultPath | None], inputs: Collection[ResultPath] = (), *, overwrite: bool
) -> None:
    """Raise InputError, before any work is done, if results cannot be written or would replace files.

    Parameters
    ----------
    paths : mapping of str to path or URL, or None
        The file of each option that is set.
    inputs
        Input files, which no result may replace.
    overwrite
        Whether results may replace existing files.
    """
    named = {option: path for option, path in paths.items() if path is not None}
    for path in named.values():
        check_new_file(path)
        if not overwrite and _exists(path):
            raise InputError(f"{path} exists: choose another name, or pass --overwrite")
    _check_different(named)
    read = {_resolved(path) for path in inputs}
    overlap = next((path for path in named.values() if _resolved(path) in read), None)
    if overlap is not None:
        raise InputError(f"{overlap} is an input, too: choose another name")


def _exists(path: ResultPath) -> bool:
    return uploads.exists(path) if is_url(path) else Path(path).exists()


def _resolved(path: ResultPath) -> ResultPath:
    return path if is_url(path) else Path(path).resolve()


def _check_different(paths: Mapping[str, ResultPath]) -> None:
    """Raise InputError if two results have the same path."""
    if len({_resolved(path) for path in paths.values()}) < len(paths):
        raise InputError(f"{' and '.join(paths)} name the same file twice: expected one for each result")


def check_new_folder(path: ResultPath, replaceable: Collection[str] = ()) -> None:
    """Raise InputError, before any work is done, if `new_folder` would raise it."""
    if is_url(path):
        _check_contents(path, uploads.listed(path), replaceable)
        return
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is not a folder")
    # A current working directory that was removed cannot be the target.
    with suppress(FileNotFoundError):
        if path.resolve() in (Path.cwd(), *Path.cwd().parents):
            raise InputError(f"{path} is the current folder, or a parent of it: choose another one")
    _check_contents(path, sorted(entry.name for entry in path.iterdir()) if path.exists() else [], replaceable)
    _check_place(path)


def _check_contents(path: ResultPath, names: Collection[str], replaceable: Collection[str]) -> None:
    other = [name for name in names if name not in replaceable]
    if other and replaceable:
        raise InputError(f"{path} holds {other[0]!r}, which is not part of a result: choose another folder")
    if other:
        raise InputError(f"{path} exists and is not empty: choose another folder, or pass --overwrite")


def save_array(path: Path, array: NDArray[Any]) -> None:
    """Write an .npy file. Unlike `numpy.save`, report a full disk as such.

    An array of objects is written as text if it contains only text.

    Raises
    ------
    InputError
        It contains other objects, which would need pickle.
    """
    if array.dtype.hasobject:
        if not all(isinstance(each, str) for each in array.flat):
            raise InputError(f"{path.name}: an array of objects cannot be written, expected numbers or text")
        array = array.astype(str)
    array = np.ascontiguousarray(array)
    with disk.create(path) as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.data)


def explain(error: OSError) -> str:
    """Describe an operating-system error of reading or writing in a sentence."""
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{'the disk is full' if error.errno == errno.ENOSPC else error.strerror or error}"


@contextmanager
def _errors_with_path(path: Path, part: Path) -> Iterator[None]:
    """Make errors of the operating system name the user's path instead of the temporary one."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and (error.filename is None or str(error.filename).startswith(str(part))):
            error.filename = str(path)
        raise


def _check_place(path: Path) -> None:
    """Raise InputError if nothing can be created at `path`."""
    parent = next(folder for folder in path.resolve().parents if folder.exists())
    if not parent.is_dir():
        raise InputError(f"{parent} is not a folder")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"{path} cannot be created: {parent} is read-only")
