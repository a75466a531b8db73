"""``ripieno doctor``: checks whether workers can start, join and communicate here, and measures how fast."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import ripieno.host as host
from ripieno.comm.communicator import Communicator
from ripieno.launch.encryption import TLS_VARIABLE, wants_tls
from ripieno.launch.engine.survey import MISSING, package_version
from ripieno.launch.racks import rack_of_this_host

LINKS = ("shared-memory", "tcp")
PACKAGES = ("numpy", "scikit-learn", "scikit-image", "pyarrow")
MEMORY_MIN_BYTES = 512 << 20

_LATENCY_ROUND_COUNT = 500
_BANDWIDTH_BYTES = 32 << 20
_BANDWIDTH_ROUND_COUNT = 4


PASSED, WARNING, BAD = "good", "warning", "bad"
_MARKS = {PASSED: "[green]✓[/]", WARNING: "[yellow]![/]", BAD: "[red]✗[/]"}


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes
    ----------
    name, found
        Name of the check, and its result.
    outcome
        "good"; "warning" if workers run, but not optimally; or "bad".
    advice
        The remedy, unless the outcome is good.
    """

    name: str
    found: str
    outcome: str = PASSED
    advice: str = ""

    def as_dict(self) -> dict[str, str]:
        """Return the finding as JSON."""
        return asdict(self)


def examine() -> list[Finding]:
    """Run all checks, and start two workers per kind of link."""
    findings: list[Finding] = []
    for check in (_versions, _machine, _network, _links):
        try:
            findings.extend(check())
        except Exception as error:
            found = f"could not be examined: {type(error).__name__}: {error}"
            findings.append(Finding(check.__name__.strip("_"), found, BAD, "report this as a bug"))
    return findings


