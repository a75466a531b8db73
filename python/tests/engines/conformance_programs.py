"""Rank programs that test the guarantees of an engine. They are pickled by value: no engine needs this file."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import ripieno as rp
from injected_faults import kill_once

# Longer than any test waits.
NEVER_S = 600.0
# Long enough for a peer to have failed meanwhile.
AWHILE_S = 0.3


class Wrong(Exception):
    """A user-defined exception with more arguments than a message."""

    def __init__(self, rank: int, reason: str) -> None:
        super().__init__(rank, reason)
        self.rank = rank


def summed(comm, element_count: int) -> tuple[int, int, bool]:
    """Return rank, world size, and whether every element of the sum of all ranks' vectors is correct."""
    vector = np.arange(element_count, dtype=np.float64) + comm.rank
    total = comm.allreduce(vector)
    expected = comm.world_size * np.arange(element_count) + sum(range(comm.world_size))
    return comm.rank, comm.world_size, bool(np.array_equal(total, expected))


def fail(comm, culprit: int, how: str, others: str) -> None:
    """Rank `culprit` fails and emits the time of the failure, while the others are in the state `others`."""
    pause = threading.Event()
    if comm.rank == culprit:
        for peer in range(comm.world_size):
            if peer != culprit:
                comm.recv(peer)
        if others == "in a collective":
            pause.wait(AWHILE_S)
        comm.emit({"fails at": time.time()})
        FAILURES[how](comm)
    comm.send("here", to=culprit)
    if others != "in a collective":
        pause.wait(NEVER_S if others == "computing" else AWHILE_S)
    comm.allreduce(np.ones(1000))


def sum_and_kill_rank(comm, folder: Path) -> int:
    """Return the number of ranks. In the first run rank 1 is killed before."""
    kill_once(comm, folder, (1,))
    return comm.allreduce(1)


def fit_and_kill_rank(comm, folder: Path, rows: np.ndarray) -> tuple[int | None, np.ndarray]:
    """Run a fit that checkpoints each iteration. In the fourth iteration of the first run rank 0 is killed."""

    def kill(event: dict[str, Any]) -> None:
        mark = folder / "killed"
        if event["event"] == "iteration" and event["iteration"] == 4 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    parameters = {"n_clusters": 7, "random_state": 3, "max_iter": 6, "tol": 0.0, "checkpoint": folder / "kept"}
    model = rp.KMeans(**parameters, options=rp.KMeans.Options(every=1), on_iteration=kill).fit(rows, comm=comm)
    return model.resumed_from_, model.cluster_centers_


def rows_and_partitions(folder: Path) -> tuple[np.ndarray, str]:
    """Return rows in clear clusters, and a partition file of them with two replicas of three partitions."""
    random = np.random.default_rng(5)
    rows = random.normal(size=(400, 5)) + 9 * random.integers(0, 4, size=400)[:, None]
    np.save(folder / "all.npy", rows)
    options = {"partitions": 3, "replicas": 2, "nodes": ["a", "b"]}
    return rows, str(rp.input.divide(folder / "all.npy", folder / "parts", **options))


def fit_where_rows_lie(comm, rows: np.ndarray, partition_file: str) -> tuple[float, np.ndarray, float]:
    """Fit on own rows and on a partition file.

    The last rank has no rows. Without `rows="own"` the difference is an error on every rank. Returns the inertia and
    all ranks' labels of the own rows, and the inertia of the partition file.
    """
    last = comm.world_size - 1
    mine = None if comm.rank == last else np.array_split(rows, last)[comm.rank]
    model = rp.KMeans(4, random_state=0)
    try:
        model.fit(mine, comm=comm)
        raise AssertionError("a fit on different rows was not refused")
    except rp.CollectiveMismatch as error:
        assert "rows='own'" in str(error), error
    own = model.fit(mine, comm=comm, rows="own")
    inertia, labels = own.inertia_, comm.allgather(own.labels_)
    parts = model.fit(partition_file, comm=comm)
    assert comm.allreduce(len(parts.labels_)) == len(rows)
    return inertia, np.concatenate(labels), parts.inertia_


