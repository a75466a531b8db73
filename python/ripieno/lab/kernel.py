"""Kernel interface of a lab: network namespaces, and settings inside them.

A namespace belongs to a thread. `inside` moves the calling thread and its new child processes into a namespace. Other
threads are not affected.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ripieno.errors import LabError

# Directory of iproute2's named namespaces.
NAMESPACES = Path("/var/run/netns")
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MNT_DETACH = 2
# Time limit for killed processes to disappear.
KILL_S = 10.0

_TOOLS = ("ip", "tc", "bridge")
_TRIALS = (
    ("veth", "CONFIG_VETH", "ip", "link add one type veth peer name two"),
    ("bridge", "CONFIG_BRIDGE", "ip", "link add switch type bridge"),
    ("sch_tbf", "CONFIG_NET_SCH_TBF", "tc", "qdisc add dev one root tbf rate 1mbit burst 10000 limit 10000"),
)
_CAPABILITIES = "a container needs --privileged, or --cap-add SYS_ADMIN --cap-add NET_ADMIN"
_FAILED_LINE = re.compile(r"Command failed [^:\s]*:(\d+)")


def missing_requirement() -> str | None:
    """Return the reason why this machine cannot make a lab, with a remedy, or None. It leaves no namespace."""
    missing = _missing_rights()
    if missing is not None:
        return missing
    found: list[str | None] = []
    # The trial's namespace belongs to the thread and ends with it.
    thread = threading.Thread(target=lambda: found.append(_try()))
    thread.start()
    thread.join()
    return found[0]


def require_rights() -> None:
    """Check that this process can use a lab.

    Raises
    ------
    LabError
        If this is not Linux, not root, or has no iproute2.
    """
    missing = _missing_rights()
    if missing is not None:
        raise LabError(missing)


def _missing_rights() -> str | None:
    """Return the missing requirement of this process for a lab, with a remedy, or None."""
    if sys.platform != "linux":
        return f"an emulated cluster needs Linux, and this is {sys.platform}: use a Linux machine or a virtual one"
    if os.geteuid() != 0:
        return "an emulated cluster needs root: run this with sudo"
    missing = [tool for tool in _TOOLS if _path(tool) is None]
    if missing:
        return f"an emulated cluster needs {', '.join(missing)} of iproute2: apt-get install iproute2"
    return None


def _path(tool: str) -> str | None:
    """Return the path of a tool. Without a login shell, root's PATH may lack the sbin directories."""
    return shutil.which(tool, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"]))


def _try() -> str | None:
    try:
        unshare(CLONE_NEWNET)
    except OSError as error:
        return f"root is not allowed to create network namespaces here ({error.strerror}): {_CAPABILITIES}"
    for module, option, tool, line in _TRIALS:
        try:
            batch(tool, [line])
        except LabError as error:
            if os.strerror(errno.EPERM) in str(error):
                return f"root is not allowed to create network devices here ({error}): {_CAPABILITIES}"
            return f"this kernel lacks {module}: modprobe {module}, or take a kernel with {option} ({error})"
    return None


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """Run this thread and its new child processes in a named network namespace."""
    try:
        target = os.open(NAMESPACES / namespace, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise LabError(f"the network namespace {namespace} is gone: take the lab down and up again") from None
    original = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        setns(target, CLONE_NEWNET)
        try:
            yield
        finally:
            setns(original, CLONE_NEWNET)
    finally:
        os.close(target)
        os.close(original)


@contextmanager
def new_pid_namespace() -> Iterator[None]:
    """Run new child processes of this thread in one PID namespace, which ends with its first process."""
    original = os.open("/proc/thread-self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        unshare(CLONE_NEWPID)
        try:
            yield
        finally:
            setns(original, CLONE_NEWPID)
    finally:
        os.close(original)


def batch(tool: str, lines: Sequence[str]) -> None:
    """Execute `lines` by ``ip``, ``tc`` or ``bridge``, up to the first failure."""
    if not lines:
        return
    done = subprocess.run(
        [_path(tool) or tool, "-batch", "-"], input="\n".join(lines) + "\n", capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        output = (done.stderr or done.stdout).strip()
        failed = _FAILED_LINE.search(output)
        line = lines[int(failed[1]) - 1] if failed else lines[0]
        reason = output.splitlines()[0] if output else f"exit code {done.returncode}"
        raise LabError(f"{tool} {line}: {reason}")


def output(tool: str, *words: str) -> str:
    """Return the output of ``ip``, ``tc`` or ``bridge``."""
    done = subprocess.run([_path(tool) or tool, *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"{tool} {' '.join(words)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def write_settings(settings: dict[str, str]) -> None:
    """Write files below /proc/sys/net of this thread's namespace. Missing files are skipped."""
    for name, value in settings.items():
        with suppress(FileNotFoundError):
            Path("/proc/sys/net", name).write_text(value)


def namespaces(prefix: str) -> list[str]:
    """Return the namespaces with this name prefix."""
    with suppress(FileNotFoundError):
        return sorted(name for name in os.listdir(NAMESPACES) if name.startswith(prefix))
    return []


def delete_namespaces(names: Iterable[str]) -> None:
    """Delete namespaces. A missing namespace is not an error."""
    for name in names:
        path = NAMESPACES / name
        with suppress(OSError):
            _check(_libc().umount2(os.fsencode(path), MNT_DETACH), "umount")
        path.unlink(missing_ok=True)


def namespaces_are_mounted() -> bool:
    """Return whether the directory of named namespaces is a mount point; iproute2 makes it one."""
    # With a bind mount of the same file system, only the list of mounts shows it.
    mounts = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return os.path.realpath(NAMESPACES) in mounts


def unmount_namespaces() -> None:
    """Unmount the namespace directory of iproute2 if no namespace is left. iproute2 mounts it again on demand."""
    with suppress(OSError):
        if not os.listdir(NAMESPACES):
            _check(_libc().umount2(os.fsencode(NAMESPACES), 0), "umount")
            NAMESPACES.rmdir()


def kill_inside(names: Iterable[str]) -> int:
    """Kill every process inside these namespaces, wait until they are gone, and return their number.

    Raises
    ------
    LabError
        If a process does not end in time.
    """
    namespaces = {_identity(NAMESPACES / name) for name in names} - {None}
    deadline = time.monotonic() + KILL_S
    count = 0
    while pids := _pids_inside(namespaces):
        if time.monotonic() > deadline:
            raise LabError(f"processes {', '.join(map(str, pids))} do not end, {KILL_S:g} s after they were killed")
        count += sum(_kill(pid, namespaces, deadline) for pid in pids)
    return count


def setns(descriptor: int, kind: int) -> None:
    """Move this thread (with CLONE_NEWPID, its future children) to a namespace."""
    _check(_libc().setns(descriptor, kind), "setns")


def unshare(kind: int) -> None:
    """Move this thread (with CLONE_NEWPID, its future children) to a new namespace."""
    _check(_libc().unshare(kind), "unshare")


def _pids_inside(namespaces: set[tuple[int, int] | None]) -> list[int]:
    own = os.getpid()
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return [pid for pid in pids if pid != own and _identity(Path(f"/proc/{pid}/ns/net")) in namespaces]


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _kill(pid: int, namespaces: set[tuple[int, int] | None], deadline: float) -> bool:
    """Kill a process that is inside `namespaces` and wait for its end. Return False if it ended before."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # Check only now: while the descriptor is open, the PID cannot be reused.
        if _identity(Path(f"/proc/{pid}/ns/net")) not in namespaces:
            return False
        signal.pidfd_send_signal(process, signal.SIGKILL)
        end = select.poll()
        end.register(process, select.POLLIN)
        end.poll(max(0.0, deadline - time.monotonic()) * 1000)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(process)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
