"""Provide the Slurm engine: ranks are the tasks of one `srun`, in the current allocation or in a new one.

srun delivers the invitation in the environment of its tasks and reports failed tasks. Ranks join through the member
server.
Requires srun, sinfo, squeue and scontrol, and the same Python and ripieno, at the same path, on all nodes.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from typing import ClassVar

from ripieno._checks import check_count
from ripieno.errors import EngineError, TooFewSlots
from ripieno.launch.deadline import Deadline, pauses
from ripieno.launch.engine.contract import Engine, Handover, Run
from ripieno.launch.engine.member_server import Invitation
from ripieno.launch.engines import started
from ripieno.launch.limits import MANAGER_S
from ripieno.launch.script import launchers
from ripieno.launch.script.addresses import address_towards

# srun may survive other errors. If it does not, it exits, and its last line is reported.
_FAILURE = r"^srun: error: \S+: tasks? (?:(?P<rank>\d+)|[\d,-]+): (?P<cause>.*)"
# Nodes of a partition (the default one has an asterisk) in one state: allocated, idle, other and total CPUs.
_PARTITION = r"^(?P<name>\S+?)(?P<default>\*?)\s+(?P<state>\S+)\s+\d+/(?P<idle>\d+)/\d+/(?P<total>\d+)$"
# States of nodes that clean up after a job. They accept no new job, but their CPUs count as idle.
_COMPLETING = re.compile(r"comp\*?|.*\+")


class SlurmEngine(Engine):
    """Runs ranks as tasks of a Slurm step.

    Parameters
    ----------
    cpus_per_worker : int
        CPUs of each task, and threads of each rank.
    partition : str, optional
        The partition; by default Slurm's default partition.
    arguments : sequence of str
        Further options of srun: ``["--time=10", "--mem-per-cpu=2G"]``.
    immediate_s : int
        Maximum wait until all tasks can start. While nodes clean up after this user's jobs, it is up to 30 s.
    host : str, optional
        Address of this process for the nodes; by default the local address on the route to Slurm's controller.

    Raises
    ------
    EngineError
        If Slurm is not available.
    """

    NAME: ClassVar[str] = "slurm"
    OPTIONS: ClassVar[frozenset[str]] = frozenset({"cpus_per_worker", "partition", "arguments", "immediate_s", "host"})

    def __init__(
        self,
        *,
        cpus_per_worker: int = 1,
        partition: str | None = None,
        arguments: Sequence[str] = (),
        immediate_s: int = 5,
        host: str | None = None,
    ) -> None:
        check_count("cpus_per_worker", cpus_per_worker)
        check_count("immediate_s", immediate_s)
        self.threads = cpus_per_worker
        # The argument takes precedence over the variable, as in srun.
        self._partition = partition or os.environ.get("SLURM_PARTITION")
        self._arguments = list(arguments)
        self._immediate_s = immediate_s
        self._host = host
        self._srun = started.program("srun", self.NAME)

    def slots(self) -> int:
        """Return the CPUs of the allocation or partition, divided by the CPUs per worker."""
        return self._cpus()[1] // self.threads

    def host(self) -> str:
        """Return the given address, or the local address on the route to Slurm's controller."""
        if self._host is not None:
            return self._host
        controller = _controller()
        try:
            return address_towards(controller)
        except OSError as error:
            raise EngineError(
                f"Slurm's controller {controller}: {error}; pass an address that nodes reach, host=…"
            ) from None

    def handover(self) -> Handover:
        """Return the security of srun, which starts tasks of this user only, authenticated by Slurm's credentials."""
        advice = "Slurm does not encrypt: keep its nodes in a network that you trust"
        return Handover("in the environment of srun's tasks", True, False, advice)

    def start(self, workers: int, invitation: Invitation) -> Run:
        """Start a step of `workers` tasks, which Slurm starts within `immediate_s` or not at all.

        Raises
        ------
        TooFewSlots
            If fewer CPUs are free than the tasks need.
        """
        immediate = Deadline(self._immediate_s)
        is_over = False
        # While nodes clean up after a job of this user, their CPUs are not free. Slurm does not report when they are.
        for _ in pauses(max(MANAGER_S, self._immediate_s)):
            free, total = (cpus // self.threads for cpus in self._cpus())
            if free >= workers or total < workers or is_over:
                break
            # Busy nodes may have become free since the last count, so raise only after a final count.
            is_over = not immediate.left_s and not _is_completing()
        if free < workers:
            raise TooFewSlots(self.NAME, workers, free, total, self._advice())
        # Steps share the CPUs of an allocation only with --exact.
        own = ["--exact"] if _in_allocation() else []
        options = ["--kill-on-bad-exit", f"--immediate={self._immediate_s}", "--export=ALL"]
        size = [f"--ntasks={workers}", f"--cpus-per-task={self.threads}"]
        where = [] if self._partition is None else [f"--partition={self._partition}"]
        command = [self._srun, *options, *size, *own, *where, *self._arguments]
        return started.StartedRun(command, invitation, _FAILURE)

    def _cpus(self) -> tuple[int, int]:
        """Return the free CPUs, as reported by Slurm, and the total CPUs."""
        if _in_allocation():
            total = sum(launchers.counts_of_nodes(os.environ["SLURM_JOB_CPUS_PER_NODE"]))
            return total, total
        requested = None if self._partition is None else self._partition.split(",")
        found: dict[str, tuple[int, int]] = {}
        for line in re.finditer(_PARTITION, _answer(["sinfo", "--noheader", "--format=%P %t %C"]), re.M):
            if line["default"] if requested is None else line["name"] in requested:
                idle, total = found.get(line["name"], (0, 0))
                idle += 0 if _COMPLETING.fullmatch(line["state"]) else int(line["idle"])
                found[line["name"]] = idle, total + int(line["total"])
        if not found:
            where = "default partition" if requested is None else f"partition {self._partition}"
            raise EngineError(f"Slurm has no {where} (sinfo): pass partition=…")
        # srun uses one of several partitions.
        return max(found.values())

    def _advice(self) -> str:
        where = "the allocation of this job" if _in_allocation() else "Slurm (sinfo -o %C)"
        return (
            f"each takes {self.threads} CPUs of {where}: launch fewer workers, take a larger allocation, or wait for "
            "other jobs to end (immediate_s=…)"
        )


def _in_allocation() -> bool:
    return bool(os.environ.get("SLURM_JOB_ID") and os.environ.get("SLURM_JOB_CPUS_PER_NODE"))


def _is_completing() -> bool:
    """Return whether nodes clean up after a job of this user."""
    return bool(_answer(["squeue", "--noheader", f"--user={os.getuid()}", "--states=COMPLETING"]).strip())


def _controller() -> str:
    """Return the address of Slurm's controller."""
    line = re.search(
        r"^SlurmctldHost\[0\]\s*=\s*([^\s(]+)(?:\(([^)]+)\))?", _answer(["scontrol", "show", "config"]), re.M
    )
    if line is None:
        raise EngineError(
            "scontrol show config names no SlurmctldHost: pass an address of this process that nodes reach, host=…"
        )
    return line[2] or line[1]


def _answer(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            [started.program(command[0], SlurmEngine.NAME), *command[1:]],
            capture_output=True,
            text=True,
            timeout=MANAGER_S,
        )
    except subprocess.TimeoutExpired:
        raise EngineError(f"{command[0]} has not answered for {MANAGER_S:g} s: is Slurm's controller up?") from None
    if done.returncode:
        raise EngineError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
