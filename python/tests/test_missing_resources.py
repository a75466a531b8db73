"""Ranks that lack descriptors or memory for a link to another rank: the error names them and a remedy."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import ripieno as rp
from varied import exhaustively


def exhaust(lacking: str) -> None:
    """Leave this process no more descriptors, or only 64 MiB more memory."""
    size_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    kinds = {"descriptors": (resource.RLIMIT_NOFILE, 3), "memory": (resource.RLIMIT_AS, size_bytes + (64 << 20))}
    kind, value = kinds[lacking]
    resource.setrlimit(kind, (value, resource.getrlimit(kind)[1]))


def receive(comm: rp.Communicator, lacking: str, mark: Path) -> None:
    """Rank 1 lacks a resource for mapping shared memory of rank 0."""
    # 512 MiB, never written.
    received = rp.empty(1 << 26, np.float64)
    # The link exists now.
    comm.broadcast(out=np.ones(3))
    if comm.rank == 1:
        exhaust(lacking)
    comm.broadcast(out=received)


def connect(comm: rp.Communicator, lacking: str, mark: Path) -> None:
    """Rank 1 lacks a resource for opening the first link between it and rank 2."""
    if comm.rank == 1:
        exhaust(lacking)
        comm.send_into(np.ones(3), 2)
    elif comm.rank == 2:
        comm.recv(1, out=np.ones(3))


def accept(comm: rp.Communicator, lacking: str, mark: Path) -> None:
    """Rank 1 lacks a resource for accepting the first connection of rank 0."""
    if comm.rank == 1:
        exhaust(lacking)
        # This needs no descriptor.
        mark.mkdir()
        comm.recv(0, out=np.ones(3))
    elif comm.rank == 0:
        while not mark.exists():
            os.sched_yield()
        comm.send_into(np.ones(3), 1)


def share(comm: rp.Communicator, lacking: str, mark: Path) -> None:
    """Rank 1 lacks a resource for a broadcast variable."""
    if comm.rank == 1:
        exhaust(lacking)
    comm.broadcast_variable(1 if comm.rank == 0 else None)


@pytest.mark.parametrize(
    ("program", "lacking", "links"),
    [
        (receive, "descriptors", "shared-memory"),
        (receive, "memory", "shared-memory"),
        (connect, "descriptors", "tcp"),
        (accept, "descriptors", "shared-memory"),
        (share, "descriptors", "tcp"),
        *exhaustively(
            (connect, "descriptors", "shared-memory"),
            (accept, "descriptors", "tcp"),
            (share, "descriptors", "shared-memory"),
        ),
    ],
)
def test_a_rank_that_lacks_resources_for_a_link_is_reported(tmp_path, program, lacking, links):
    advice = {"descriptors": "Too many open files.*ulimit -n", "memory": "Cannot allocate memory.*ulimit -v"}[lacking]
    with rp.launch(3, threads=1, links=links) as job, pytest.raises(rp.RipienoError, match=advice) as caught:
        job.run(program, lacking, tmp_path / "mark")
    failed = caught.value if isinstance(caught.value, rp.RankFailed) else caught.value.__cause__
    assert failed.rank == 1, caught.value


#: A launch of two ranks by a process that may have as many open files as its argument states.
LAUNCH = """
import resource, sys
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
import ripieno as rp
with rp.launch(workers=2, threads=1) as job:
    print(job.run(lambda comm: comm.allreduce(1)))
"""


@pytest.mark.parametrize(
    ("limit", "expected"), [(32, "[2, 2]"), (16, "expected at most 1 processes, because the limit of open files is 16")]
)
def test_a_low_limit_of_open_files_permits_few_ranks(limit, expected):
    done = subprocess.run([sys.executable, "-c", LAUNCH, str(limit)], capture_output=True, text=True)
    assert expected in done.stdout + done.stderr
    assert (done.returncode == 0) == (limit == 32)
