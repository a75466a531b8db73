"""A minimal engine: a process per rank, which gets its invitation on its standard input."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

from ripieno.launch.engine.contract import Engine, Run
from ripieno.launch.engine.member_server import Invitation

MEMBER = "import pickle, sys; from ripieno.launch.member import serve; serve(**pickle.load(sys.stdin.buffer))"


class Processes(Run):
    """Rank processes; `logs` has the standard error of each, once it has ended."""

    #: Time that each process has to end.
    grace_s = 5.0

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[subprocess.Popen[bytes]] = []
        self.logs: list[str] = []

    def add(self, invitation: Invitation, rank: int, **options: Any) -> None:
        """Start a rank."""
        pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
        child = subprocess.Popen([sys.executable, "-c", MEMBER], **pipes)
        child.stdin.write(pickle.dumps({"invitation": invitation, "rank": rank, **options}))
        child.stdin.close()
        self.processes.append(child)

    def end(self) -> None:
        while self.processes:
            child = self.processes.pop(0)
            try:
                child.wait(self.grace_s)
            except subprocess.TimeoutExpired:
                child.kill()
            with child.stderr:
                self.logs.append(child.stderr.read().decode())
            child.wait()


class StandIn(Engine):
    """An engine with 8 slots; `absent` of them never start their rank."""

    NAME = "stand-in"

    def __init__(self, absent: int = 0) -> None:
        self.absent = absent
        self.run = Processes()

    def slots(self) -> int:
        return 8

    def host(self) -> str:
        return "127.0.0.1"

    def start(self, workers: int, invitation: Invitation) -> Run:
        self.run = Processes()
        for rank in range(workers - self.absent):
            self.run.add(invitation, rank)
        return self.run

    def launch(self, workers: int, **options: Any):
        """Launch a job here, with the options that `ripieno.launch` passes."""
        return self.job(workers, **{"threads": 1, "on_event": None, "trace": None, **options})
