"""Provide MPI launchers as an engine: ranks are the processes of one `mpirun` or `mpiexec`, without MPI.

The launcher passes the invitation in the environment of its processes, and ends all of them after a failure. Ranks join
through the member server.
Requires Open MPI's mpirun or MPICH's mpiexec.hydra, and the same Python and ripieno, at the same path, on all hosts.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from typing import ClassVar

from ripieno._checks import check_count
from ripieno.errors import EngineError, TooFewSlots
from ripieno.host import usable_cores
from ripieno.launch.engine.contract import Engine, Handover, Run
from ripieno.launch.engine.member_server import Invitation
from ripieno.launch.engines import started
from ripieno.launch.limits import MANAGER_S

_FAILURE = r"process rank (?P<rank>\d+) with PID \d+ on node \S+ exited on (?P<cause>.*)"
# Options of Open MPI that pass the invitation to all ranks, and allow more ranks than cores.
_OPEN_MPI = [*(word for name in started.VARIABLES for word in ("-x", name)), "--oversubscribe"]
# Hydra ends all ranks after a failure without naming the failed rank. A shell around each rank prints it.
_HYDRA_FAILURE = r"^ripieno: rank (?P<rank>\d+): (?P<cause>killed by signal \d+)$"
_HYDRA_WRAPPER = [
    "sh",
    "-c",
    '"$@" $$; status=$?; '
    '[ $status -le 128 ] || echo "ripieno: rank $PMI_RANK: killed by signal $((status - 128))" >&2; exit $status',
    "sh",
]


class MpirunEngine(Engine):
    """Runs ranks as processes of an MPI launcher.

    Parameters
    ----------
    command : str
        Program of the launcher.
    arguments : sequence of str
        Additional options of the launcher: ``["--hostfile", "hosts"]``.
    host : str
        Address of this process for the hosts; the default works on this host only.
    slots : int, optional
        Number of slots; by default one per core of this host.

    Raises
    ------
    EngineError
        If the launcher is missing, or is neither Open MPI's nor hydra.
    """

    NAME: ClassVar[str] = "mpirun"
    OPTIONS: ClassVar[frozenset[str]] = frozenset({"command", "arguments", "host", "slots"})

    def __init__(
        self,
        *,
        command: str = "mpirun",
        arguments: Sequence[str] = (),
        host: str = "127.0.0.1",
        slots: int | None = None,
    ) -> None:
        if slots is not None:
            check_count("slots", slots)
        self._command = started.program(command, self.NAME)
        self._arguments = list(arguments)
        self._host = host
        self._slots = usable_cores() if slots is None else slots
        self._is_hydra = _is_hydra(self._command)

    def slots(self) -> int:
        """Return the given number of slots, or the cores of this host."""
        return self._slots

    def host(self) -> str:
        """Return the given address, or loopback."""
        return self._host

    def handover(self) -> Handover:
        """Return the security of the launcher, which reaches hosts by ssh and then uses its own connections."""
        advice = "MPI launchers do not encrypt: keep the hosts in a network that you trust"
        return Handover("in the environment of the launcher's processes", False, False, advice)

    def start(self, workers: int, invitation: Invitation) -> Run:
        """Start the processes of one launcher.

        Raises
        ------
        TooFewSlots
            If `workers` exceeds the slots. The launcher does not know of other processes there.
        """
        if workers > self._slots:
            advice = "launch fewer workers, or pass the number of slots: slots=…"
            raise TooFewSlots(self.NAME, workers, self._slots, self._slots, advice)
        command = [self._command, *([] if self._is_hydra else _OPEN_MPI), "-n", str(workers), *self._arguments]
        if self._is_hydra:
            return started.StartedRun(command, invitation, _HYDRA_FAILURE, _HYDRA_WRAPPER)
        return _OpenMpiRun(command, invitation)


class _OpenMpiRun(started.StartedRun):
    """A run with its own session folder: if two mpirun of Open MPI 4 create the same folder together, both may fail."""

    def __init__(self, command: Sequence[str], invitation: Invitation) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ripieno-mpirun-", ignore_cleanup_errors=True)
        variables = {"OMPI_MCA_orte_local_tmpdir_base": self._folder.name}
        super().__init__(command, invitation, _FAILURE, variables=variables)

    def end(self) -> None:
        """End the run like `StartedRun`, and remove the session folder."""
        super().end()
        self._folder.cleanup()


def _is_hydra(command: str) -> bool:
    """Return whether the launcher is hydra rather than Open MPI's."""
    version = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=MANAGER_S).stdout
    if "HYDRA" in version:
        return True
    if "Open MPI" in version or "OpenRTE" in version:
        return False
    raise EngineError(f"{command} is neither Open MPI's launcher nor hydra, by its --version")
