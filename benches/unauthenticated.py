"""Benchmark of a connection flood: ranks that compute, with and without unauthenticated connections.

Unauthenticated clients connect to all ports that ranks listen on, send invalid handshakes, and stay for a moment. They
run on the same machine, so their use of its cores delays the ranks as well. The job is therefore timed a third time
while the same clients connect to an unrelated process, which closes connections as cheaply as possible.
"""

from __future__ import annotations

import os
import secrets
import select
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np
import ripieno as rp
from effort import Effort
from ripieno.bench.figures import Figure, FigureCount, Measurements, Samples
from ripieno.comm.communicator import Communicator
from ripieno.launch.engine.member_server import MemberServer

WORKERS = 2
CONNECTIONS, QUICK_CONNECTIONS = 10_000, 50
#: Number of simultaneous connections.
CONNECTION_COUNT_MAX = 200
#: Duration of a connection to the unrelated process, in seconds.
REST_S = 0.02
ROWS = 192
TABLE_FLOATS = 16_384
#: Approximate duration of a turn, in seconds.
TURN_S = 10.0
#: Upper limits of the delay, and of the memory growth of a rank.
SHARE, MEMORY_MIB = 0.05, 16.0


class FloodTarget(StrEnum):
    """The target of the flood, if any."""

    NONE = "none"
    OTHERS = "elsewhere"
    RANKS = "unauthenticated"


class UnauthenticatedTurn(NamedTuple):
    """Times of all ranks in a turn, and the memory of the largest rank.

    Attributes
    ----------
    elapsed_s
        Time of the slowest rank.
    cpu_s
        Processor time of all ranks.
    background_s
        Processor time of the threads that do not compute.
    memory_bytes
        Memory of the largest rank.
    """

    elapsed_s: float
    cpu_s: float
    background_s: float
    memory_bytes: int


def measured(report: Measurements, effort: Effort) -> None:
    """Measure turns with the flood, with the flood on another process, and without, in one job."""
    connections = QUICK_CONNECTIONS if effort.quick else CONNECTIONS
    turns: dict[FloodTarget, list[UnauthenticatedTurn]] = {target: [] for target in FloodTarget}
    refused = 0
    with rp.launch(workers=WORKERS, threads=1, links="tcp") as job:
        ports = [port for listened in job.run(_ports) for port in listened]
        others = _started("others", len(ports), stdin=subprocess.PIPE)
        assert others.stdout is not None
        ports_of = {
            FloodTarget.RANKS: ports,
            FloodTarget.OTHERS: [int(word) for word in others.stdout.readline().split()],
        }
        count = 20 if effort.quick else _count(job)
        order = list(FloodTarget)
        for _ in range(effort.runs(4)):
            order.append(order.pop(0))
            for target in order:
                unauthenticated = (
                    _started("unauthenticated", connections, *ports_of[target]) if target in ports_of else None
                )
                ranks = job.run(_iterate, count)
                elapsed_s, cpu_s, background_s, memory_bytes = zip(*ranks, strict=True)
                turns[target].append(
                    UnauthenticatedTurn(max(elapsed_s), sum(cpu_s), sum(background_s), max(memory_bytes))
                )
                output = unauthenticated.communicate()[0] if unauthenticated is not None else ""
                refused = int(output) if target is FloodTarget.RANKS else refused
        others.communicate()
    samples = {
        target: [Samples(tuple(turn[at] for turn in turns[target])) for at in range(2)] for target in FloodTarget
    }
    for at, case in enumerate(("time of a job", "processor time of its ranks")):
        for row, peer in (("and none", FloodTarget.NONE), ("here and elsewhere", FloodTarget.OTHERS)):
            report.figures.append(
                Figure(
                    case=f"{case}, {WORKERS} ranks by TCP",
                    row=f"{connections:,} unauthenticated, {row}",
                    ours=samples[FloodTarget.RANKS][at],
                    peers={str(peer): samples[peer][at]},
                    limit_s=None,
                    limit="",
                    work=0.0,
                    rate_unit="",
                    targets={"peer": 1 + SHARE},
                )
            )
    with_s, without_s = (
        statistics.median(turn.background_s for turn in turns[target])
        for target in (FloodTarget.RANKS, FloodTarget.NONE)
    )
    report.counts.append(
        FigureCount(
            case="processor time of a rank",
            row="more, for each unauthenticated peer",
            value=max(with_s - without_s, 0.0) / connections * 1e6,
            unit="µs",
            target=SHARE * TURN_S / connections * 1e6,
        )
    )
    grown = max(turn.memory_bytes for turn in turns[FloodTarget.RANKS]) - min(
        turn.memory_bytes for turn in turns[FloodTarget.NONE]
    )
    report.counts.append(
        FigureCount(
            case="memory of a rank",
            row=f"more, after {connections:,} unauthenticated",
            value=max(grown, 0) / 2**20,
            unit="MiB",
            target=MEMORY_MIB,
        )
    )
    serving_s = _serving_s(connections)
    report.counts.append(
        FigureCount(
            case="processor time of a member server",
            row="for each client",
            value=serving_s / connections * 1e6,
            unit="µs",
            target=SHARE * TURN_S / connections * 1e6,
        )
    )
    report.remark(f"of {connections:,} connections to {len(ports)} ports {refused:,} were refused or reset immediately")


