"""Store checkpoints of a job in a folder: iteration, states of the ranks, and facts that identify the job.

A checkpoint is one file. Its first line names the format. The second line is a JSON object: the name of the job, the
fingerprint of its program, the iteration, the values as `ripieno.checkpoints.values` encodes them, and the sizes of the
blobs in bytes. The blobs follow: .npy files, and pickles if the job allows objects. The last 32 bytes are the
BLAKE2b digest of all bytes before. The digest is verified before any data is used.

A new checkpoint is written to a temporary name, synced and renamed, so a complete checkpoint exists at any time, even
if the process or machine stops. Older checkpoints are kept under names with their age. If the last one is torn, the
next older one is loaded.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from ripieno import log
from ripieno.checkpoints.values import Blob, decode, encode
from ripieno.errors import CheckpointError, InputError
from ripieno.files import disk
from ripieno.files.owners import WRITING, access_problem
from ripieno.files.results import explain

FORMAT = 2
#: Name of the file of the last checkpoint.
FILE = "checkpoint"
DIGEST_BYTES = 32
_PIECE_BYTES = 1 << 20
_OLDER = re.compile(FILE + r"-[1-9][0-9]{0,5}")
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_HEAD = re.compile(rb"ripieno checkpoint (\d+)\n")
_HEAD_BYTES_MAX = 64


@dataclass(frozen=True)
class CheckpointContents:
    """Contents of a checkpoint: iterations done, the states of the ranks, and the facts about their job."""

    iteration: int
    result: Any
    state: dict[Any, Any]


class _Torn(CheckpointError):
    """A checkpoint is torn. An older one may be complete."""


class Checkpoints:
    """The checkpoint folder of a job. Only one process at a time can open it.

    Parameters
    ----------
    folder : Path
        Parent folder, with one folder per job. It is created if necessary.
    name : str
        Name of the job.
    program : str
        Fingerprint of the job's functions.
    objects : bool
        Whether objects are allowed. Objects are pickles, and loading a pickle can run any code.
    keep : int
        Number of checkpoints to keep.
    trusted : bool
        Whether to load checkpoints even if other users own the folder or can write to it.

    Raises
    ------
    CheckpointError
        Another process has it open, the folder cannot be created, or other users may have written its files.
    """

    def __init__(
        self, folder: Path, name: str, program: str, *, objects: bool = True, keep: int = 1, trusted: bool = False
    ) -> None:
        if not _NAME.fullmatch(name):
            raise InputError(f"name={name!r}: expected letters, digits, '-', '_' and '.', at most 100, no '.' in front")
        self.folder = folder / name
        self._name = name
        self._program = program
        self._objects = objects
        self._keep = keep
        with self._checkpoint_errors():
            # The umask of some users lets their group write to new folders.
            disk.make_folders(self.folder, 0o777 & ~WRITING)
            self._lock: int | None = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with self._checkpoint_errors():
                if not trusted:
                    self._check_owner(self._lock)
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            message = f"{self.folder} is in use by another process: wait for it, or give this job another name"
            raise CheckpointError(message) from None
        except CheckpointError:
            self.close()
            raise

    def load(self) -> CheckpointContents | None:
        """Return the last checkpoint that is not torn, or None if none exists.

        Raises
        ------
        CheckpointError
            All are torn, or the last one that is not is damaged, belongs to another job, program or format, or holds
            objects that are not allowed.
        """
        found: CheckpointContents | None = None
        complete: list[str] = []
        torn: list[_Torn] = []
        with self._checkpoint_errors():
            names = self._names()
            for name in names:
                try:
                    if found is None:
                        with self._opened(name) as file:
                            found = self._contents(name, file, *self._manifest(name, file))
                    complete.append(name)
                except _Torn as error:
                    torn.append(error)
            if found is None and torn:
                raise torn[0]
            for name in names:
                if name not in complete:
                    disk.remove(self.folder / name)
            for age, name in enumerate(complete):
                disk.rename(self.folder / name, self.folder / _file_name(age))
            self._sweep()
        for each in torn:
            text = f"{str(each).partition(': delete')[0]}; an older one is used"
            log.note("ripieno.checkpoints", text)
            log.warn(text)
        return found

    def _names(self) -> list[str]:
        """Return the names of the files of all checkpoints, the last one first."""
        older = [entry.name for entry in self.folder.iterdir() if _OLDER.fullmatch(entry.name)]
        last = [FILE] if (self.folder / FILE).exists() or (self.folder / FILE).is_symlink() else []
        return last + sorted(older, key=lambda name: int(name.partition("-")[2]))

    def _contents(self, name: str, file: BinaryIO, manifest: dict[str, Any], sizes: list[int]) -> CheckpointContents:
        first = file.tell()

        def blob(number: int) -> BinaryIO:
            file.seek(first + sum(sizes[:number]))
            return file

        try:
            contents = decode(manifest["values"], blob, objects=self._objects)
            return CheckpointContents(manifest["iteration"], *contents)
        except CheckpointError as error:
            raise self._refused(self.folder / name, str(error)) from None
        except Exception as error:
            raise self._refused(self.folder / name, f"holds an object that cannot be made again: {error}") from error

    def save(self, saved: CheckpointContents) -> None:
        """Replace the last checkpoint by `saved`.

        Raises
        ------
        CheckpointError
            It cannot be written. The last checkpoint remains, if one exists.
        SerializationError
            Part of it cannot be serialized. The checkpoints do not change.
        """
        blobs: list[Blob] = []

        def keep(blob: Blob) -> int:
            blobs.append(blob)
            return len(blobs) - 1

        values = encode((saved.result, saved.state), keep, objects=self._objects)
        body = {"name": self._name, "program": self._program, "iteration": saved.iteration}
        body |= {"sizes": [sum(len(piece) for piece in blob) for blob in blobs], "values": values}
        text = [f"ripieno checkpoint {FORMAT}\n".encode(), json.dumps(body).encode(), b"\n"]
        if self._names():
            fallback = "the last one is still there, from which the job resumes when it is started again"
        else:
            fallback = "there is none before it, so the job starts from the beginning when it is started again"
        try:
            with self._checkpoint_errors("the new checkpoint in", f"; {fallback}"):
                part = self.folder / f".{FILE}.part"
                digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
                with disk.create(part) as file:
                    for piece in chain(text, *blobs):
                        digest.update(piece)
                        file.write(piece)
                    file.write(digest.digest())
                for age, name in reversed(list(enumerate(self._names(), start=1))):
                    if age < self._keep:
                        disk.rename(self.folder / name, self.folder / _file_name(age))
                    elif name != FILE:
                        disk.remove(self.folder / name)
                disk.publish(part, self.folder / FILE)
                disk.sync(self.folder)
        finally:
            self._sweep()

    def close(self) -> None:
        """Release the lock, so that other processes can open the folder."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def _manifest(self, name: str, file: BinaryIO) -> tuple[dict[str, Any], list[int]]:
        """Verify a checkpoint; return its JSON object and the sizes of its blobs. The blobs follow in `file`."""
        path = self.folder / name
        head = _HEAD.match(file.readline(_HEAD_BYTES_MAX))
        if head is None:
            raise self._refused(path, "is torn, or no checkpoint of Ripieno: its first line is wrong", _Torn)
        if int(head[1]) != FORMAT:
            raise self._refused(path, f"has format {int(head[1])}, and this Ripieno reads format {FORMAT}")
        self._verify(path, file)
        file.seek(head.end())
        try:
            manifest: dict[str, Any] = json.loads(file.readline())
            sizes = [int(size) for size in manifest["sizes"]]
            manifest["name"], manifest["program"], manifest["iteration"], manifest["values"]
        except (KeyError, RecursionError, TypeError, ValueError) as error:
            raise self._refused(path, f"is damaged: {type(error).__name__}: {error}") from error
        if manifest["name"] != self._name:
            raise self._refused(path, f"is of the job {manifest['name']!r}, not of {self._name!r}")
        if manifest["program"] != self._program:
            reason = "is of another program: map, reduce, combine or collect were other functions, or had other data"
            raise self._refused(path, reason)
        return manifest, sizes

    def _verify(self, path: Path, file: BinaryIO) -> None:
        """Raise an error if the last bytes are not the digest of all bytes before."""
        digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        size_bytes = file.seek(0, os.SEEK_END)
        left_bytes = size_bytes - DIGEST_BYTES
        file.seek(0)
        while left_bytes > 0 and (piece := file.read(min(_PIECE_BYTES, left_bytes))):
            digest.update(piece)
            left_bytes -= len(piece)
        if left_bytes or file.read() != digest.digest():
            raise self._refused(path, f"is torn: the checksum of its {size_bytes} bytes is wrong", _Torn)

    def _check_owner(self, descriptor: int) -> None:
        reason = access_problem(os.fstat(descriptor), WRITING)
        if reason is not None:
            raise CheckpointError(
                f"{self.folder} {reason}: its files may belong to another user; name another folder, or, if it is "
                f"your own, `chown` it to yourself and `chmod go-w {self.folder}`"
            )

    @contextmanager
    def _opened(self, name: str) -> Iterator[BinaryIO]:
        """Open a file in the open folder."""
        assert self._lock is not None, "the folder is open"
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._lock)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise self._refused(self.folder / name, "is a symbolic link, not a file of a checkpoint") from error
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise self._refused(self.folder / name, "is not a file")
            yield file

    def _refused(self, path: Path, reason: str, kind: type[CheckpointError] = CheckpointError) -> CheckpointError:
        return kind(f"{path} {reason}: delete {self.folder} to start again, or give the job another name")

    def _sweep(self) -> None:
        """Remove an unfinished file."""
        with suppress(OSError):
            disk.remove(self.folder / f".{FILE}.part")

    @contextmanager
    def _checkpoint_errors(self, subject: str = "the checkpoint", state: str = "") -> Iterator[None]:
        try:
            yield
        except BlockingIOError:
            raise
        except OSError as error:
            raise CheckpointError(f"{subject} {self.folder}: {explain(error)}{state}") from error


def _file_name(age: int) -> str:
    return FILE if age == 0 else f"{FILE}-{age}"
