"""Benchmark of PyTorch's DistributedDataParallel: steps with Ripieno and with Gloo, alternating in the same processes.

Two ranks run on this machine, and on two emulated hosts with a network link of 1 Gbit/s. As a program (``torch_steps.py
FOLDER WIDTH STEPS``) this file is a rank, which writes its seconds to FOLDER. The limit is the time of the gradients on
the network link.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from effort import Effort, Measured
from ripieno.bench.figures import Figure, Measurements, Samples
from ripieno.bench.toolchain import Skipped
from ripieno.comm.communicator import Communicator
from ripieno.lab import Lab, missing_requirement
from ripieno.lab.cluster_spec import bits_per_s, wire_share
from ripieno.launch import init, launch

TIMEOUT_S = 300.0
RATE = "1gbit"
BACKENDS = ("ripieno", "gloo")
WIDTHS = (256, 1024)
#: Upper limit of a step relative to Gloo's.
TARGET = 1.0
INPUTS, CLASSES, BATCH = 64, 10, 32


def cases() -> dict[str, Measured]:
    """Return the measurements by name."""
    return {"host": lambda report, effort: _measured(report, effort, "one host", _on_host), "lab": _lab}


def _lab(report: Measurements, effort: Effort) -> None:
    cannot = missing_requirement()
    if cannot is not None:
        raise Skipped(f"no emulated hosts: {cannot}")
    _measured(report, effort, RATE, _in_lab)


def _measured(
    report: Measurements, effort: Effort, where: str, run: Callable[[int, int], dict[str, list[float]]]
) -> None:
    if importlib.util.find_spec("torch") is None:
        raise Skipped("PyTorch is not installed: make frameworks")
    for width in WIDTHS[:1] if effort.quick else WIDTHS:
        seconds = run(width, 4 if effort.quick else 40)
        gradient_bytes = 4 * (width * (INPUTS + 1) + width * (width + 1) + CLASSES * (width + 1))
        report.figures.append(
            Figure(
                case="step of DistributedDataParallel, 2 ranks",
                row=f"{gradient_bytes / 1e6:.2g} MB of gradients, {where}",
                ours=Samples(tuple(seconds["ripieno"])),
                peers={"Gloo": Samples(tuple(seconds["gloo"]))},
                limit_s=8 * gradient_bytes / (bits_per_s("rate", RATE) * wire_share()) if run is _in_lab else None,
                limit="the link" if run is _in_lab else "",
                work=gradient_bytes / 1e6,
                rate_unit="MB/s",
                targets={"peer": TARGET},
            )
        )


def _on_host(width: int, steps: int) -> dict[str, list[float]]:
    with launch(workers=2, threads=1) as job:
        return _slower(job.run(_steps, width, steps))


def _in_lab(width: int, steps: int) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory() as folder, Lab(hosts=2, rate=RATE) as lab:
        command = [sys.executable, __file__, folder, str(width), str(steps)]
        variables = {"PYTHONPATH": os.pathsep.join(sys.path), "RIPIENO_TLS": "0"}
        if lab.run(command, timeout_s=TIMEOUT_S, environment=variables, prefix=False):
            raise RuntimeError(f"two hosts with a network of width {width}: the run failed")
        return _slower([json.loads((Path(folder) / f"rank-{rank}.json").read_text()) for rank in range(2)])


def _slower(ranks: list[dict[str, list[float]]]) -> dict[str, list[float]]:
    """A step ends when the last rank has finished it."""
    return {each: [max(pair) for pair in zip(*(rank[each] for rank in ranks), strict=True)] for each in BACKENDS}


def _steps(comm: Communicator, width: int, steps: int) -> dict[str, list[float]]:
    """Return the seconds of this rank's steps, ten with one backend, then ten with the other."""
    import ripieno.torch
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    ripieno.torch.register()
    dist.init_process_group("ripieno")
    try:
        step = {"ripieno": _network(width, None), "gloo": _network(width, dist.new_group(backend="gloo"))}
        seconds: dict[str, list[float]] = {each: [] for each in BACKENDS}
        for turn in range(1 + max(1, steps // 10)):
            for each in BACKENDS:
                for _ in range(min(steps, 10)):
                    comm.barrier()
                    begin = time.perf_counter()
                    step[each]()
                    # The first turn makes buckets and connections.
                    if turn:
                        seconds[each].append(time.perf_counter() - begin)
    finally:
        dist.destroy_process_group()
    return seconds


def _network(width: int, group: Any) -> Callable[[], None]:
    """Return a step of a network of three layers with gradients averaged by a process group."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = (nn.Linear(INPUTS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CLASSES))
    parallel = nn.parallel.DistributedDataParallel(nn.Sequential(*layers), process_group=group)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
    X, y = torch.randn(BATCH, INPUTS), torch.randint(CLASSES, (BATCH,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(parallel(X), y).backward()
        optimizer.step()

    return step


def main() -> None:
    """Run as a rank."""
    folder, width, steps = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    comm = init(threads=1)
    (folder / f"rank-{comm.rank}.json").write_text(json.dumps(_steps(comm, width, steps)))


if __name__ == "__main__":
    main()
