"""A private Slurm on this host: munged, slurmctld and two slurmd from the installed packages, all on loopback."""

from __future__ import annotations

import getpass
import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from watching import comes_true

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun")
# The first name resolves to this host everywhere.
NODES = ("127.0.0.1", "n2")
CPUS = 2
READY_S = 30.0


@dataclass(frozen=True)
class SlurmCluster:
    """A running cluster of 2 nodes with 2 CPUs each.

    Attributes
    ----------
    variables
        Environment variables for Slurm's commands.
    held
        While a file of this name exists, nodes do not clean up after jobs, which stay "completing".
    """

    variables: dict[str, str]
    held: Path

    def run(self, *command: object, timeout_s: float = 60.0, cwd: Path | None = None, **more: str) -> CommandResult:
        """Run a command to its end, with `more` in the environment."""
        environment = {**os.environ, "PATH": _path(), **self.variables, **more}
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, timeout=timeout_s, env=environment, cwd=cwd
        )
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def is_idle(self) -> bool:
        """Return whether no job is left and every node is free."""
        queue = self.run("squeue", "-h").out
        idle = self.run("sinfo", "-h", "-p", "debug", "-t", "idle", "-o", "%D").out
        return not queue and idle.strip() == str(len(NODES))


@dataclass(frozen=True)
class CommandResult:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


def missing() -> str | None:
    """Return the reason why no cluster can run here, or None."""
    absent = [program for program in PROGRAMS if shutil.which(program, path=_path()) is None]
    if absent:
        return f"{', '.join(absent)} not installed: apt-get install slurmctld slurmd slurm-client munge"
    return None


@contextmanager
def started(folder: Path) -> Iterator[SlurmCluster]:
    """Run a cluster with its files in `folder`, until the context ends."""
    for name in ("state", "munge", *(f"spool/{node}" for node in NODES)):
        (folder / name).mkdir(parents=True)
    folder.chmod(0o755)
    key = folder / "munge/key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    held, epilog = folder / "held", folder / "epilog"
    epilog.write_text(f"#!/bin/sh\nwhile [ -e {held} ]; do sleep 0.1; done\n")
    epilog.chmod(0o755)
    configuration = folder / "slurm.conf"
    configuration.write_text(_configuration(folder, epilog))
    variables = {"SLURM_CONF": str(configuration)}
    munge = [f"--{name}={folder}/munge/{name}" for name in ("socket", "log-file", "pid-file", "seed-file")]
    daemons = [
        ["munged", "--force", "--foreground", f"--key-file={key}", *munge],
        ["slurmctld", "-D", "-f", str(configuration)],
        *(["slurmd", "-D", "-N", node, "-f", str(configuration)] for node in NODES),
    ]
    processes: list[subprocess.Popen[bytes]] = []
    cluster = SlurmCluster(variables, held)
    try:
        for command in daemons:
            with (folder / f"{command[0]}-{len(processes)}.out").open("wb") as output:
                environment = {**os.environ, "PATH": _path(), **variables}
                processes.append(subprocess.Popen(command, stdout=output, stderr=output, env=environment))
            if command[0] == "munged":
                assert comes_true((folder / "munge/socket").exists, READY_S), "munged does not start"
        assert comes_true(cluster.is_idle, READY_S), cluster.run("sinfo", "-R").out + cluster.run("sinfo").err
        yield cluster
        cluster.run("scancel", f"--user={getpass.getuser()}")
        assert comes_true(cluster.is_idle, READY_S), cluster.run("squeue").out
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(READY_S)


def _path() -> str:
    # The path of some users lacks the folders of daemons.
    return os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))


def _configuration(folder: Path, epilog: Path) -> str:
    host, user = socket.gethostname(), getpass.getuser()
    controller, *ports = _free_ports(1 + len(NODES))
    nodes = [
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={CPUS} RealMemory=1000 State=UNKNOWN"
        for node, port in zip(NODES, ports, strict=True)
    ]
    return "\n".join(
        [
            "ClusterName=test",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={controller}",
            "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny",
            f"SlurmUser={user}",
            f"SlurmdUser={user}",
            f"AuthInfo=socket={folder}/munge/socket",
            f"StateSaveLocation={folder}/state",
            f"SlurmdSpoolDir={folder}/spool/%n",
            f"SlurmctldPidFile={folder}/slurmctld.pid",
            f"SlurmdPidFile={folder}/slurmd-%n.pid",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "MpiDefault=none",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_CPU",
            "SlurmdParameters=config_overrides",
            "ReturnToService=2",
            "KillWait=5",
            f"Epilog={epilog}",
            *nodes,
            "PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
            f"PartitionName=small Nodes={NODES[-1]} MaxTime=INFINITE State=UP",
            "",
        ]
    )


def _free_ports(count: int) -> list[int]:
    reserved = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in reserved]
    for each in reserved:
        each.close()
    return ports
