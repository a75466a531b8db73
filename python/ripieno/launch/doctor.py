"""``ripieno doctor``: can workers start, meet and talk here, with what, how fast, and what to do if not."""

from __future__ import annotations

import platform
import resource
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from ripieno.comm import Communicator
from ripieno.launch import machine

LINKS = ("shared-memory", "tcp")
PACKAGES = ("numpy", "scikit-learn", "scikit-image", "pyarrow")
# Ranks keep a few descriptors per neighbour; below this a large world or a script of many files runs out.
OPEN_FILES_MIN = 1024
MEMORY_MIN_BYTES = 512 << 20

_LATENCY_ROUND_COUNT = 500
_BANDWIDTH_BYTES = 32 << 20
_BANDWIDTH_ROUND_COUNT = 4


@dataclass(frozen=True)
class Finding:
    """One thing looked at.

    Attributes
    ----------
    name, value
        What it is and how it is.
    problem, advice
        What is wrong and what to do about it; None if nothing is.
    """

    name: str
    value: str
    problem: str | None = None
    advice: str | None = None

    def as_dict(self) -> dict[str, str | None]:
        """For JSON."""
        return asdict(self)


def examine() -> list[Finding]:
    """Look at everything, and start two workers per kind of link."""
    findings: list[Finding] = []
    for look in (_versions, _cores, _memory, _open_files, _host_name, _native_findings, _links):
        try:
            findings.extend(look())
        except Exception as error:
            name = look.__name__.strip("_").replace("_", " ")
            findings.append(Finding(name, "unknown", f"could not be examined: {error}", "Report this as a bug."))
    return findings


def show(findings: list[Finding]) -> None:
    """Print a table, and below it each problem with what to do."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    table = Table("", "checked", "found", title="ripieno doctor", title_justify="left")
    for finding in findings:
        mark = "[red]✗[/]" if finding.problem else "[green]✓[/]"
        table.add_row(mark, escape(finding.name), escape(finding.value))
    console.print(table)
    problems = [finding for finding in findings if finding.problem]
    for finding in problems:
        console.print(f"[red]✗ {escape(finding.name)}[/]: {escape(finding.problem or '')}")
        console.print(f"  {escape(finding.advice or '')}")
    if not problems:
        console.print("[green]Workers can start, meet and talk here.[/]")


def _versions() -> Iterator[Finding]:
    from ripieno import UNKNOWN_VERSION, __version__, _native

    yield Finding("Python", f"{platform.python_version()} ({platform.python_implementation()})")
    native = _native.__version__
    if __version__ in (native, UNKNOWN_VERSION):
        yield Finding("ripieno", __version__)
    else:
        yield Finding(
            "ripieno",
            f"{__version__}, native module {native}",
            "the native module was built from another version of the sources",
            "Install again: pip install . (or make setup).",
        )
    yield Finding("packages", ", ".join(f"{name} {_version(name)}" for name in PACKAGES))
    yield Finding("system", f"{platform.system()} {platform.release()}, {platform.machine()}")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _cores() -> Iterator[Finding]:
    quota = machine.cpu_quota()
    limit = "no CPU quota" if quota is None else f"CPU quota {quota:g} cores"
    yield Finding("cores", f"{machine.usable_cores()} usable, {limit}")
    from ripieno import _native

    yield Finding("SIMD", f"{_native.simd_level()} ({platform.machine()})")


def _memory() -> Iterator[Finding]:
    total = machine.memory_limit_bytes()
    value = f"{total / 2**30:.1f} GiB"
    if total < MEMORY_MIN_BYTES:
        yield Finding("memory", value, "too little for several Python processes", "Raise the container's memory limit.")
    else:
        yield Finding("memory", value)


def _open_files() -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < OPEN_FILES_MIN:
        problem = f"a process may have {soft} files open; expected at least {OPEN_FILES_MIN}"
        yield Finding("open files", f"{soft} of at most {hard}", problem, f"Run: ulimit -n {min(hard, 65536)}")
    else:
        yield Finding("open files", f"{soft}")


def _host_name() -> Iterator[Finding]:
    name = socket.gethostname()
    try:
        addresses = sorted({str(entry[4][0]) for entry in socket.getaddrinfo(name, None)})
    except OSError as error:
        addresses = [f"unknown ({error.strerror})"]
    yield Finding("host name", f"{name}: {', '.join(addresses)}")


def _native_findings() -> Iterator[Finding]:
    from ripieno import _native

    examine = getattr(_native, "doctor", dict)
    for name, value in examine().items():
        yield Finding(name, str(value))


def _links() -> Iterator[Finding]:
    for links in LINKS:
        yield _link(links)


def _link(links: str) -> Finding:
    from ripieno.launch import launch

    name = f"2 workers over {links}"
    started = time.monotonic()
    try:
        with launch(workers=2, links=links) as job:
            met_s = time.monotonic() - started
            (right, latency_s, bandwidth), _ = job.run(_talk)
    except Exception as error:
        advice = (
            "TCP links work without it: pass links='tcp'." if links != "tcp" else "See whether loopback TCP is allowed."
        )
        return Finding(name, "failed", f"{type(error).__name__}: {error}", advice)
    value = f"met in {met_s:.2f} s, allreduce of 8 B {latency_s * 1e6:.1f} µs, {bandwidth / 1e9:.2f} GB/s one way"
    if not right:
        return Finding(name, value, "the sum of two vectors came out wrong", "Report this as a bug, with this output.")
    return Finding(name, value)


def _talk(comm: Communicator) -> tuple[bool, float, float]:
    """On both workers: whether a sum is right, seconds per small allreduce, bytes per second of a large message."""
    ramp = np.arange(100_000, dtype=np.float64)
    right = bool(np.array_equal(comm.allreduce(ramp + comm.rank), 2 * ramp + 1))

    number = np.zeros(1)
    latency_s = _median_s(lambda: comm.allreduce(number, out=number), _LATENCY_ROUND_COUNT)

    block = np.ones(_BANDWIDTH_BYTES, np.uint8)
    there_and_back: Callable[[], Any]
    if comm.rank == 0:
        there_and_back = lambda: (comm.send_into(block, to=1), comm.recv(1, out=block))  # noqa: E731
    else:
        there_and_back = lambda: (comm.recv(0, out=block), comm.send_into(block, to=0))  # noqa: E731
    return right, latency_s, 2 * _BANDWIDTH_BYTES / _median_s(there_and_back, _BANDWIDTH_ROUND_COUNT)


def _median_s(step: Callable[[], Any], round_count: int) -> float:
    durations = []
    for _ in range(round_count):
        started = time.perf_counter()
        step()
        durations.append(time.perf_counter() - started)
    return float(np.median(durations))
