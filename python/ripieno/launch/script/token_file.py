"""Provide the transfer of a job's token from rank 0 to the other ranks, in a file that only their user can read.

Rank 0 holds a lock on the file while the ranks join. The lock of an earlier job ends with its rank 0, so its file is
never used. The file appears atomically, and is removed after the ranks have joined.
Requires a file system with locks (`flock`) and hard links: every local one, NFS, Lustre, GPFS.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import secrets
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ripieno.errors import RendezvousError
from ripieno.files import disk
from ripieno.files.owners import ANY_ACCESS, access_problem
from ripieno.launch.deadline import pauses
from ripieno.launch.limits import SHUTDOWN_S

logger = logging.getLogger("ripieno.launch")

_SECRET_BYTES = 32
# Names of a job's entries in a shared directory: its token, under its identity, and the folder of the native exchange.
_TOKEN = re.compile("token-[0-9a-f]{16}")
_FOLDER = re.compile("ripieno-[0-9a-f]{16}-[0-9a-f]{16}")


@contextmanager
def directory_of_job(path: Path) -> Iterator[None]:
    """Create, on rank 0, a directory that only this user can access, and remove it with its contents at the end.

    Raises
    ------
    RendezvousError
        If the directory exists and belongs to another user, is open to others, or belongs to a live rank 0.
    """
    descriptor = _locked_folder(path)
    try:
        yield
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def _locked_folder(path: Path) -> int:
    """Return a descriptor of the folder, created if missing. If the file system has locks, rank 0 holds one on it."""
    # Another job may remove the folder, which takes it less than this time.
    for _ in pauses(SHUTDOWN_S):
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        try:
            check_private(path)
            for token in path.glob("token*"):
                _check_unused(token)
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            # Another job has found the folder unused and removed it.
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        except OSError:
            # A network file system may not support locks on folders. Then folders without a token are never removed.
            return descriptor
        with suppress(FileNotFoundError):
            if os.path.samestat(path.lstat(), os.fstat(descriptor)):
                return descriptor
        os.close(descriptor)
    raise _in_use_error(path)


def check_private(path: Path) -> None:
    """Raise `RendezvousError` unless `path` is a directory that only this user can access."""
    found = path.lstat()
    reason = access_problem(found, ANY_ACCESS) if stat.S_ISDIR(found.st_mode) else "is not a directory"
    if reason is not None:
        raise RendezvousError(
            f"{path}: not a directory of this user alone: an entry with this name {reason}; remove it, or set "
            "RIPIENO_DIRECTORY to another"
        )


def secret_of_user() -> bytes:
    """Return random bytes that only this user can read, equal on each call; empty if the user has no writable folder.

    Raises
    ------
    RendezvousError
        If other users can read or may have written the file, or it is damaged.
    """
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ripieno"
        disk.make_folders(folder)
        path = folder / "rendezvous-secret"
        if not path.exists():
            _make_secret(path)
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except (OSError, RuntimeError) as error:
        logger.info("no secret for the names of rendezvous folders: %s", error)
        return b""
    with open(descriptor, "rb") as file:
        reason = access_problem(os.fstat(descriptor), ANY_ACCESS)
        if reason is not None:
            raise RendezvousError(f"{path} {reason}: another user may have created it; remove it")
        secret = file.read(_SECRET_BYTES + 1)
    if len(secret) != _SECRET_BYTES:
        raise RendezvousError(f"{path} is damaged: {len(secret)} bytes, expected {_SECRET_BYTES}; remove it")
    return secret


def _make_secret(path: Path) -> None:
    descriptor, hidden = tempfile.mkstemp(prefix=".secret-", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_SECRET_BYTES))
        # Sync first: after a power loss, an empty file would be a known secret.
        disk.sync(hidden)
        with suppress(FileExistsError):
            os.link(hidden, path)
    finally:
        os.unlink(hidden)


def remove_abandoned(parent: Path, prefix: str) -> None:
    """Remove entries in `parent` of this user's jobs with ranks that were killed while they joined."""
    for path in parent.glob(f"{prefix}*"):
        with suppress(OSError, RendezvousError):
            tokens = [each for each in path.iterdir() if each.name.startswith("token")]
            check_private(path)
            if tokens and not any(map(_is_held, tokens)):
                shutil.rmtree(path)
            elif not tokens:
                _remove_unlocked(path)