def _serving_s(connections: int) -> float:
    """Return the processor seconds of this process while clients connect to its member server."""
    server = MemberServer("127.0.0.1", secrets.token_bytes(32))
    unauthenticated = _started("unauthenticated", connections, server.port)
    start_s = time.process_time()
    unauthenticated.communicate()
    took_s = time.process_time() - start_s
    server.close()
    return took_s


def _iterate(comm: Communicator, count: int) -> tuple[float, float, float, int]:
    rows, table = np.ones((ROWS, ROWS)), np.ones(TABLE_FLOATS)
    comm.barrier()
    start_s, cpu_s, computing_s = time.perf_counter(), time.process_time(), time.thread_time()
    for _ in range(count):
        rows = rows @ rows
        rows /= np.abs(rows).max()
        comm.allreduce(table, out=table, op="max")
    elapsed_s, cpu_s = time.perf_counter() - start_s, time.process_time() - cpu_s
    computing_s = time.thread_time() - computing_s
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return elapsed_s, cpu_s, cpu_s - computing_s, pages * os.sysconf("SC_PAGE_SIZE")


def _count(job: rp.Job) -> int:
    """Return the number of iterations of a turn."""
    count, took_s = 10, 0.0
    while took_s < 1.0:
        count *= 2
        # Use the fastest of three: a single disturbance would make all turns shorter.
        took_s = min(max(figures[0] for figures in job.run(_iterate, count)) for _ in range(3))
    return round(count * TURN_S / took_s)


def _ports(comm: Communicator) -> list[int]:
    """Return the TCP ports that this process listens on."""
    links = (os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink())
    own = {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:[")}
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in own:
                ports.add(int(words[1].rsplit(":", 1)[1], 16))
    return sorted(ports)


def _started(role: str, *numbers: int, stdin: int | None = None) -> subprocess.Popen[str]:
    words = [sys.executable, __file__, role, *map(str, numbers)]
    return subprocess.Popen(words, stdin=stdin, stdout=subprocess.PIPE, text=True)


def main() -> None:
    """Run as the clients, `unauthenticated COUNT PORT…`, or as the unrelated process, `others PORT_COUNT`."""
    role, *words = sys.argv[1:]
    count, *ports = map(int, words)
    if role == "others":
        _serve_unrelated(count)
    else:
        _flood(ports, count)


def _flood(ports: Sequence[int], count: int) -> None:
    """Connect to all ports; print the number of refused connections."""
    connections: list[socket.socket] = []
    refused = 0
    start_s = time.monotonic()
    for number in range(count):
        try:
            connections.append(socket.create_connection(("127.0.0.1", ports[number % len(ports)]), timeout=1.0))
            connections[-1].sendall(b"GET / HTTP/1.1\r\n\r\n")
        except OSError:
            refused += 1
        if len(connections) > CONNECTION_COUNT_MAX:
            connections.pop(0).close()
        # Spread connections over the turn; a few end early.
        time.sleep(max(0.0, start_s + 0.8 * TURN_S * number / CONNECTIONS - time.monotonic()))
    print(refused)


def _serve_unrelated(port_count: int) -> None:
    """Listen on this number of ports, print them, and close all connections until the standard input ends.

    Connections of the same few milliseconds are closed together, to take as little processor time as possible.
    """
    listeners = [socket.create_server(("127.0.0.1", 0), backlog=1024) for _ in range(port_count)]
    for listener in listeners:
        listener.setblocking(False)
    print(*(listener.getsockname()[1] for listener in listeners), flush=True)
    while not select.select([sys.stdin], [], [], REST_S)[0]:
        for listener in listeners:
            with suppress(BlockingIOError):
                while True:
                    listener.accept()[0].close()


if __name__ == "__main__":
    main()