def show(findings: list[Finding]) -> None:
    """Print a table, and below it advice for each problem."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    table = Table("", "checked", "found", title="ripieno doctor", title_justify="left")
    for finding in findings:
        table.add_row(_MARKS[finding.outcome], escape(finding.name), escape(finding.found))
    console.print(table)
    for finding in findings:
        if finding.outcome != PASSED:
            console.print(f"{_MARKS[finding.outcome]} {escape(finding.name)}: {escape(finding.found)}")
            console.print(f"  What to do: {escape(finding.advice)}.")
    if all(finding.outcome != BAD for finding in findings):
        console.print("[green]Workers can start, connect and communicate here.[/]")


def _versions() -> Iterator[Finding]:
    from ripieno._version import __version__

    yield Finding("Python", f"{platform.python_version()} ({platform.python_implementation()})")
    installed = package_version("ripieno")
    # A source tree may be used without installation.
    if installed in (__version__, MISSING):
        yield Finding("ripieno", __version__)
    else:
        found = f"{installed}, but the native module was built as {__version__}"
        yield Finding("ripieno", found, BAD, "install again: pip install . (or make setup)")
    yield Finding("packages", ", ".join(f"{name} {package_version(name)}" for name in PACKAGES))
    yield Finding("system", f"{platform.system()} {platform.release()}, {platform.machine()}")


def _machine() -> Iterator[Finding]:
    import ripieno._native as _native

    quota = host.cpu_quota()
    limit = "no CPU quota" if quota is None else f"a CPU quota of {quota:g}"
    yield Finding("processor", f"{host.usable_cores()} usable cores, {limit}, SIMD {_native.simd_level()}")
    if host.usable_cores() > 1:
        yield Finding("caches", host.line_text(_native.line_s()))
        yield Finding("copies", host.copies_text(_native.link_costs()["ring_s_per_byte"]))
    memory_bytes = host.memory_limit_bytes()
    found = f"{memory_bytes / 2**30:.1f} GiB"
    if memory_bytes < MEMORY_MIN_BYTES:
        yield Finding("memory", f"{found}, little for several processes", WARNING, "raise the container's memory limit")
    else:
        yield Finding("memory", found)


def _network() -> Iterator[Finding]:
    """Run the checks of the native module, which start no process."""
    import ripieno._native as _native

    report = _native.doctor(1)
    for check in report["checks"]:
        yield Finding(check["name"], check["found"], check["outcome"], check["advice"])
    rack = rack_of_this_host()
    yield Finding("rack", rack or "unknown: one rack is assumed; RACK or RIPIENO_RACKS changes this")
    rejected = report["addresses"]["rejected"]
    if rejected:
        reasons = (f"{each['owner']} {each['address']} ({each['cause']})" for each in rejected)
        yield Finding("not offered", "; ".join(reasons))


def _links() -> Iterator[Finding]:
    for links in LINKS:
        other = next(each for each in LINKS if each != links)
        # Shared memory needs no encryption. The check below tests encrypted TCP.
        yield check_workers(
            f"2 workers over {links}", f"the other kind of link may work: pass links={other!r}", links=links, tls=False
        )
    yield check_workers(
        f"2 workers over {encrypted()}", "pass tls=False, on a network that you trust", links="tcp", tls=True
    )
    yield _encryption()


def _encryption() -> Finding:
    """Describe the default encryption of a job, and its implementation."""
    requested = wants_tls(os.environ)
    if requested is False:
        advice = f"leave {TLS_VARIABLE}=0 out, unless the network is trusted"
        return Finding("encryption", f"none: {TLS_VARIABLE}=0", WARNING, advice)
    if requested:
        return Finding("encryption", f"all TCP connections, by {encrypted()}; shared memory is not")
    found = f"connections between hosts, by {encrypted()}; shared memory and connections within a host are not"
    return Finding("encryption", found)


def encrypted() -> str:
    """Return the name of the encryption."""
    import ripieno._native as _native

    return f"TLS 1.3 ({_native.tls_cipher()})"


def check_workers(name: str, advice: str, **options: Any) -> Finding:
    """Launch two workers with `options`, check their result, and measure their communication."""
    from ripieno.launch import launch

    started = time.monotonic()
    try:
        with launch(workers=2, **options) as job:
            connected_s = time.monotonic() - started
            try:
                (right, latency_s, bandwidth), _ = job.run(_measure_exchange)
            except Exception as error:
                error.add_note("; ".join(map(str, job.ranks)))
                raise
            states = ", ".join(str(each.state) for each in job.ranks)
    except Exception as error:
        notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
        return Finding(name, f"{type(error).__name__}: {error}{notes}", BAD, advice)
    found = (
        f"connected in {connected_s:.2f} s, allreduce of 8 B {latency_s * 1e6:.1f} µs, "
        f"{bandwidth / 1e9:.2f} GB/s one way; then {states}"
    )
    if not right:
        return Finding(name, f"the sum of two vectors is wrong; {found}", BAD, "report this as a bug")
    return Finding(name, found)


def _measure_exchange(comm: Communicator) -> tuple[bool, float, float]:
    """Return, on both workers: whether a sum is correct, seconds per small allreduce, bytes per second of a message."""
    ramp = np.arange(100_000, dtype=np.float64)
    right = bool(np.array_equal(comm.allreduce(ramp + comm.rank), 2 * ramp + 1))

    number = np.zeros(1)
    latency_s = _median_s(lambda: comm.allreduce(number, out=number), _LATENCY_ROUND_COUNT)

    block = np.ones(_BANDWIDTH_BYTES, np.uint8)

    def ping_pong() -> None:
        if comm.rank == 0:
            comm.send_into(block, to=1)
            comm.recv(1, out=block)
        else:
            comm.recv(0, out=block)
            comm.send_into(block, to=0)

    return right, latency_s, 2 * _BANDWIDTH_BYTES / _median_s(ping_pong, _BANDWIDTH_ROUND_COUNT)


def _median_s(step: Callable[[], Any], round_count: int) -> float:
    durations = []
    for _ in range(round_count):
        started = time.perf_counter()
        step()
        durations.append(time.perf_counter() - started)
    return float(np.median(durations))
