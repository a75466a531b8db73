"""Run a program inside a host: ``python enter.py NAMESPACE HOST RACK HOSTS-FILE COMMAND…``.

The program sees the network, name, /etc/hosts and /sys of its host and shares the rest. This file imports nothing from
the package, because every rank starts through it and loading the package takes much longer.
"""

import ctypes
import os
import signal
import sys

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWNET = 0x00020000, 0x04000000, 0x40000000
MS_BIND, MS_REC, MS_SLAVE = 1 << 12, 1 << 14, 1 << 19
# Exit codes of shells for a missing command, and for one that cannot be executed.
NOT_FOUND, NOT_RUNNABLE = 127, 126
CGROUPS = "/sys/fs/cgroup"

_libc = ctypes.CDLL(None, use_errno=True)


def enter(namespace: str, host: str, hosts_file: str) -> None:
    """Move this process, which must have a single thread, into a host."""
    descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    _check(_libc.setns(descriptor, CLONE_NEWNET), f"enter {namespace}")
    os.close(descriptor)
    _check(_libc.unshare(CLONE_NEWNS | CLONE_NEWUTS), "unshare")
    # Mounts from here on are visible only in this process.
    _mount("none", "/", None, MS_SLAVE | MS_REC)
    _mount(hosts_file, "/etc/hosts", None, MS_BIND)
    if os.readlink("/proc/self") != str(os.getpid()):
        _mount("proc", "/proc", "proc", 0)
    _mount_sys()
    name = host.encode()
    _check(_libc.sethostname(name, len(name)), "sethostname")


def execute(command: list[str]) -> int:
    """Execute `command` in this process. Return an exit code only if that fails."""
    # Prefer commands of this Python's environment, even if sudo reset PATH.
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    # Python ignores these signals, and the command would inherit that.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except FileNotFoundError:
        return _fail(f"{command[0]}: there is no such command", NOT_FOUND)
    except OSError as error:
        return _fail(f"{command[0]}: {error.strerror}", NOT_RUNNABLE)


def _mount_sys() -> None:
    """Mount /sys of this network, with the control groups of the original /sys."""
    groups = os.open(CGROUPS, os.O_PATH | os.O_CLOEXEC) if os.path.ismount(CGROUPS) else None
    _mount("sysfs", "/sys", "sysfs", 0)
    if groups is not None:
        _mount(f"/proc/self/fd/{groups}", CGROUPS, None, MS_BIND | MS_REC)
        os.close(groups)


def _mount(source: str, target: str, kind: "str | None", flags: int) -> None:
    words = (source.encode(), target.encode(), None if kind is None else kind.encode())
    _check(_libc.mount(*words, flags, None), f"mount {target}")


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def _fail(message: str, code: int) -> int:
    print(f"ripieno: {message}", file=sys.stderr)
    return code


def main(namespace: str, host: str, rack: str, hosts_file: str, *command: str) -> int:
    """Enter a host and execute a command."""
    try:
        enter(namespace, host, hosts_file)
    except OSError as error:
        return _fail(f"cannot enter {host}: {error.args[1]}", NOT_RUNNABLE)
    os.environ.update(HOSTNAME=host, RACK=rack)
    return execute(list(command))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
