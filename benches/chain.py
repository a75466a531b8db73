"""Chain broadcast over an emulated rack: Ripieno, Open MPI's pipeline, and the time the bytes take on one cable."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import measure
import rack
from measure import Figure, Report, Samples, Skipped
from rack import Rack

HOST_COUNT, RATE, MESSAGE_BYTES, RUN_COUNT = 16, "100mbit", 64 << 20, 5
QUICK_HOST_COUNT, QUICK_RATE, QUICK_MESSAGE_BYTES, QUICK_RUN_COUNT = 3, "400mbit", 1 << 20, 1
# The emulated hosts' own ports: nobody else's.
PORT = 29500
SEGMENT_BYTES = 32 << 10
# Of the time that the bytes alone take on a cable; TCP's headers leave 1.046.
TARGET = 1.07

Runner = Callable[[list[str]], str]


def measured(*, quick: bool) -> Report:
    """One message down a chain of hosts, slowest rank's time."""
    report = Report("chain")
    reason = rack.why_not()
    if reason is not None:
        report.remarks.append(reason)
        return report
    program = measure.example("collectives", quick=quick)
    host_count, rate = (QUICK_HOST_COUNT, QUICK_RATE) if quick else (HOST_COUNT, RATE)
    with Rack(hosts=host_count, rate=rate) as emulated, tempfile.TemporaryDirectory() as folder:
        peers: dict[str, Runner] = {}
        try:
            peers = {"Open MPI pipeline": _open_mpi(emulated, Path(folder))}
        except Skipped as skipped:
            report.remarks.append(str(skipped))
        report.figures.append(_figure(emulated, _ripieno(emulated, program), peers, report, quick=quick))
    return report


def _ripieno(emulated: Rack, program: Path) -> Runner:
    def run(cases: list[str]) -> str:
        words = [str(program), "broadcast=chain", *cases]
        commands = [emulated.command(host, words) for host in emulated.hosts]
        return measure.run_ranks(commands, address=emulated.hosts[0].address, port=PORT)

    return run


def _open_mpi(emulated: Rack, folder: Path) -> Runner:
    """Its pipeline, in segments that suit such cables, started without ssh."""
    program = measure.open_mpi("collectives.c")
    shell = folder / "shell"
    shell.write_text(emulated.remote_shell())
    shell.chmod(0o700)
    settings = {
        "plm_rsh_agent": str(shell),
        "plm_rsh_no_tree_spawn": "1",
        "plm_rsh_num_concurrent": str(len(emulated.hosts)),
        "pml": "ob1",
        "btl": "tcp,self",
        "btl_tcp_if_include": "eth0",
        "oob_tcp_if_include": "eth0",
        "mpi_yield_when_idle": "1",
        "coll_tuned_use_dynamic_rules": "1",
        "coll_tuned_bcast_algorithm": "3",
        "coll_tuned_bcast_algorithm_segmentsize": str(SEGMENT_BYTES),
    }
    hosts = ",".join(f"{host.address}:1" for host in emulated.hosts)
    parameters = [word for name, value in settings.items() for word in ("--mca", name, value)]
    preload = ["-x", f"LD_PRELOAD={measure.shared_object('patient_yield.c')}"]
    start = ["mpirun", "--allow-run-as-root", "-np", str(len(emulated.hosts)), "-H", hosts, "--bind-to", "none"]
    words = [*start, *parameters, *preload, str(program), "broadcast"]
    return lambda cases: measure.run(emulated.command(emulated.hosts[0], [*words, *cases]))


def _figure(emulated: Rack, ours: Runner, peers: dict[str, Runner], report: Report, *, quick: bool) -> Figure:
    size, run_count = (QUICK_MESSAGE_BYTES, QUICK_RUN_COUNT) if quick else (MESSAGE_BYTES, RUN_COUNT)
    seconds: dict[str, list[float]] = {}
    copies: dict[str, list[float]] = {}
    for _ in range(run_count):
        for name, runner in {"Ripieno": ours, **peers}.items():
            before = emulated.sent_bytes()[0]
            (second,) = measure.samples_by_size(runner([f"{size}:1:1"]))[size]
            seconds.setdefault(name, []).append(second)
            copies.setdefault(name, []).append((emulated.sent_bytes()[0] - before) / size)
    report.remarks += [
        f"the root's cable carried {statistics.median(some):.3f} copies of the message ({name}), meeting included"
        for name, some in copies.items()
    ]
    report.remarks.append(f"TCP over Ethernet alone takes {1 / rack.wire_share():.3f} of the limit")
    return Figure(
        case=f"{len(emulated.hosts)} hosts, {emulated.rate}",
        row=measure.size_text(size),
        ours=Samples(tuple(seconds["Ripieno"])),
        peers={name: Samples(tuple(seconds[name])) for name in peers},
        limit_s=8 * size / emulated.rate_bits_per_s,
        limit="bytes over rate, without headers",
        work=8 * size / 1e6,
        rate_unit="Mbit/s",
        targets={"limit": TARGET},
    )
