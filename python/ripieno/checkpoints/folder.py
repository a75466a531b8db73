"""Store checkpoints of a job in a folder: iteration, states of the ranks, and facts that identify the job.

The folder of a job holds a manifest and the blobs that it names by the BLAKE2 digest of their content. A new checkpoint
is durable before any file of the last one is removed: first the blobs, then the manifest, each written to a temporary
name, synced and renamed. So a complete checkpoint exists at any time, even if the process or machine stops. The first
line of the manifest is a digest of the rest. All digests are verified before any data is used. Older checkpoints are
kept under names with their age. If the last one is torn, the next older one is loaded.
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
from pathlib import Path
from typing import Any

from ripieno import log
from ripieno.checkpoints.values import PICKLE, Blob, blob_names, decode, encode
from ripieno.errors import CheckpointError, InputError
from ripieno.files import disk
from ripieno.files.owners import WRITING, access_problem
from ripieno.files.results import explain

FORMAT = 1
MANIFEST = "manifest"
DIGEST_BYTES = 32
_OLDER = re.compile(MANIFEST + r"-[1-9][0-9]{0,5}")
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_BLOB = re.compile(r"[0-9a-f]{64}\.(npy|pickle)")
_HEAD = re.compile(rb"ripieno checkpoint (\d+) ([0-9a-f]{64})\n")


@dataclass(frozen=True)
class CheckpointContents:
    """Contents of a checkpoint: iterations done, the states of the ranks, and the facts that identify their job."""

    iteration: int
    result: Any
    state: dict[Any, Any]


class _Torn(CheckpointError):
    """A file of a checkpoint is torn or missing. An older checkpoint may be complete."""


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
        Whether to load it even if other users own the folder or can write to it.

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
        # The blobs of each checkpoint in the folder, the last one first.
        self._saved: list[set[str]] = []
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
            for name in self._manifests():
                try:
                    manifest, names = self._manifest(name)
                    if found is None:
                        found = self._contents(name, manifest, names)
                except _Torn as error:
                    torn.append(error)
                    continue
                complete.append(name)
                self._saved.append(names)
            if found is None and torn:
                raise torn[0]
            for age, name in enumerate(complete):
                disk.rename(self.folder / name, self.folder / _manifest_name(age))
            for name in self._manifests()[len(complete) :]:
                disk.remove(self.folder / name)
            self._sweep()
        for each in torn:
            text = f"{str(each).partition(': delete')[0]}; an older one is used"
            log.note("ripieno.checkpoints", text)
            log.warn(text)
        return found

    def _manifests(self) -> list[str]:
        """Return the names of all manifests, the last one first."""
        older = [entry.name for entry in self.folder.iterdir() if _OLDER.fullmatch(entry.name)]
        last = [MANIFEST] if (self.folder / MANIFEST).exists() or (self.folder / MANIFEST).is_symlink() else []
        return last + sorted(older, key=lambda name: int(name.partition("-")[2]))

    def _contents(self, name: str, manifest: dict[str, Any], names: set[str]) -> CheckpointContents:
        content = {name: self._blob(name) for name in names}
        try:
            return CheckpointContents(manifest["iteration"], *decode(manifest["values"], content.__getitem__))
        except Exception as error:
            raise self._refused(self.folder / name, f"holds an object that cannot be made again: {error}") from error

    def _blob_names(self, path: Path, manifest: dict[str, Any]) -> set[str]:
        """Return the names of the files in the manifest. All lie in the folder."""
        try:
            names = set(blob_names(manifest["values"]))
            unexpected = next((name for name in names if not _BLOB.fullmatch(name)), None)
        except (KeyError, RecursionError, TypeError, ValueError) as error:
            raise self._refused(path, f"is damaged: {type(error).__name__}: {error}") from error
        if unexpected is not None:
            raise self._refused(path, f"is damaged: it names the file {unexpected!r}")
        if not self._objects and any(name.endswith(PICKLE) for name in names):
            raise self._refused(path, "holds a pickle, which could run code, where arrays and numbers belong")
        return names

    def save(self, saved: CheckpointContents) -> None:
        """Replace the last checkpoint by `saved`.

        Raises
        ------
        CheckpointError
            It cannot be written. Only the last checkpoint remains, if one exists.
        SerializationError
            Part of it cannot be serialized. Only the last checkpoint remains, if one exists.
        """
        blobs: dict[str, Blob] = {}

        def keep(blob: Blob) -> str:
            name = f"{_digest(blob[1])}{blob[0]}"
            blobs[name] = blob
            return name

        body = {
            "name": self._name,
            "program": self._program,
            "iteration": saved.iteration,
            "values": encode((saved.result, saved.state), keep, objects=self._objects),
        }
        text = json.dumps(body, indent=1).encode()
        if self._manifests():
            fallback = "the last one is still there, from which the job resumes when it is started again"
        else:
            fallback = "there is none before it, so the job starts from the beginning when it is started again"
        try:
            with self._checkpoint_errors("the new checkpoint in", f"; {fallback}"):
                for name in blobs.keys() - self._used():
                    self._write(name, blobs[name][1])
                disk.sync(self.folder)
                self._rotate_manifests()
                self._write(MANIFEST, [f"ripieno checkpoint {FORMAT} {_digest([text])}\n".encode(), text])
                # Until the new manifest is durable, a later process may find either of them.
                self._saved.insert(0, set(blobs))
                disk.sync(self.folder)
                del self._saved[self._keep :]
        finally:
            self._sweep()

    def _used(self) -> set[str]:
        """Return the names of the blobs of all checkpoints."""
        return {name for names in self._saved for name in names}

    def _rotate_manifests(self) -> None:
        """Rename the manifests to keep, and remove older ones. The next checkpoint replaces the last manifest."""
        for age, name in reversed(list(enumerate(self._manifests(), start=1))):
            if age < self._keep:
                disk.rename(self.folder / name, self.folder / _manifest_name(age))
            elif name != MANIFEST:
                disk.remove(self.folder / name)

    def close(self) -> None:
        """Release the lock, so that other processes can open the folder."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def _manifest(self, name: str) -> tuple[dict[str, Any], set[str]]:
        """Return a manifest and the names of its blobs."""
        path = self.folder / name
        data = self._read(name)
        head = None if data is None else _HEAD.match(data)
        if data is None or head is None:
            raise self._refused(path, "is torn, or no checkpoint of Ripieno: its first line is wrong", _Torn)
        version, digest = int(head[1]), head[2].decode()
        if version != FORMAT:
            raise self._refused(path, f"has format {version}, and this Ripieno reads format {FORMAT}")
        text = data[head.end() :]
        if _digest([text]) != digest:
            raise self._refused(path, "is torn: its checksum is wrong", _Torn)
        try:
            manifest: dict[str, Any] = json.loads(text)
            manifest["name"], manifest["program"], manifest["iteration"]
        except (KeyError, RecursionError, TypeError, ValueError) as error:
            raise self._refused(path, f"is damaged: {type(error).__name__}: {error}") from error
        if manifest["name"] != self._name:
            raise self._refused(path, f"is of the job {manifest['name']!r}, not of {self._name!r}")
        if manifest["program"] != self._program:
            reason = "is of another program: map, reduce, combine or collect were other functions, or had other data"
            raise self._refused(path, reason)
        return manifest, self._blob_names(path, manifest)

    def _blob(self, name: str) -> bytes:
        path = self.folder / name
        content = self._read(name)
        if content is None:
            raise self._refused(path, "is missing", _Torn)
        if _digest([content]) != name.partition(".")[0]:
            raise self._refused(path, f"is torn: the checksum of its {len(content)} bytes is wrong", _Torn)
        return content

    def _check_owner(self, descriptor: int) -> None:
        reason = access_problem(os.fstat(descriptor), WRITING)
        if reason is not None:
            raise CheckpointError(
                f"{self.folder} {reason}: its files may belong to another user; name another folder, or, if it is "
                f"your own, `chown` it to yourself and `chmod go-w {self.folder}`"
            )

    def _read(self, name: str) -> bytes | None:
        """Return the content of a file in the open folder, or None if it does not exist."""
        assert self._lock is not None, "the folder is open"
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._lock)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise self._refused(self.folder / name, "is a symbolic link, not a file of a checkpoint") from error
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise self._refused(self.folder / name, "is not a file")
            return file.read()

    def _refused(self, path: Path, reason: str, kind: type[CheckpointError] = CheckpointError) -> CheckpointError:
        return kind(f"{path} {reason}: delete {self.folder} to start again, or give the job another name")

    def _write(self, name: str, pieces: list[Any]) -> None:
        part = self.folder / f".{name}.part"
        with disk.create(part) as file:
            for piece in pieces:
                file.write(piece)
        disk.publish(part, self.folder / name)

    def _sweep(self) -> None:
        """Remove files that no checkpoint refers to, from older and unfinished checkpoints."""
        used = self._used()
        for entry in list(self.folder.iterdir()):
            name = entry.name
            if (_BLOB.fullmatch(name) and name not in used) or (name.startswith(".") and name.endswith(".part")):
                with suppress(OSError):
                    disk.remove(entry)

    @contextmanager
    def _checkpoint_errors(self, what: str = "the checkpoint", state: str = "") -> Iterator[None]:
        try:
            yield
        except BlockingIOError:
            raise
        except OSError as error:
            raise CheckpointError(f"{what} {self.folder}: {explain(error)}{state}") from error


def _manifest_name(age: int) -> str:
    return MANIFEST if age == 0 else f"{MANIFEST}-{age}"


def _digest(pieces: list[Any]) -> str:
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()
