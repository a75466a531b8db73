"""What a flood of strangers costs a job: ranks that compute and sum, with ten thousand connections to them and without.

Strangers connect to all ports that ranks listen on, send bytes that are no introduction, and stay for a moment. They
are on the same machine, so what they take of its cores delays the ranks as well: what ranks themselves spend is
counted, too.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import ripieno as rp
from effort import Effort
from ripieno.bench.figures import Count, Figure, Measurements, Samples
from ripieno.comm.communicator import Communicator

WORKERS = 2
CONNECTIONS, QUICK_CONNECTIONS = 10_000, 50
#: How many stay at once.
CROWD = 200
ROWS = 192
TABLE_FLOATS = 16_384
#: How long a turn takes, about.
TURN_S = 10.0
#: The delay, and what a rank's memory may grow by.
SHARE, MEMORY_MIB = 0.05, 16.0


class Turn(NamedTuple):
    """Seconds of the slowest rank, seconds of the processor of all, and bytes that the largest rank has in memory."""

    elapsed_s: float
    cpu_s: float
    memory_bytes: int


def measured(report: Measurements, effort: Effort) -> None:
    """Turns with strangers and without, in one job."""
    connections = QUICK_CONNECTIONS if effort.quick else CONNECTIONS
    turns: dict[bool, list[Turn]] = {True: [], False: []}
    refused = 0
    with rp.launch(workers=WORKERS, threads=1, links="tcp") as job:
        ports = [port for listened in job.run(_ports) for port in listened]
        count = 20 if effort.quick else _count(job)
        for number in range(effort.runs(4)):
            for are_there in (True, False) if number % 2 else (False, True):
                strangers = _strangers(ports, connections) if are_there else None
                ranks = job.run(_iterate, count)
                elapsed_s, cpu_s, memory_bytes = zip(*ranks, strict=True)
                turns[are_there].append(Turn(max(elapsed_s), sum(cpu_s), max(memory_bytes)))
                if strangers is not None:
                    refused = int(strangers.communicate()[0])
    for case, at in (("time of a job", 0), ("processor time of its ranks", 1)):
        report.figures.append(
            Figure(
                case=f"{case}, {WORKERS} ranks by TCP",
                row=f"{connections:,} strangers",
                ours=Samples(tuple(turn[at] for turn in turns[True])),
                peers={"no strangers": Samples(tuple(turn[at] for turn in turns[False]))},
                limit_s=None,
                limit="",
                work=0.0,
                rate_unit="",
                targets={"peer": 1 + SHARE},
            )
        )
    grown = max(turn.memory_bytes for turn in turns[True]) - min(turn.memory_bytes for turn in turns[False])
    report.counts.append(
        Count(
            case="memory of a rank",
            row=f"more, after {connections:,} strangers",
            value=max(grown, 0) / 2**20,
            unit="MiB",
            target=MEMORY_MIB,
        )
    )
    report.remark(f"of {connections:,} connections to {len(ports)} ports {refused:,} were refused or reset at once")


def _iterate(comm: Communicator, count: int) -> tuple[float, float, int]:
    rows, table = np.ones((ROWS, ROWS)), np.ones(TABLE_FLOATS)
    comm.barrier()
    begun_s, cpu_s = time.perf_counter(), time.process_time()
    for _ in range(count):
        rows = rows @ rows
        rows /= np.abs(rows).max()
        comm.allreduce(table, out=table, op="max")
    elapsed_s, cpu_s = time.perf_counter() - begun_s, time.process_time() - cpu_s
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return elapsed_s, cpu_s, pages * os.sysconf("SC_PAGE_SIZE")


def _count(job: rp.Job) -> int:
    """Iterations of a turn."""
    count, took_s = 10, 0.0
    while took_s < 1.0:
        count *= 2
        took_s = max(elapsed_s for elapsed_s, _, _ in job.run(_iterate, count))
    return round(count * TURN_S / took_s)


def _ports(comm: Communicator) -> list[int]:
    """The TCP ports that this process listens on."""
    links = (os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink())
    own = {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:[")}
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in own:
                ports.add(int(words[1].rsplit(":", 1)[1], 16))
    return sorted(ports)


def _strangers(ports: Sequence[int], count: int) -> subprocess.Popen[str]:
    words = [sys.executable, __file__, str(count), *map(str, ports)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def main() -> None:
    """Be the strangers: COUNT PORT…; prints how many were not let in."""
    count, ports = int(sys.argv[1]), [int(word) for word in sys.argv[2:]]
    crowd: list[socket.socket] = []
    refused = 0
    begun_s = time.monotonic()
    for number in range(count):
        try:
            crowd.append(socket.create_connection(("127.0.0.1", ports[number % len(ports)]), timeout=1.0))
            crowd[-1].sendall(b"GET / HTTP/1.1\r\n\r\n")
        except OSError:
            refused += 1
        if len(crowd) > CROWD:
            crowd.pop(0).close()
        # All along the turn, not all at once.
        time.sleep(max(0.0, begun_s + 0.8 * TURN_S * number / count - time.monotonic()))
    print(refused)


if __name__ == "__main__":
    main()
