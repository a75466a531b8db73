"""The engines of the conformance suite, behind a common interface."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle
import conformance_programs
import injected_faults
import ripieno as rp
import watching
from spark_sessions import CLUSTER

for _module in (conformance_programs, injected_faults, watching):
    cloudpickle.register_pickle_by_value(_module)

#: Options of `ripieno.launch` by the name of the engine's fixture ("local" has no fixture).
ENGINES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "local": lambda _: {"engine": "local"},
    "dask_client": lambda client: {"engine": "dask", "client": client},
    "ray_nodes": lambda _: {"engine": "ray"},
    "spark_local": lambda spark: {"engine": "spark", "spark": spark},
    "spark_cluster": lambda spark: {"engine": "spark", "spark": spark},
    "spark_standalone": lambda spark: {"engine": "spark", "spark": spark},
    "spark_yarn": lambda spark: {"engine": "spark", "spark": spark},
    "slurm": lambda _: {"engine": "slurm"},
    "open_mpi": lambda command: {"engine": "mpirun", "command": command, "slots": SLOTS},
    "hydra": lambda command: {"engine": "mpirun", "command": command, "slots": SLOTS},
}
NEW_SESSION = f"__import__('spark_sessions').Sessions().of({CLUSTER!r})"
#: The same options from another process, as Python expressions by fixture name. A Spark session belongs to one process.
DRIVERS: dict[str, Callable[[Any], str]] = {
    "local": lambda _: repr({"engine": "local"}),
    "dask_client": lambda client: repr({"engine": "dask", "address": client.scheduler.address}),
    "ray_nodes": lambda nodes: repr({"engine": "ray", "address": nodes.address}),
    "spark_cluster": lambda _: f"{{'engine': 'spark', 'spark': {NEW_SESSION}}}",
    "slurm": lambda _: repr({"engine": "slurm"}),
    "open_mpi": lambda command: repr({"engine": "mpirun", "command": command, "slots": SLOTS}),
    "hydra": lambda command: repr({"engine": "mpirun", "command": command, "slots": SLOTS}),
}
#: One engine of each kind: its own processes, tasks of a running cluster, processes of another launcher. The whole
#: suite runs on these. The others run the tests marked `every_engine`, and in `make test-all` all tests.
WHOLE_SUITE = ("local", "dask_client", "open_mpi")
#: Number of slots of every engine.
SLOTS = 4


@dataclass
class TestedEngine:
    """A running job of an engine, shared by successive tests and restarted after a test has ended it.

    Attributes
    ----------
    name : str
        The fixture of the engine.
    options : dict
        Options of `ripieno.launch`.
    driver : str, optional
        Options for another process, as a Python expression.
    events : list of dict
        Events emitted by the ranks of the job.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    driver: str | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    _job: rp.Job | None = None

    @property
    def counts_other_jobs(self) -> bool:
        """Return whether the engine counts slots of other jobs. MPI launchers count only slots of their own job."""
        return self.name not in ("open_mpi", "hydra")

    def launch(self, workers: int, **options: Any) -> rp.Job:
        """Launch another job, which the caller closes."""
        return rp.launch(workers=workers, threads=1, **self.options, **options)

    def job(self) -> rp.Job:
        """Return the job, with a rank in every slot."""
        if self._job is None or self._job.over:
            self._job = self.launch(SLOTS, on_event=self.events.append)
        self.events.clear()
        return self._job

    def works(self) -> bool:
        """Return whether the ranks of the job compute a correct result together. Starts the job if necessary."""
        rows = self.job().run(conformance_programs.summed, 1000)
        return rows == [(rank, SLOTS, True) for rank in range(SLOTS)]

    def close(self) -> None:
        """Close the job, which releases its slots."""
        job, self._job = self._job, None
        if job is not None:
            job.close()


def resource_counts() -> dict[str, int]:
    """Return the numbers of threads, sockets and child processes of this process."""
    return {
        "threads": threading.active_count(),
        "sockets": conformance_programs.held(None)["sockets"],
        "processes": len(_descendants(os.getpid())),
    }


def _descendants(pid: int) -> set[int]:
    children: dict[int, set[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, _, rest = stat.read_text().partition(" ")
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, parent = rest.rpartition(")")[2].split()[:2]
        if state != "Z":
            children.setdefault(int(parent), set()).add(int(number))
    found: set[int] = set()
    left = [pid]
    while left:
        new = children.get(left.pop(), set()) - found
        found |= new
        left += new
    return found
