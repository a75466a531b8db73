"""Provide a rank of `ripieno bench strategies`, which fetches a value several times and records the times.

python -m ripieno.bench.strategies_rank CASE_JSON FOLDER

Run as all ranks. Each rank writes its results to a separate file, because killed ranks have none.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
import threading
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ripieno.comm.broadcast_variables import SHARED_FILE
from ripieno.comm.shared_files import REPLICAS_MAX
from ripieno.files import disk
from ripieno.lab import links, registry
from ripieno.launch.script.environment import init

#: Exit status of a rank that ends as requested. The launcher would explain SIGKILL by a lack of memory.
KILLED_STATUS = 3


@dataclass(frozen=True)
class BroadcastCase:
    """A broadcast from the first host to all others.

    Parameters
    ----------
    strategy
        Name of the strategy.
    size_bytes
        Bytes of the value.
    repetitions
        Number of broadcasts.
    block_bytes
        Bytes of a block; None for the default.
    killed
        Ranks that kill themselves.
    kill_after_s
        Time of the kill, in seconds from the beginning.
    lab
        Name of the lab if killed ranks first lose their network links, as in a power failure; None if their connections
        close.
    record
        Whether to record sender and time of each block.
    uses_racks
        Whether ranks know the racks of their hosts.
    degree
        Number of concurrent receivers of a source; None for the default.
    verify
        Whether blocks are verified, for each broadcast of a repetition.
    """

    strategy: str
    size_bytes: int
    repetitions: int = 1
    block_bytes: int | None = None
    killed: list[int] = field(default_factory=list)
    kill_after_s: float = 0.0
    lab: str | None = None
    record: bool = False
    uses_racks: bool = True
    degree: int | None = None
    verify: list[bool] = field(default_factory=lambda: [True])


def main(case: BroadcastCase, folder: Path) -> None:
    """Run as one rank."""
    if not case.uses_racks:
        os.environ.pop("RACK", None)
    # Encryption is off: the network links are measured, not the processors.
    comm = init(tls=False)
    value = np.random.default_rng(case.size_bytes).integers(0, 256, case.size_bytes, np.uint8)
    expected = zlib.crc32(value.data)
    root_value = value if comm.rank == 0 else None
    del value
    # The first variable sets up connections, and does not count.
    with comm.broadcast_variable(0 if comm.rank == 0 else None) as first:
        _ = first.value
    found: list[dict[str, Any]] = []
    places = [folder / f"copy{number}" for number in range(REPLICAS_MAX)] if case.strategy == SHARED_FILE else []
    for place in places:
        disk.make_folders(place)
    ends = folder / "ends"
    if case.killed and comm.rank == 0:
        os.mkfifo(ends)
    for verify in case.verify * case.repetitions:
        comm.barrier()
        before = resource.getrusage(resource.RUSAGE_SELF)
        begin_s = time.monotonic()
        if comm.rank in case.killed:
            threading.Timer(case.kill_after_s, _die, [case.lab]).start()
        created = comm.broadcast_variable(
            root_value,
            strategy=case.strategy,
            block_bytes=case.block_bytes,
            degree=case.degree,
            verify=verify,
            places=places,
            record=case.record,
        )
        with created as variable:
            received = variable.value
            end_s = time.monotonic()
            after = resource.getrusage(resource.RUSAGE_SELF)
            if not case.killed:
                # Finished ranks leave the cores to the others.
                comm.barrier()
            if zlib.crc32(received.data) != expected:
                raise AssertionError("the received bytes differ from the bytes of the root")
            found.append(
                {
                    # All hosts are on one machine and share one clock.
                    "begin_s": begin_s,
                    "end_s": end_s,
                    "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
                    "switches": after.ru_nvcsw + after.ru_nivcsw - before.ru_nvcsw - before.ru_nivcsw,
                    "serialization_s": variable.serialization_s,
                    "fetches": variable.recorded().fetches if case.record else [],
                }
            )
        disk.write_text(folder / f"{comm.rank}.json", json.dumps(found))
    if case.killed:
        _wait_for_survivors(ends, comm.rank, comm.world_size - 1 - len(case.killed))
    else:
        comm.close()


def _wait_for_survivors(ends: Path, rank: int, survivor_count: int) -> None:
    """Keep the root alive after its communicator has failed, until all surviving receivers have the value."""
    with open(ends, "r+b" if rank == 0 else "wb", buffering=0) as fifo:
        if rank > 0:
            fifo.write(b".")
            return
        while survivor_count > 0:
            survivor_count -= len(fifo.read(survivor_count))


def _die(lab: str | None) -> None:
    """End this process without cleanup, as SIGKILL does, and disconnect its host first if a lab is named."""
    try:
        if lab is not None:
            links.disconnect(registry.prefix(lab), [socket.gethostname()])
    finally:
        os._exit(KILLED_STATUS)


if __name__ == "__main__":
    main(BroadcastCase(**json.loads(sys.argv[1])), Path(sys.argv[2]))