def _raise(comm) -> None:
    raise Wrong(comm.rank, "on purpose")


def _kill(comm) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _exit(comm) -> None:
    sys.exit(3)


def _stop(comm) -> None:
    comm.emit({"stands still": os.getpid()})
    os.kill(os.getpid(), signal.SIGSTOP)
    # Other threads may be stopped before this one.
    threading.Event().wait(NEVER_S)


FAILURES: dict[str, Callable[[Any], None]] = {"raise": _raise, "kill": _kill, "exit": _exit, "stop": _stop}


def many_sums(comm, job: int, round_count: int) -> list[float]:
    """Return sums that only ranks of this job can produce."""
    return [float(comm.allreduce(np.full(1000, 1000.0**job + round))[0]) for round in range(round_count)]


def told_and_returned(comm, array: np.ndarray) -> tuple[str, np.ndarray | None]:
    """Return a digest of the argument on every rank, and from the last rank the whole array, doubled."""
    digest = hashlib.sha256(np.ascontiguousarray(array)).hexdigest()
    return digest, array * 2 if comm.rank == comm.world_size - 1 else None


def counted(comm) -> int:
    """Return the number of times that this rank has run this function in this job."""
    comm.cache["runs"] = comm.cache.get("runs", 0) + 1
    return comm.cache["runs"]


def emit(comm, count: int) -> None:
    for step in range(count):
        comm.emit({"step": step, "array": np.full(3, step)})


def print_much(comm, line_count: int) -> float:
    """Print text to both outputs, also below Python's layers, between collectives."""
    for line in range(line_count):
        print(f"line {line} of rank {comm.rank} " + "x" * 100)
        if line % 100 == 0:
            print(f"error {line} of rank {comm.rank}", file=sys.stderr)
    os.write(1, b"by the system's own call\n")
    sys.stdout.flush()
    return float(comm.allreduce(np.ones(1))[0])


def return_what_cannot_travel(comm) -> Any:
    return threading.Lock() if comm.rank == 1 else comm.rank


def held(comm) -> dict[str, int]:
    """Return the resources of this rank's process: PID, number of threads, and sockets, including the job's."""
    sockets = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            sockets += os.readlink(entry).startswith("socket:")
        except FileNotFoundError:
            continue
    return {"pid": os.getpid(), "threads": len(os.listdir("/proc/self/task")), "sockets": sockets}


def clustered(comm, rows: np.ndarray, n_clusters: int) -> tuple[np.ndarray, list[np.ndarray], float]:
    """Run K-means from the first rows for 5 iterations; return centroids, every rank's labels, and inertia."""
    from ripieno.algorithms.kmeans import program
    from ripieno.input.matrix import RowsInMemory

    options = program.KMeansOptions(n_clusters, "array", [rows[:n_clusters]], 5, 0)
    clustering = program.fit(comm, RowsInMemory(rows), None, options).clustering
    return clustering.centroids, comm.allgather(clustering.labels), clustering.inertia


def variable_used(comm, values):
    """Return the numbers that each rank reads from each root's value; `values` has a strategy for each root."""
    seen = []
    for root, strategy in enumerate(values):
        given = {"table": [np.arange(200_000) + root]} if comm.rank == root else None
        with comm.broadcast_variable(given, root, strategy=strategy, per_host=root % 2 == 0) as variable:
            (table,) = variable.value["table"]
            assert not table.flags.writeable
            seen.append(int(table[comm.rank]))
    return seen


def handle_used(comm, table):
    """Return the value of a broadcast handle on this rank."""
    return int(table.value[comm.rank])


def distributed(comm, files, out):
    """Return the results of each file at the root, and its bytes at this rank."""
    rows = comm.distribute(files, f"{out}/{{rank}}/") if comm.rank == 0 else comm.distribute()
    states = {(row.rank, row.state, row.error) for row in rows}
    names = [os.path.join(out, str(comm.rank), os.path.basename(name)) for name in comm.broadcast(files)]
    digests = []
    for name in names:
        with open(name, "rb") as file:
            digests.append(hashlib.sha256(file.read()).hexdigest())
    return states, digests
