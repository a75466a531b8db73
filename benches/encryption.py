"""Benchmark of encryption between two hosts: a small allreduce, a long message, and the first message of a link.

Hosts are emulated, with 100 Mbit/s, 1 Gbit/s, and with an unlimited network link, where the processor is the
bottleneck. As a program (``encryption.py FOLDER BYTES SAMPLES``) this file is a rank, which writes its seconds to
FOLDER.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from effort import Effort, Measured
from ripieno.bench.figures import Figure, Measurements, Samples
from ripieno.bench.toolchain import Skipped
from ripieno.lab import Lab, missing_requirement
from ripieno.lab.cluster_spec import bits_per_s, wire_share
from ripieno.launch.encryption import TLS_VARIABLE
from ripieno.launch.script.environment import init

TIMEOUT_S = 120.0
#: Rates of the network links, and the bytes of a long message. The last rate exceeds what two processes reach.
LINKS = {"100mbit": 4 << 20, "1gbit": 32 << 20, "40gbit": 64 << 20}
QUICK_LINKS = {"1gbit": 1 << 20}
SMALL_COUNT, LONG_COUNT = 1000, 10
CASES = ("first message", "allreduce of 8 bytes", "long message", "processor time of a long message")


def cases() -> dict[str, Measured]:
    """Return the measurements by name."""
    return {"lab": measured}


def measured(report: Measurements, effort: Effort) -> None:
    """Measure with and without encryption, alternating, for each rate of the network link."""
    cannot = missing_requirement()
    if cannot is not None:
        raise Skipped(f"no emulated hosts: {cannot}")
    for rate, size_bytes in (QUICK_LINKS if effort.quick else LINKS).items():
        found: dict[bool, dict[str, list[float]]] = {tls: {name: [] for name in CASES} for tls in (True, False)}
        with Lab(hosts=2, rate=rate) as lab:
            for _ in range(effort.runs(3)):
                for tls, seconds in found.items():
                    for name, values in _run(lab, size_bytes, tls=tls, quick=effort.quick).items():
                        seconds[name].extend(values)
        for name in CASES:
            is_long = name == "long message"
            report.figures.append(
                Figure(
                    case=name,
                    row=f"{size_bytes >> 20} MiB, {rate}" if "long" in name else rate,
                    ours=Samples(tuple(found[True][name])),
                    peers={"not encrypted": Samples(tuple(found[False][name]))},
                    limit_s=8 * size_bytes / (bits_per_s("rate", rate) * wire_share()) if is_long else None,
                    limit="the link" if is_long else "",
                    work=size_bytes / 1e9 if "long" in name else 0.0,
                    rate_unit="GB/s" if "long" in name else "",
                    targets=_targets(name, rate),
                )
            )


def _targets(case: str, rate: str) -> dict[str, float]:
    if case == CASES[1]:
        return {"peer": 1.2}
    return {"peer": {"100mbit": 1.02, "1gbit": 1.1}[rate]} if case == CASES[2] and rate != "40gbit" else {}


def _run(lab: Lab, size_bytes: int, *, tls: bool, quick: bool) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, folder, str(size_bytes), "1" if quick else "0"]
        variables = {TLS_VARIABLE: str(int(tls)), "PYTHONPATH": os.pathsep.join(sys.path)}
        if lab.run(command, timeout_s=TIMEOUT_S, environment=variables, prefix=False):
            raise RuntimeError(f"two hosts, {TLS_VARIABLE}={int(tls)}: the run failed")
        ranks = [json.loads((Path(folder) / f"rank-{rank}.json").read_text()) for rank in range(2)]
    # A message is complete when its receiver has it. Both ends compute at the same time, so the busier one counts.
    found = {name: ranks[1][name] for name in CASES[:3]}
    found[CASES[3]] = [max(each) for each in zip(*(rank[CASES[3]] for rank in ranks), strict=True)]
    return found


def main() -> None:
    """Run as a rank."""
    folder, size_bytes, quick = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "1"
    comm = init(threads=1)
    number, block = np.zeros(1), np.ones(size_bytes, np.uint8)
    seconds: dict[str, list[float]] = {name: [] for name in CASES}

    def send(values: np.ndarray) -> float:
        """Return the seconds until rank 1 has received and acknowledged the data of rank 0."""
        begin = time.perf_counter()
        if comm.rank == 0:
            comm.send_into(values, to=1)
            comm.recv(1, out=number)
        else:
            comm.recv(0, out=values)
            comm.send_into(number, to=0)
        return time.perf_counter() - begin

    seconds[CASES[0]].append(send(number))
    for _ in range(10 if quick else SMALL_COUNT):
        begin = time.perf_counter()
        comm.allreduce(number, out=number)
        seconds[CASES[1]].append(time.perf_counter() - begin)
    for _ in range(1 if quick else LONG_COUNT):
        comm.barrier()
        before = _computed_s()
        seconds[CASES[2]].append(send(block))
        seconds[CASES[3]].append(_computed_s() - before)
    comm.barrier()
    (folder / f"rank-{comm.rank}.json").write_text(json.dumps(seconds))


def _computed_s() -> float:
    """Return the processor seconds of this thread, including kernel time."""
    used = resource.getrusage(resource.RUSAGE_THREAD)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
