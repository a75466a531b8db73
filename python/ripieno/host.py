"""What this process may use of its machine."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")
_CPUS = Path("/sys/devices/system/cpu")
_NODES = Path("/sys/devices/system/node")
_THREADS = Path("/proc/self/task")
_MEMORY = Path("/proc/meminfo")


@dataclass(frozen=True, order=True)
class Core:
    """A physical core, as far as this process may use it.

    Attributes
    ----------
    socket, number
        As the kernel numbers them; the number of a core is its socket's own.
    cpus
        Its hardware threads, ascending, as the kernel schedules on them.
    """

    socket: int
    number: int
    cpus: tuple[int, ...]


def usable_cores() -> int:
    """Cores that this process may compute on: its affinity, cut down to its container's CPU quota; at least 1."""
    cores = len(os.sched_getaffinity(0))
    quota = cpu_quota()
    return cores if quota is None else max(1, min(cores, int(quota)))


def numa_nodes() -> int:
    """Into how many parts the memory of this machine falls; a kernel that tells nothing has one."""
    return max(1, len(list(_NODES.glob("node[0-9]*"))))


def available_bytes() -> int:
    """Memory of this machine that is to be had without swapping; all of it where the kernel does not tell."""
    with suppress(OSError, ValueError, IndexError, StopIteration):
        lines = _MEMORY.read_text().splitlines()
        return int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def cores() -> list[Core]:
    """The cores that the calling thread may use, socket by socket; a kernel that tells nothing has one socket."""
    found: dict[tuple[int, int], list[int]] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        folder = _CPUS / f"cpu{cpu}/topology"
        socket, number = _number(folder / "physical_package_id", 0), _number(folder / "core_id", cpu)
        found.setdefault((socket, number), []).append(cpu)
    return sorted(Core(socket, number, tuple(cpus)) for (socket, number), cpus in found.items())


@dataclass(frozen=True)
class ThreadUsage:
    """What the kernel has counted of a thread since it began; None where it does not tell.

    Attributes
    ----------
    running_s, runnable_s
        Seconds on a core, and seconds of waiting for one.
    voluntary_switches, involuntary_switches
        How often it has let go of its core, and how often that was taken from it.
    migrations
        How often it came to another core.
    minor_faults, major_faults
        Pages that it has touched first, and those that were read from a disk.
    """

    running_s: float | None
    runnable_s: float | None
    voluntary_switches: int | None
    involuntary_switches: int | None
    migrations: int | None
    minor_faults: int | None
    major_faults: int | None


def thread_usage(tid: int) -> ThreadUsage:
    """What a thread of this process has used; nothing is known of one that has ended."""
    folder = _THREADS / str(tid)
    times = [int(word) / 1e9 for word in _read(folder / "schedstat").split()]
    counts = _fields(folder / "status") | _fields(folder / "sched")
    # Behind the name, which may hold anything, come the state, then numbers: faults are the 8th and the 10th word.
    words = _read(folder / "stat").rpartition(")")[2].split()
    return ThreadUsage(
        running_s=times[0] if len(times) > 1 else None,
        runnable_s=times[1] if len(times) > 1 else None,
        voluntary_switches=counts.get("voluntary_ctxt_switches"),
        involuntary_switches=counts.get("nonvoluntary_ctxt_switches"),
        migrations=counts.get("se.nr_migrations"),
        minor_faults=int(words[7]) if len(words) > 9 else None,
        major_faults=int(words[9]) if len(words) > 9 else None,
    )


def cpu_quota() -> float | None:
    """CPU seconds per second that the tightest enclosing cgroup grants, or None if none limits it."""
    quotas = [quota for folder in _cgroup_folders() if (quota := _quota_of(folder)) is not None]
    return min(quotas, default=None)


def memory_limit_bytes() -> int:
    """Memory of the machine, or of the tightest enclosing cgroup if that is less."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for folder in _cgroup_folders():
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _read(folder / name)
            if text.isdigit():
                limits.append(int(text))
    return min(limits)


def _cgroup_folders() -> list[Path]:
    """The cgroup of this process and all above it, in version 2 or in the CPU and memory trees of version 1."""
    folders = []
    for line in _read(_OWN_CGROUPS).splitlines():
        _, controllers, path = line.split(":", 2)
        names = set(controllers.split(","))
        if controllers and not names & {"cpu", "memory"}:
            continue
        root = _CGROUP / controllers if controllers else _CGROUP
        inner = root / path.lstrip("/")
        # Inside a container the path may be the host's; the mount point itself is then the container's own group.
        folders += [each for each in (inner, *inner.parents) if each == root or root in each.parents]
    return folders


def _quota_of(folder: Path) -> float | None:
    match _read(folder / "cpu.max").split():
        case [quota, period] if quota != "max":
            return int(quota) / int(period)
    quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    if quota.isdigit() and period.isdigit() and int(period):
        return int(quota) / int(period)
    return None


def _fields(path: Path) -> dict[str, int]:
    """The whole numbers of lines such as ``name : 7``."""
    pairs = (line.split(":") for line in _read(path).splitlines() if line.count(":") == 1)
    return {name.strip(): int(value) for name, value in pairs if value.strip().isdigit()}


def _number(path: Path, default: int) -> int:
    """The number in a file; `default` if there is none, or -1, which says that nobody knows."""
    text = _read(path)
    return int(text) if text.isdigit() else default


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