def _remove_unlocked(path: Path) -> None:
    """Remove a folder without a token after its rank 0 has died; raise OSError if it lives or folders have no locks."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path)
    finally:
        os.close(descriptor)


def remove_abandoned_shared(directory: Path) -> None:
    """Remove entries of a shared directory that have a job's name and a lock without a holder."""
    for path in directory.iterdir():
        with suppress(OSError, RendezvousError):
            if _TOKEN.fullmatch(path.name) and not _is_held(path):
                path.unlink()
            elif _FOLDER.fullmatch(path.name) and _is_abandoned(path):
                shutil.rmtree(path)


@contextmanager
def exchange_token(path: Path, rank: int, timeout_s: float, *, own: bool = False) -> Iterator[str]:
    """Yield the token, which rank 0 creates and writes to the file `path`. Rank 0 removes the file at the end.

    With `own` the folder belongs to this job, and only its user may access it.

    Raises
    ------
    RendezvousError
        If no token has arrived within `timeout_s`, or the file belongs to another user or job.
    """
    if rank == 0:
        with _create_token(path) as token:
            yield token
    else:
        yield _await_token(path, rank, timeout_s, own=own)


@contextmanager
def _create_token(path: Path) -> Iterator[str]:
    token = secrets.token_hex(32)
    hidden = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}")
    descriptor = os.open(hidden, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with open(descriptor, "wb", closefd=False) as file:
                file.write(token.encode())
            # A network file system may show the name before the contents.
            os.fsync(descriptor)
            _publish(hidden, path)
        finally:
            hidden.unlink()
        try:
            yield token
        finally:
            path.unlink()
    finally:
        os.close(descriptor)


def _publish(hidden: Path, path: Path) -> None:
    if path.exists():
        _check_unused(path)
        path.unlink()
    path.hardlink_to(hidden)


def _check_unused(path: Path) -> None:
    if _is_held(path):
        raise _in_use_error(path)


def _in_use_error(path: Path) -> RendezvousError:
    return RendezvousError(
        f"{path}: another job connects here; give each its own RIPIENO_DIRECTORY, or its own RIPIENO_TOKEN"
    )


def _await_token(path: Path, rank: int, timeout_s: float, *, own: bool) -> str:
    # A shared file system does not notify of new files.
    for _ in pauses(timeout_s):
        is_visible = _is_listed(path.parent)
        if is_visible and own:
            with suppress(FileNotFoundError):
                check_private(path.parent)
        token = _token_in(path) if is_visible and _is_listed(path) else None
        if token:
            return token
    raise RendezvousError(
        f"rank {rank} on {socket.gethostname()}: rank 0 did not write the job's token to {path} within "
        f"{timeout_s:g} s: it did not start, or its host does not share this directory; set RIPIENO_DIRECTORY to one "
        "that all hosts share, or RIPIENO_TOKEN, MASTER_ADDR and MASTER_PORT"
    )


def _is_listed(path: Path) -> bool:
    # A network file system may cache the absence of a name, but not the list of a directory.
    try:
        return path.name in os.listdir(path.parent)
    except FileNotFoundError:
        return False


def _is_abandoned(folder: Path) -> bool:
    """Return whether the folder belongs to this user and all its ranks have died. Rank 0 locks a file there first."""
    if folder.lstat().st_uid != os.geteuid():
        return False
    locks = [path for path in folder.iterdir() if path.suffix == ".lock"]
    return any(path.name == "rank-0.lock" for path in locks) and not any(map(_is_locked, locks))


def _is_locked(path: Path) -> bool:
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW)) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def _is_held(path: Path) -> bool:
    return _token_in(path) is not None


def _token_in(path: Path) -> str | None:
    """Return the token in a file with a live rank 0, or None; empty if the contents are not visible yet."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RendezvousError(f"{path}: cannot be read as this job's token: {error.strerror}") from None
    with open(descriptor) as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or access_problem(found, ANY_ACCESS):
            raise RendezvousError(f"{path}: not a file of this user alone: another user has created it; remove it")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read()
        return None
