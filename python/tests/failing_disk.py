"""A double of the system calls in `ripieno.files.disk`, which fail, and lose unsynced changes when the power fails.

The changes go to real files below a folder. The double also records them. `lose_power` then rewrites the folder as a
power loss may leave it: contents as of their last sync and names as of the last sync of their folder, with any of the
later changes.
"""

from __future__ import annotations

import errno
import io
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

from ripieno.files import disk

#: The errors of each kind of call.
ERRORS = {
    "create": (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE),
    "write": (errno.ENOSPC, errno.EDQUOT, errno.EIO),
    "sync": (errno.EIO, errno.ENOSPC, errno.EDQUOT),
    "rename": (errno.EIO, errno.ENOSPC, errno.EACCES),
    "link": (errno.EIO, errno.ENOSPC, errno.EMLINK),
    "folder": (errno.ENOSPC, errno.EDQUOT, errno.EIO),
    "remove": (errno.EIO, errno.EACCES),
}
FULL = (errno.ENOSPC, errno.EDQUOT)


class PowerLoss(BaseException):
    """The process ends here, like every later call of the double."""


class _File:
    """Contents as of the last sync, and later writes: position and bytes, or a new length and None."""

    def __init__(self, content: bytes = b"") -> None:
        self.durable, self.pending, self.unconfirmed = content, [], []

    def sync(self) -> None:
        for change in self.pending:
            self.durable = _changed(self.durable, change)
        self.pending = []

    def fail_sync(self) -> None:
        # The kernel forgets these writes: a later sync succeeds without them.
        self.unconfirmed, self.pending = self.unconfirmed + self.pending, []

    def after_loss(self, chance: random.Random, kept: float) -> bytes:
        content = self.durable
        for change in self.unconfirmed + self.pending:
            if chance.random() < kept:
                content = _changed(content, change)
        return content


class _Folder:
    """Entries as of the last sync, and the later changes of entries."""

    def __init__(self) -> None:
        self.durable: dict[str, Any] = {}
        self.current: dict[str, Any] = {}
        self.pending: list[dict[str, Any]] = []

    def change(self, entries: dict[str, Any]) -> None:
        """Set entries in one step. None removes an entry."""
        _update(self.current, entries)
        self.pending.append(entries)

    def sync(self) -> None:
        self.durable, self.pending = dict(self.current), []

    def fail_sync(self) -> None:
        """Keep the changes: a later sync may still write them."""

    def after_loss(self, chance: random.Random, kept: float) -> dict[str, Any]:
        entries = dict(self.durable)
        for change in self.pending:
            if chance.random() < kept:
                _update(entries, change)
        return entries


