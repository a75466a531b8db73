"""Provide files by path, glob, folder or URL: find them, determine their sizes, and open them at any byte.

fsspec opens URLs: ``file://`` and ``memory://`` always, and ``webhdfs://``, ``http://``, ``s3://`` and others if their
packages are installed.
"""

from __future__ import annotations

import glob
import io
import json
import lzma
import os
import stat
import zlib
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import PurePath
from typing import IO, TYPE_CHECKING, Any, TypeGuard, TypeVar
from urllib.parse import unquote

from ripieno.errors import InputError
from ripieno.files import disk
from ripieno.host import available_bytes, memory_limit_bytes

if TYPE_CHECKING:
    # Imported in functions: the import takes a fifth of a worker's start time, and few workers need it.
    import fsspec

#: Compressions by suffix. PyArrow decompresses `ARROW_COMPRESSIONS`, and Python the others.
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".lzma": "lzma", ".zst": "zstd", ".lz4": "lz4"}
ARROW_COMPRESSIONS = ("zstd", "lz4")
ARCHIVES = (".zip", ".tar", ".tgz")
#: Bytes per read of a whole file.
READ_BYTES = 1 << 20
#: Contents of this size are held in memory without a check.
UNCHECKED_BYTES = 1 << 28
READ_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError)
#: Timeout in seconds of an HDFS node to connect, to accept a request, and to respond; as in Hadoop.
WEBHDFS_TIMEOUT_S = 60.0
#: Attributes of remote files that change with the contents.
VERSION_ATTRIBUTES = ("size", "mtime", "created", "modificationTime", "last_modified", "LastModified", "ETag")


PathLike = str | os.PathLike[str]
Each = TypeVar("Each")
Opened = TypeVar("Opened")
#: Prefixes of files in a folder that are not data: _SUCCESS, _metadata, _committed_123, .part-0.crc.
HIDDEN = (".", "_")
#: Columns with one value per file, from names of folders such as ``year=2024``.
Keys = tuple[tuple[str, str | None], ...]
#: The value of a missing key in the name of a folder.
NO_KEY = "__HIVE_DEFAULT_PARTITION__"


class EmptyFile(InputError):
    """A file without rows. This is an error if no other file has rows."""


@dataclass(frozen=True)
class File:
    """A file and its stored size. `path` is a local path or a URL."""

    path: str
    size_bytes: int
    keys: Keys = ()

    @property
    def compression(self) -> str | None:
        """The name of the compression from the file name, or None."""
        return COMPRESSIONS.get(suffix(self.path))

    @property
    def inner_suffix(self) -> str:
        """The suffix in lower case, without a compression suffix: ".csv" for "a.CSV.gz"."""
        end = suffix(self.path)
        return suffix(self.path[: -len(end)]) if end in COMPRESSIONS else end


def describe_paths(paths: Sequence[PathLike]) -> str:
    """Return the name of the first file, and the number of others. There is at least one file."""
    others = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{paths[0]}{others}"


def suffix(path: PathLike) -> str:
    """Return the suffix of a name from its last dot, in lower case."""
    return PurePath(path).suffix.lower()


def find_files(source: PathLike | Sequence[PathLike]) -> list[File]:
    """Return the files of one or several paths, globs, folders or URLs, sorted within each.

    Raises
    ------
    InputError
        No file matches; a file is missing, or cannot be split, such as an archive or a pipe; or fsspec lacks a
        package for it.
    """
    items: Sequence[Any] = source if isinstance(source, list | tuple) else [source]
    if not items:
        raise InputError("no file is given")
    for item in items:
        if not isinstance(item, str | os.PathLike):
            raise InputError(f"{item!r}: expected a path or URL, or a list of these")
    files = [file for item in items for file in (_remote(item) if is_url(item) else _local(item))]
    for file in files:
        end = suffix(file.path)
        if end in ARCHIVES:
            raise InputError(f"{file.path}: {end} files are archives, which cannot be split: unpack it first")
    return files


