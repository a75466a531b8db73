"""What this process may use of its machine."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Cores that this process may compute on: its affinity, cut down to its container's CPU quota; at least 1."""
    cores = len(os.sched_getaffinity(0))
    quota = cpu_quota()
    return cores if quota is None else max(1, min(cores, int(quota)))


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
    for line in _read(Path("/proc/self/cgroup")).splitlines():
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


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
