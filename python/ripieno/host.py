"""Provide the resources of this machine for this process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

#: Limit for the transfer of a cache line between cores that share a cache (10 to 60 ns; without: 100 to 200 ns).
SHARED_CACHE_LINE_S = 80e-9
#: A longer measured time includes waits for a core.
UNDISTURBED_LINE_MAX_S = 1e-6

_CGROUP = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")
_CPUS = Path("/sys/devices/system/cpu")
_NODES = Path("/sys/devices/system/node")
_THREADS = Path("/proc/self/task")
_MEMORY = Path("/proc/meminfo")


@dataclass(frozen=True, order=True)
class Core:
    """A physical core, restricted to the hardware threads that this process may use.

    Attributes
    ----------
    socket, number
        Numbers of the kernel; core numbers are unique within a socket.
    cpus
        Numbers of its hardware threads, ascending.
    """

    socket: int
    number: int
    cpus: tuple[int, ...]


def usable_cores() -> int:
    """Return the number of usable cores: the affinity, limited by the container's CPU quota; at least 1."""
    cores = len(os.sched_getaffinity(0))
    quota = cpu_quota()
    return cores if quota is None else max(1, min(cores, int(quota)))


def line_text(line_s: float) -> str:
    """Describe the measured time of a cache line from core to core, and whether the cores share a cache."""
    if line_s > UNDISTURBED_LINE_MAX_S:
        return "the time of a cache line from core to core is unknown: other programs use the cores"
    shares = "they share a cache" if line_s < SHARED_CACHE_LINE_S else "they share no cache"
    return f"a cache line takes {line_s * 1e9:.0f} ns from core to core: {shares}"


def copies_text(ring_s_per_byte: Sequence[float | None]) -> str:
    """Describe how fast a link of shared memory moves long messages: with ordinary and with streaming stores."""
    if None in ring_s_per_byte:
        return "the speed of a link of shared memory is unknown: other programs use the cores"
    ordinary, streaming = (f"{1e-9 / each:.1f} GB/s" for each in ring_s_per_byte if each)
    return f"a link of shared memory moves {ordinary} with ordinary stores, {streaming} with streaming stores"


def numa_nodes() -> int:
    """Return the number of NUMA nodes of this machine; 1 if the kernel does not report any."""
    return max(1, len(list(_NODES.glob("node[0-9]*"))))


def available_bytes() -> int:
    """Return the memory that is available without swapping; all memory if the kernel does not report it."""
    with suppress(OSError, ValueError, IndexError, StopIteration):
        lines = _MEMORY.read_text().splitlines()
        return int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def cores() -> list[Core]:
    """Return the cores that the calling thread may use, socket by socket; one socket if the kernel reports none."""
    found: dict[tuple[int, int], list[int]] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        folder = _CPUS / f"cpu{cpu}/topology"
        socket, number = _number(folder / "physical_package_id", 0), _number(folder / "core_id", cpu)
        found.setdefault((socket, number), []).append(cpu)
    return sorted(Core(socket, number, tuple(cpus)) for (socket, number), cpus in found.items())


@dataclass(frozen=True)
class ThreadUsage:
    """Kernel counters of a thread since its start; None if the kernel does not report them.

    Attributes
    ----------
    running_s, runnable_s
        Seconds on a core, and seconds of waiting for a core.
    voluntary_switches, involuntary_switches
        Number of voluntary and involuntary context switches.
    migrations
        Number of migrations to another core.
    minor_faults, major_faults
        Number of page faults without and with disk access.
    """

    running_s: float | None
    runnable_s: float | None
    voluntary_switches: int | None
    involuntary_switches: int | None
    migrations: int | None
    minor_faults: int | None
    major_faults: int | None


def thread_usage(tid: int) -> ThreadUsage:
    """Return the counters of a thread of this process; all None if the thread has ended."""
    folder = _THREADS / str(tid)
    times = [int(word) / 1e9 for word in _read(folder / "schedstat").split()]
    counts = _fields(folder / "status") | _fields(folder / "sched")
    # The thread name may contain any character. After it come the state and numbers; words 8 and 10 are the faults.
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
    """Return the smallest CPU quota of all enclosing cgroups in CPU seconds per second; None without a limit."""
    quotas = [quota for folder in _cgroup_folders() if (quota := _quota_of(folder)) is not None]
    return min(quotas, default=None)


def memory_limit_bytes() -> int:
    """Return the memory of the machine, or the smallest limit of all enclosing cgroups if it is lower."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for folder in _cgroup_folders():
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _read(folder / name)
            if text.isdigit():
                limits.append(int(text))
    return min(limits)


def _cgroup_folders() -> list[Path]:
    """Return the cgroup of this process and all its parents, in version 2 or in version 1 (CPU and memory)."""
    folders = []
    for line in _read(_OWN_CGROUPS).splitlines():
        _, controllers, path = line.split(":", 2)
        names = set(controllers.split(","))
        if controllers and not names & {"cpu", "memory"}:
            continue
        root = _CGROUP / controllers if controllers else _CGROUP
        inner = root / path.lstrip("/")
        # Inside a container the path may refer to the host. The mount point is then the container's own group.
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
    """Return the whole numbers in lines of the form ``name : 7``."""
    pairs = (line.split(":") for line in _read(path).splitlines() if line.count(":") == 1)
    return {name.strip(): int(value) for name, value in pairs if value.strip().isdigit()}


def _number(path: Path, default: int) -> int:
    """Return the number in a file; `default` if it is missing or -1 (unknown)."""
    text = _read(path)
    return int(text) if text.isdigit() else default


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