def absolute(path: PathLike) -> str:
    """Return a path that does not depend on the working directory. URLs are returned unchanged.

    A leading ``~`` means the home directory, unless a file with exactly that name exists here.
    """
    if is_url(path):
        return path
    name = os.fspath(path)
    if name.startswith("~") and not os.path.lexists(name):
        name = os.path.expanduser(name)
    # An empty name is not a file, but `abspath` would return the working directory.
    return os.path.abspath(name) if name else name


def absolute_paths(paths: PathLike | Sequence[PathLike]) -> list[str]:
    """Return one or several paths as a list of absolute paths."""
    items: Sequence[Any] = paths if isinstance(paths, list | tuple) else [paths]
    return [absolute(item) for item in items]


def open_nonempty(paths: Iterable[Each], open_one: Callable[[Each], Opened]) -> list[Opened]:
    """Open files and skip the empty ones.

    Raises
    ------
    EmptyFile
        All files are empty. The error names the first one.
    """
    files, empty = [], []
    for path in paths:
        try:
            files.append(open_one(path))
        except EmptyFile as error:
            empty.append(error)
    if empty and not files:
        raise empty[0]
    return files


def held(path: str, parts: Iterable[Each], size: Callable[[Any], int] = len) -> Iterator[Each]:
    """Yield parts of a file that are kept in memory together, in bytes by `size`.

    Raises
    ------
    InputError
        They take more memory than is left, or half of the memory of this machine or container. A small compressed file
        can unpack to any size.
    """
    total, unchecked = 0, UNCHECKED_BYTES
    for part in parts:
        total += size(part)
        if total > unchecked:
            check_memory(path, total)
            unchecked = total + READ_BYTES
        yield part


def check_memory(path: str, count_bytes: int) -> None:
    """Raise InputError if the contents of a file take too much memory, as for `held`."""
    if count_bytes > (bound_bytes := held_bytes_max()):
        raise InputError(
            f"{path}: its contents take more than the {bound_bytes:,} bytes of memory that are left here: expected "
            "fewer rows or columns, more hosts, or splits that are read in blocks"
        )


