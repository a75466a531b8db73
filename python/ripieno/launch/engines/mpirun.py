"""MPI launchers: the processes of one `mpirun` or `mpiexec`, without MPI.

The launcher brings the invitation in the environment of its processes, and ends all when one has failed; ranks meet by
way of the member server.
Needs Open MPI's mpirun or MPICH's mpiexec.hydra, and the same Python and ripieno, at the same place, on all hosts.
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

_FAILURE = r"process rank (?P<rank>\d+) with PID \d+ on node \S+ exited on (?P<cause>.*)"
# What Open MPI has to be told so that all ranks get the invitation, and may outnumber its cores.
_OPEN_MPI = [*(word for name in started.VARIABLES for word in ("-x", name)), "--oversubscribe"]
# Hydra ends all others with the first that fails, and does not tell which one that was: a shell around each rank does.
_HYDRA_FAILURE = r"^ripieno: rank (?P<rank>\d+): (?P<cause>killed by signal \d+)$"
_HYDRA_WRAPPER = [
    "sh",
    "-c",
    '"$@" $$; status=$?; '
    '[ $status -le 128 ] || echo "ripieno: rank $PMI_RANK: killed by signal $((status - 128))" >&2; exit $status',
    "sh",
]


class MpirunEngine(Engine):
    """Ranks as processes of an MPI launcher.

    Parameters
    ----------
    command : str
        The launcher.
    arguments : sequence of str
        More options of it: ``["--hostfile", "hosts"]``.
    host : str
        The address of this process that the hosts reach; the default is for this host alone.
    slots : int, optional
        How many ranks there is room for; by default one per core of this host.

    Raises
    ------
    EngineError
        If there is no such launcher, or it is neither Open MPI's nor hydra.
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
        """As told, or the cores of this host."""
        return self._slots

    def host(self) -> str:
        """As told, or loopback."""
        return self._host

    def handover(self) -> Handover:
        """By the launcher, which reaches other hosts by ssh first and by connections of its own then."""
        advice = "MPI launchers do not encrypt: keep the hosts in a network that you trust"
        return Handover("in the environment of the launcher's processes", False, False, advice)

    def start(self, workers: int, invitation: Invitation) -> Run:
        """Processes of one launcher.

        Raises
        ------
        TooFewSlots
            If more workers are asked for than there are slots. What else runs there a launcher does not know.
        """
        if workers > self._slots:
            advice = "launch fewer workers, or say how many there is room for: slots=…"
            raise TooFewSlots(self.NAME, workers, self._slots, self._slots, advice)
        command = [self._command, *([] if self._is_hydra else _OPEN_MPI), "-n", str(workers), *self._arguments]
        if self._is_hydra:
            return started.StartedRun(command, invitation, started.matching(_HYDRA_FAILURE), _HYDRA_WRAPPER)
        return _OpenMpiRun(command, invitation)


class _OpenMpiRun(started.StartedRun):
    """With a session folder of its own: of two mpirun of Open MPI 4 that make the same one at once, both may fail."""

    def __init__(self, command: Sequence[str], invitation: Invitation) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ripieno-mpirun-", ignore_cleanup_errors=True)
        variables = {"OMPI_MCA_orte_local_tmpdir_base": self._folder.name}
        super().__init__(command, invitation, started.matching(_FAILURE), variables=variables)

    def end(self) -> None:
        """As of others, and nothing is left in the folder."""
        super().end()
        self._folder.cleanup()


def _is_hydra(command: str) -> bool:
    """Whether the launcher is hydra, and not Open MPI's."""
    version = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=started.ANSWER_S).stdout
    if "HYDRA" in version:
        return True
    if "Open MPI" in version or "OpenRTE" in version:
        return False
    raise EngineError(f"{command} is neither Open MPI's launcher nor hydra, by its --version")