class FailingDisk:
    """The system calls of `ripieno.files.disk` below the folder `root`.

    Parameters
    ----------
    root : Path
    fail_at : int or None
        Number of the call that fails, in the order of calls.
    power_loss_at : int or None
        Number of the call before which the power fails.
    chance : random.Random
        Decides about the error, the lengths of short writes, and the changes that survive a power loss.
    exchanges : bool
        Whether the file system can exchange two names.
    """

    def __init__(
        self,
        root: Path,
        chance: random.Random,
        *,
        fail_at: int | None = None,
        power_loss_at: int | None = None,
        exchanges: bool = True,
    ) -> None:
        self._root, self._chance = root, chance
        self._fail_at, self._power_loss_at, self._exchanges = fail_at, power_loss_at, exchanges
        self._is_short = chance.random() < 0.3
        self._repeated: tuple[str, int] | None = None
        self._descriptors: dict[int, Any] = {}
        self._tree = self._adopted(root)
        self.call_count = 0
        #: Kinds of the calls that failed.
        self.failed: set[str] = set()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Replace the system calls of the module."""
        calls = {"os": self, "shutil": self, "open": self._open, "exchange": self._exchange}
        with mock.patch.multiple(disk, create=True, **calls):
            yield

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name) if hasattr(os, name) else getattr(shutil, name)

    def lose_power(self) -> None:
        """Rewrite the folder as a power loss may leave it."""
        kept = self._chance.choice((0.0, 1.0, 0.5, 0.5))
        for entry in self._root.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        self._write_tree(self._tree, self._root, kept)

    def _write_tree(self, folder: _Folder, path: Path, kept: float) -> None:
        for name, node in folder.after_loss(self._chance, kept).items():
            if isinstance(node, _Folder):
                (path / name).mkdir()
                self._write_tree(node, path / name, kept)
            else:
                (path / name).write_bytes(node.after_loss(self._chance, kept))

    def _adopted(self, path: Path) -> Any:
        """Return a model of existing files, as durable."""
        if not path.is_dir():
            return _File(path.read_bytes())
        folder = _Folder()
        folder.durable = {entry.name: self._adopted(entry) for entry in path.iterdir()}
        folder.current = dict(folder.durable)
        return folder

    def _is_inside(self, path: Any) -> bool:
        return self._root in (Path(path), *Path(path).parents)

    def _node(self, path: Any) -> Any:
        node = self._tree
        for name in Path(path).relative_to(self._root).parts:
            if name not in node.current:
                # Native code has created this file.
                node.change({name: _File()})
            node = node.current[name]
        return node

    def _place(self, path: Any) -> tuple[_Folder, str]:
        return self._node(Path(path).parent), Path(path).name

    def _step(self, kind: str) -> None:
        """Count a call, and fail as planned."""
        number, self.call_count = self.call_count, self.call_count + 1
        if self._power_loss_at is not None and number >= self._power_loss_at:
            raise PowerLoss
        if number == self._fail_at:
            code = self._chance.choice(ERRORS[kind])
            if code in FULL or self._chance.random() < 0.3:
                # A full disk stays full, and a broken call stays broken.
                self._repeated = (kind, code)
        elif self._repeated is not None and kind == self._repeated[0]:
            code = self._repeated[1]
        else:
            return
        self.failed.add(kind)
        raise OSError(code, os.strerror(code))

    # Calls of the module, by the names of `os`, `shutil` and `open`.

    def _open(self, path: Any, mode: str) -> Any:
        if mode == "rb" or not self._is_inside(path):
            return open(path, mode)
        if mode != "r+b":
            if mode == "wb" and os.path.exists(path):
                self._step("write")
                self._node(path).pending.append((0, None))
            else:
                self._step("create")
                folder, name = self._place(path)
                folder.change({name: _File()})
        raw = _RawFile(path, mode.replace("b", ""), self, self._node(path))
        return io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)

    def open(self, path: Any, flags: int) -> int:
        descriptor = os.open(path, flags)
        if self._is_inside(path):
            self._descriptors[descriptor] = self._node(path)
        return descriptor

    def close(self, descriptor: int) -> None:
        self._descriptors.pop(descriptor, None)
        os.close(descriptor)

    def fsync(self, descriptor: int) -> None:
        node = self._descriptors.get(descriptor)
        if node is None:
            return
        try:
            self._step("sync")
        except OSError:
            node.fail_sync()
            raise
        node.sync()

    def replace(self, old: Any, new: Any) -> None:
        self._step("rename")
        (folder, old_name), (target, new_name) = self._place(old), self._place(new)
        assert folder is target, "a rename between folders is two changes"
        os.replace(old, new)
        folder.change({old_name: None, new_name: folder.current[old_name]})

    rename = replace

    def _exchange(self, one: Any, other: Any) -> None:
        if not self._exchanges:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self._step("rename")
        (folder, name), (_, other_name) = self._place(one), self._place(other)
        EXCHANGE(one, other)
        folder.change({name: folder.current[other_name], other_name: folder.current[name]})

    def link(self, path: Any, other: Any) -> None:
        self._step("link")
        os.link(path, other)
        folder, name = self._place(other)
        folder.change({name: self._node(path)})

    def mkdir(self, path: Any, mode: int = 0o777) -> None:
        self._step("folder")
        os.mkdir(path, mode)
        folder, name = self._place(path)
        folder.change({name: _Folder()})

    def unlink(self, path: Any) -> None:
        self._remove(path, os.unlink)

    def rmdir(self, path: Any) -> None:
        self._remove(path, os.rmdir)

    def _remove(self, path: Any, remove: Any) -> None:
        if not self._is_inside(path):
            remove(path)
            return
        self._step("remove")
        remove(path)
        folder, name = self._place(path)
        folder.change({name: None})

    def rmtree(self, path: Any, ignore_errors: bool) -> None:
        assert ignore_errors
        for folder, folders, names in os.walk(path, topdown=False):
            for each, remove in [*((name, self.unlink) for name in names), *((name, self.rmdir) for name in folders)]:
                with suppress(OSError):
                    remove(os.path.join(folder, each))
        with suppress(OSError):
            self.rmdir(path)


class _RawFile(io.FileIO):
    """A file whose writes are counted, may be short, and may fail."""

    def __init__(self, path: Any, mode: str, owner: FailingDisk, node: _File) -> None:
        super().__init__(path, mode)
        self._owner, self._node = owner, node

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        try:
            self._owner._step("write")
        except OSError:
            self._put(view[: self._owner._chance.randrange(len(view) + 1)])
            raise
        if self._owner._is_short and len(view) > 1:
            view = view[: self._owner._chance.randrange(1, len(view) + 1)]
        return self._put(view)

    def _put(self, view: memoryview) -> int:
        position = self.tell()
        written = super().write(view)
        self._node.pending.append((position, bytes(view)))
        return written

    def truncate(self, size: int | None = None) -> int:
        size = super().truncate(size)
        self._node.pending.append((size, None))
        return size


EXCHANGE = disk.exchange


def _changed(content: bytes, change: tuple[int, bytes | None]) -> bytes:
    position, data = change
    if data is None:
        return content[:position].ljust(position, b"\0")
    return content[:position].ljust(position, b"\0") + data + content[position + len(data) :]


def _update(entries: dict[str, Any], change: dict[str, Any]) -> None:
    for name, node in change.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node
