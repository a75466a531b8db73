"""Provide the registry of labs: a folder for each, with the specification and the hosts' /etc/hosts.

A lab's name is in use while its folder exists. A lab under construction, and a lab of a ``with`` statement, record
their owner's process. After the end of the owner, the lab is an orphan.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ripieno.errors import InputError, LabError
from ripieno.files import disk
from ripieno.lab import kernel
from ripieno.lab.cluster_spec import ClusterSpec
from ripieno.lab.wiring import SWITCHES

FOLDER = Path("/run/ripieno/lab")
RECORD = "lab.json"
# Prefix of the names of all namespaces. Lab names contain no hyphen, so no prefix of a lab is a prefix of another's.
NAMESPACE_PREFIX = "ripieno-"
NAME = re.compile(r"[a-z][a-z0-9_]{0,23}")


@dataclass(frozen=True)
class LabRecord:
    """The record of a lab.

    Attributes
    ----------
    spec
        Specification of the lab; None if its maker ended before writing it.
    owner
        PID and start time of the owner. The lab ends with its owner; None without an owner.
    mounted
        Whether the directory of named namespaces was a mount point before the first lab.
    """

    spec: ClusterSpec | None = None
    owner: tuple[int, int] | None = None
    mounted: bool = True


def check_name(name: str) -> str:
    """Return the name if it is valid."""
    if not NAME.fullmatch(name):
        raise InputError(f"name={name!r}: expected up to 24 lower-case letters, digits and underscores, a letter first")
    return name


def folder(name: str) -> Path:
    """Return the folder of a lab's files."""
    return FOLDER / name


def hosts_file(name: str) -> Path:
    """Return the path of the /etc/hosts of every host of a lab."""
    return folder(name) / "hosts"


def prefix(name: str) -> str:
    """Return the prefix of the names of a lab's namespaces."""
    return f"{NAMESPACE_PREFIX}{name}-"


def names() -> list[str]:
    """Return all labs with any remains: a folder, or namespaces."""
    folders: list[str] = []
    with suppress(FileNotFoundError):
        folders = os.listdir(FOLDER)
    labs = [name.removeprefix(NAMESPACE_PREFIX).partition("-")[0] for name in kernel.namespaces(NAMESPACE_PREFIX)]
    return sorted({name for name in (*folders, *labs) if NAME.fullmatch(name)})


def claim(name: str, spec: ClusterSpec) -> None:
    """Remove orphans, and reserve a name for a lab that this process will make.

    Raises
    ------
    LabError
        If a lab with this name exists.
    """
    with _exclusive():
        for each in names():
            if is_orphan(each):
                _remove(each, read(each))
        mounted = _mounted_before()
        try:
            disk.make_folders(FOLDER)
            disk.make_folder(folder(name))
        except FileExistsError:
            raise LabError(
                f"there is a lab {name!r} already: ripieno lab down --name {name}, or choose another --name"
            ) from None
        except OSError as error:
            raise LabError(f"{folder(name)}: {error.strerror}: an emulated cluster keeps its state there") from None
        write(name, LabRecord(spec, _process(os.getpid()), mounted))


def write_hosts_file(name: str, spec: ClusterSpec) -> None:
    """Write the /etc/hosts of every host of a lab."""
    lines = [f"{host.address} {host.name}\n" for host in spec.hosts]
    disk.write_text(hosts_file(name), "".join(["127.0.0.1 localhost\n", *lines]))


def read(name: str) -> LabRecord | None:
    """Return the record of a lab; None if it does not exist."""
    stored = load(name, RECORD)
    if stored is None:
        return LabRecord() if name in names() else None
    owner = stored["owner"]
    return LabRecord(ClusterSpec(**stored["spec"]), tuple(owner) if owner else None, stored["mounted"])


def existing(name: str) -> LabRecord:
    """Return the record of a lab.

    Raises
    ------
    LabError
        If it does not exist.
    """
    record = read(name)
    if record is None:
        others = ", ".join(names())
        there = f" (there is {others})" if others else ""
        raise LabError(f"there is no lab {name!r}{there}: ripieno lab up --name {name}")
    return record


def write(name: str, record: LabRecord) -> None:
    """Store the record of a lab."""
    assert record.spec is not None, "a record is written with its spec"
    store(name, RECORD, {"spec": record.spec.to_dict(), "owner": record.owner, "mounted": record.mounted})


def store(name: str, file: str, value: Mapping[str, Any]) -> None:
    """Write a file of a lab atomically."""
    path = folder(name) / file
    unfinished = path.with_name(f"{file}.{os.getpid()}")
    disk.write_text(unfinished, json.dumps(value))
    disk.rename(unfinished, path)


def load(name: str, file: str) -> dict[str, Any] | None:
    """Return the value written by `store`; None if the file does not exist."""
    try:
        value: dict[str, Any] = json.loads((folder(name) / file).read_text())
    except FileNotFoundError:
        return None
    return value


def live_owner(name: str) -> int | None:
    """Return the process that owns or creates a lab."""
    record = read(name)
    if record is None or record.owner is None or _process(record.owner[0]) != record.owner:
        return None
    return record.owner[0]


def is_orphan(name: str) -> bool:
    """Return whether a lab is unusable: its owner has ended, or its switches are gone."""
    record = read(name)
    if record is None:
        return False
    if record.owner is not None:
        return live_owner(name) is None
    return record.spec is None or not kernel.namespaces(prefix(name) + SWITCHES)


def remove(name: str, *, owner_pid: int | None = None) -> int:
    """End every process of a lab, remove its remains, and return the number of processes.

    With `owner_pid`, do so only if that process is its owner.
    """
    with _exclusive():
        record = read(name)
        if owner_pid is not None and (record is None or record.owner is None or record.owner[0] != owner_pid):
            return 0
        return _remove(name, record)


def _remove(name: str, record: LabRecord | None) -> int:
    namespaces = kernel.namespaces(prefix(name))
    killed = kernel.kill_inside(namespaces)
    kernel.delete_namespaces(namespaces)
    disk.remove_folder(folder(name))
    for each in (FOLDER, FOLDER.parent):
        with suppress(OSError):
            each.rmdir()
    if record is not None and not record.mounted:
        kernel.unmount_namespaces()
    return killed


@contextmanager
def _exclusive() -> Iterator[None]:
    """Exclude other processes from creating and removing records. The lock leaves no file."""
    descriptor = os.open(FOLDER.parents[1], os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _mounted_before() -> bool:
    known = [record for name in names() if (record := read(name)) is not None]
    return kernel.namespaces_are_mounted() and all(record.mounted for record in known)


def _process(pid: int) -> tuple[int, int] | None:
    """Return a process by PID and start time, since PIDs are reused; None if it does not exist."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else (pid, int(fields[19]))