def held_bytes_max() -> int:
    """Return the maximum size of contents in memory: the free memory, at most half of all, at least 256 MiB."""
    return max(min(available_bytes(), memory_limit_bytes() // 2), UNCHECKED_BYTES)


def is_url(path: PathLike) -> TypeGuard[str]:
    """Whether fsspec has to open this path."""
    return isinstance(path, str) and "://" in path


@contextmanager
def opened(path: str, compression: str | None = None) -> Iterator[IO[bytes]]:
    """Open a file for reading, with decompression if it is compressed.

    Raises
    ------
    InputError
        It does not exist, or cannot be opened.
    """
    with ExitStack() as stack:
        with input_errors(path):
            if is_url(path):
                system, name = file_system(path)
                # readline of fsspec files ignores its size limit.
                file = stack.enter_context(io.BufferedReader(stack.enter_context(system.open(name, "rb"))))
            else:
                # A pipe blocks, and a device may have no end.
                _size_bytes(path)
                file = stack.enter_context(open(path, "rb"))
            if compression in ARROW_COMPRESSIONS:
                file = stack.enter_context(io.BufferedReader(_Unpacked(file, compression)))
            elif compression is not None:
                from fsspec.compression import compr

                file = stack.enter_context(compr[compression](file, mode="rb"))
        yield file


class _Unpacked(io.RawIOBase):
    """A file that PyArrow decompresses. It seeks forward only."""

    def __init__(self, file: IO[bytes], compression: str) -> None:
        import pyarrow as pa

        self._stream = pa.CompressedInputStream(file, compression)
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        import pyarrow as pa

        try:
            read = self._stream.read(len(buffer))
        except pa.ArrowException as error:
            raise EOFError(str(error)) from error
        buffer[: len(read)] = read
        self._at += len(read)
        return len(read)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        offset += self._at if whence == os.SEEK_CUR else 0
        if whence == os.SEEK_END or offset < self._at:
            raise io.UnsupportedOperation("only forward")
        while self._at < offset and self.read(min(READ_BYTES, offset - self._at)):
            pass
        return self._at


def file_system(url: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """Return the file system of a URL, and the name of the file within it.

    Raises
    ------
    InputError
        The protocol is unknown, or its package is missing.
    """
    import fsspec

    try:
        system, name = fsspec.url_to_fs(url)
    except ValueError as error:
        raise InputError(f"{url}: {error}") from error
    except OSError as error:
        if "libjvm" not in str(error) and "libhdfs" not in str(error):
            raise
        raise InputError(
            f"{url}: hdfs:// needs Hadoop's native library, libhdfs, which cannot be loaded here: expected "
            "webhdfs://NAMENODE:9870/…, which needs none"
        ) from error
    for each in _chain(system):
        protocols = (each.protocol,) if isinstance(each.protocol, str) else each.protocol
        if "webhdfs" in protocols and "get" not in vars(each.session):
            each.session.request = _limited(each.session.request)
            each.session.get = _checking(each.session.get)
    return system, name


def _chain(system: Any) -> Iterator[fsspec.AbstractFileSystem]:
    """Yield a file system and its wrapped file systems, as in ``simplecache::webhdfs://…``."""
    import fsspec

    while isinstance(system, fsspec.AbstractFileSystem):
        yield system
        system = getattr(system, "fs", None)


def _limited(request: Callable[..., Any]) -> Callable[..., Any]:
    """Add a timeout to requests, because fsspec would wait forever."""

    def limited(*args: Any, **kwargs: Any) -> Any:
        return request(*args, **{"timeout": WEBHDFS_TIMEOUT_S, **kwargs})

    return limited


def _checking(get: Callable[..., Any]) -> Callable[..., Any]:
    """Raise for error responses of data nodes. fsspec would return them as bytes of the file."""

    def checked(*args: Any, **kwargs: Any) -> Any:
        response = get(*args, **kwargs)
        response.raise_for_status()
        return response

    return checked


def read_whole(path: str | os.PathLike[str]) -> bytes:
    """Return the contents of a local file. Raise InputError for missing files, folders, pipes and devices."""
    name = os.fspath(path)
    with input_errors(name):
        _size_bytes(name)
        with open(name, "rb") as file:
            return file.read()


def parsed_json(text: str | bytes) -> Any:
    """Return the value of a JSON text. Raise ValueError if it is invalid or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError(str(error)) from None


@contextmanager
def input_errors(path: str, at: str = "") -> Iterator[None]:
    """Convert read errors of the operating system and of fsspec to InputError with the path, and the position `at`."""
    try:
        yield
    except FileNotFoundError:
        older = None if is_url(path) else disk.interrupted_replacement(path)
        reason = "" if older is None else f": its replacement was interrupted, and {older} has the older contents"
        raise InputError(f"{path} does not exist{reason}") from None
    except ImportError as error:
        raise InputError(f"{path} cannot be opened: {error}") from error
    except READ_ERRORS as error:
        if isinstance(error, OSError) and (is_url(path) or error.errno is not None):
            raise InputError(f"{path} cannot be read{at}: {error.strerror or error}") from error
        raise InputError(f"{path} is damaged{at}: {error}") from error
    except Exception as error:
        # The packages for other file systems may raise any type of error.
        if not is_url(path) or isinstance(error, InputError):
            raise
        raise InputError(f"{path} cannot be read{at}: {error}") from error


def expand(name: PathLike) -> list[str]:
    """Return the files of a path, a folder, a glob or a URL of these, as absolute paths or URLs.

    For a folder these are all files in it or in its folders. Names that begin with "_"
    or "." are skipped in folders, and in globs that do not name them.

    Raises
    ------
    InputError
        There are no files, or a folder has folders such as ``year=2024``.
    """
    return [path for path, keys in expand_keyed(name) if _has_no_key(path, keys)]


def expand_keyed(name: PathLike, kinds: Collection[str] | None = None) -> list[tuple[str, Keys]]:
    """Return the same files as `expand`, and those in folders such as ``year=2024``, with their keys and values."""
    if is_url(name):
        return [(file.path, file.keys) for file in _remote(name, kinds)]
    name = absolute(name)
    if os.path.isdir(name):
        with input_errors(name):
            found = list(_walk(_listed, name, kinds))
        if not found:
            raise InputError(f"{name}: this folder has no file{_of_kinds(kinds)}")
        return found
    if os.path.exists(name) or not glob.has_magic(name):
        return [(name, ())]
    paths = sorted(path for path in glob.glob(name, recursive=True) if _is_explicit(path, name))
    if "**" in name:
        paths = [path for path in paths if not any(map(_is_loop, PurePath(path).parents))]
    if not paths:
        raise InputError(f"{name}: no file matches")
    return [(path, ()) for path in paths]


def _listed(folder: str) -> list[tuple[str, bool]]:
    with os.scandir(folder) as entries:
        return [(entry.path, entry.is_dir()) for entry in entries if not (entry.is_symlink() and _is_loop(entry.path))]


def _is_loop(path: PathLike) -> bool:
    """Return whether a path is a link to a folder that contains it."""
    return os.path.islink(path) and PurePath(os.path.realpath(PurePath(path).parent)).is_relative_to(
        os.path.realpath(path)
    )


def _walk(
    listed: Callable[[str], list[tuple[str, bool]]], folder: str, kinds: Collection[str] | None, keys: Keys = ()
) -> Iterator[tuple[str, Keys]]:
    """Yield the files of a folder, then the files of its subfolders, both sorted by name.

    Raises
    ------
    InputError
        Files lie next to folders with files that are not named ``key=value``: one of them may be meant, or all.
    """
    entries = [each for each in sorted(listed(folder)) if not PurePath(each[0]).name.startswith(HIDDEN)]
    has_files = False
    for path, is_folder in entries:
        if not is_folder and (kinds is None or suffix(path) in kinds or File(path, 0).inner_suffix in kinds):
            has_files = True
            yield path, keys
    for path, is_folder in entries:
        if not is_folder:
            continue
        key, is_key, value = PurePath(path).name.partition("=")
        if is_key:
            text = None if value == NO_KEY else unquote(value)
            yield from _walk(listed, path, kinds, (*keys, (unquote(key), text)))
            continue
        for found in _walk(listed, path, kinds, keys):
            if has_files:
                parent = folder.rstrip("/")
                raise InputError(
                    f"{parent} has files, and its folder {PurePath(path).name} has others such as {found[0]}: expected "
                    f"{parent}/*.* for the files, or {parent}/**/*.* for all"
                )
            yield found


def _has_no_key(path: str, keys: Keys) -> bool:
    """Raise InputError if the name of a file's folder is a column, such as ``year=2024``."""
    if keys:
        folder = PurePath(path).parents[len(keys)]
        raise InputError(
            f"{folder}: this folder has folders such as {PurePath(path).parents[len(keys) - 1].name}, whose names are "
            f"the column {keys[0][0]!r}, which is only read with tables: expected {folder}/*/*, without this column"
        )
    return True


def _is_explicit(path: str, pattern: str) -> bool:
    """Return whether a matching path has no hidden name, or the pattern itself names hidden files."""
    # The names before the first wildcard are the same in both.
    fixed = next(at for at, name in enumerate(PurePath(pattern).parts) if glob.has_magic(name))
    pattern_hidden, path_hidden = (
        any(name.startswith(HIDDEN) for name in PurePath(it).parts[fixed:]) for it in (pattern, path)
    )
    return pattern_hidden or not path_hidden


def size_bytes(path: str) -> int:
    """Return the stored size of a file.

    Raises
    ------
    InputError
        The file does not exist, is a pipe, or has no known size.
    """
    with input_errors(path):
        if is_url(path):
            return _known_size(path, file_system(path)[0].info(path))
        return _size_bytes(path)


def version(path: str) -> Hashable:
    """Return a value that changes when the file changes, as far as its file system reports changes.

    Raises
    ------
    InputError
        It does not exist.
    """
    with input_errors(path):
        if is_url(path):
            system, name = file_system(path)
            entry = system.info(name)
            return tuple(str(entry.get(key)) for key in VERSION_ATTRIBUTES)
        status = os.stat(path)
        return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def unpacked_bytes(file: File) -> int:
    """Return the decompressed size of a file. A compressed file is read for this."""
    if file.compression is None:
        return file.size_bytes
    with opened(file.path, file.compression) as stream, input_errors(file.path):
        return sum(map(len, iter(lambda: stream.read(READ_BYTES), b"")))


def _local(path: PathLike) -> list[File]:
    files = []
    for name, keys in expand_keyed(path):
        with input_errors(name):
            files.append(File(name, _size_bytes(name), keys))
    return files


def _size_bytes(path: str) -> int:
    """Return the size of a local file that supports reading from any position."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        raise InputError(f"{path} is a pipe or a device, which only one reader can read: copy it to a file first")
    if status.st_size == 0:
        with open(path, "rb") as file:
            if file.read(1):
                raise InputError(f"{path} does not report its length: copy it to another file first")
    return status.st_size


def _remote(url: str, kinds: Collection[str] | None = None) -> list[File]:
    if url.startswith("file://"):
        local = url.removeprefix("file://").removeprefix("localhost")
        # URLs have escaped characters, as in a%20b, but the names of files may have a %, too.
        url = "file://" + absolute(local if os.path.lexists(local) else unquote(local))
    with input_errors(url):
        system, name = file_system(url)
        if "file" in (system.protocol if isinstance(system.protocol, tuple) else (system.protocol,)):
            return [File(path, _size_bytes(path), keys) for path, keys in expand_keyed(name, kinds)]
        entries = _entries(system, url, name, kinds)
    # Names are paths without host in some file systems, and whole URLs in others.
    head = url.rstrip("/").removesuffix(name.rstrip("/"))
    return [File(head + entry["name"], _known_size(entry["name"], entry), keys) for entry, keys in entries]


def _known_size(name: str, entry: dict[str, Any]) -> int:
    size: int | None = entry["size"]
    if size is None:
        raise InputError(f"{name}: its length is unknown: copy it to this machine first")
    return size


def _entries(
    system: fsspec.AbstractFileSystem, url: str, name: str, kinds: Collection[str] | None
) -> list[tuple[dict[str, Any], Keys]]:
    if glob.has_magic(name):
        matches = system.glob(name, detail=True).values()
        files = [each for each in matches if each["type"] == "file" and _is_explicit(each["name"], name)]
        if not files:
            raise InputError(f"{url}: no file matches")
        return [(entry, ()) for entry in sorted(files, key=lambda entry: str(entry["name"]))]
    entry = system.info(name)
    if entry["type"] == "file":
        return [(entry, ())]
    known: dict[str, dict[str, Any]] = {}

    def listed(folder: str) -> list[tuple[str, bool]]:
        found = {str(entry["name"]).rstrip("/"): entry for entry in system.ls(folder, detail=True)}
        known.update(found)
        return [(path, entry["type"] == "directory") for path, entry in found.items()]

    found = [(known[path], keys) for path, keys in _walk(listed, name, kinds)]
    if not found:
        raise InputError(f"{url}: no file{_of_kinds(kinds) or ' matches'}")
    return found


def _of_kinds(kinds: Collection[str] | None) -> str:
    return "" if kinds is None else f" of a known kind ({', '.join(kinds)})"
