"""Which launcher has started this process as one of its ranks, and what it says of it: read from the environment.

| launcher | known by | identity of the job |
|---|---|---|
| torchrun | RANK, WORLD_SIZE, TORCHELASTIC_RUN_ID | run id, count of restarts, MASTER_PORT |
| ripieno run | RANK, WORLD_SIZE, RIPIENO_TOKEN | none: it gives the token itself |
| Open MPI | OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE | PMIX_NAMESPACE and the key of its transports |
| MPICH, Intel MPI | PMI_RANK, PMI_SIZE | none; the step, on several hosts of Slurm |
| Slurm | SLURM_PROCID, SLURM_STEP_ID and more of a step of srun | job, step and count of restarts |
| Kubernetes | JOB_COMPLETION_INDEX, WORLD_SIZE | none |
| any other | RANK, WORLD_SIZE | none |

The upper ones come first: launchers stand inside each other (torchrun in srun, mpirun in a batch script), and the
variables of the outer one are inherited.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ripieno.errors import RendezvousError

TORCHRUN, RIPIENO, OPEN_MPI, PMI, SLURM, KUBERNETES, OTHER = (
    "torchrun",
    "ripieno run",
    "Open MPI",
    "PMI",
    "Slurm",
    "Kubernetes",
    "the environment",
)
# What makes a process a rank of an MPI launcher, and is passed on to whatever it starts.
MPI_VARIABLES = (
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
)
# What a rank alone is to know, not what it starts.
_SECRETS = ("RIPIENO_TOKEN", "RIPIENO_SECRET")
_taken: dict[str, str] = {}
# Steps above are not srun's: the batch script, the job's container, an interactive shell of salloc.
_LAST_STEP = 0xFFFFFFF0


@dataclass(frozen=True)
class LaunchedRank:
    """What a launcher says of one of its ranks.

    Attributes
    ----------
    launcher
        The launcher's name.
    rank, world_size
        This rank, and how many there are.
    local_rank, local_size
        The same among the ranks of this host; the size is None if the launcher does not tell.
    job
        What only the ranks of this job, and of this attempt at it, share; None if the launcher has no such thing.
    root
        The host of rank 0, if the launcher tells.
    cores
        Cores of this host that the job may use, if the ranks are bound to some of them.
    has_store
        Whether the launcher itself listens on MASTER_PORT.
    """

    launcher: str
    rank: int
    world_size: int
    local_rank: int = 0
    local_size: int | None = None
    job: str | None = None
    root: str | None = None
    cores: int | None = None
    has_store: bool = False

    @property
    def is_alone(self) -> bool:
        """Whether this is the only rank: a process like any other, which needs nobody to meet."""
        return self.world_size == 1 and self.launcher != RIPIENO

    @property
    def on_one_host(self) -> bool:
        """Whether all ranks are known to run on this host."""
        return self.local_size == self.world_size

    @property
    def one_terminal(self) -> bool:
        """Whether the launcher brings what its ranks print to one place, and ends the others when one has failed."""
        return self.launcher in (TORCHRUN, OPEN_MPI, PMI, SLURM)

    def threads(self, usable_cores: int) -> int:
        """This rank's share of the cores of its host, at least 1, if it may use `usable_cores` of them itself."""
        return max(1, min(usable_cores, (self.cores or usable_cores) // (self.local_size or 1)))


def take_secrets() -> None:
    """Take the job's secrets out of the environment, so that no process that this one starts finds them there."""
    _taken.update((name, os.environ.pop(name)) for name in _SECRETS if name in os.environ)


def own_variables() -> Mapping[str, str]:
    """The environment of this process as its launcher made it, with the secrets that were taken out of it."""
    return {**_taken, **os.environ}


def detect(variables: Mapping[str, str]) -> LaunchedRank | None:
    """What a launcher says of this process in `variables`; None if none has started it as a rank.

    Raises
    ------
    RendezvousError
        If a variable is no number, or a rank is beyond the world's size.
    """
    present = {name: value for name, value in variables.items() if value}
    for known_by, place_of in _LAUNCHERS:
        if all(name in present for name in known_by):
            place = place_of(present)
            if place is not None:
                return _checked(place, known_by[0])
    return None


def first_host(nodelist: str) -> str:
    """The first host of a list as Slurm writes it: ``gpu[007-009,12],login1`` begins with ``gpu007``."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])+", nodelist)
    return re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", first[0]) if first else ""


def counts_of_nodes(text: str) -> list[int]:
    """What Slurm tells of each node, tasks or CPUs, in a text such as ``2(x3),1``."""
    groups = re.findall(r"(\d+)(?:\(x(\d+)\))?", text)
    return [int(count) for count, times in groups for _ in range(int(times or 1))]


def number(variables: Mapping[str, str], name: str, default: int | None = None) -> int:
    """The number that a variable holds, or `default` if it is not set."""
    text = variables.get(name) or default
    try:
        return int(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise RendezvousError(f"{name}={text!r}: expected a number") from None


def _torchrun(variables: Mapping[str, str]) -> LaunchedRank:
    attempt = (variables.get(name, "") for name in ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT"))
    has_store = variables.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return _numbered(TORCHRUN, variables, job=" ".join(attempt), has_store=has_store)


def _ripieno(variables: Mapping[str, str]) -> LaunchedRank:
    return _numbered(RIPIENO, variables)


def _other(variables: Mapping[str, str]) -> LaunchedRank:
    return _numbered(OTHER, variables)


def _numbered(
    launcher: str, variables: Mapping[str, str], job: str | None = None, has_store: bool = False
) -> LaunchedRank:
    return LaunchedRank(
        launcher,
        number(variables, "RANK"),
        number(variables, "WORLD_SIZE"),
        number(variables, "LOCAL_RANK", 0),
        _optional(variables, "LOCAL_WORLD_SIZE"),
        job,
        has_store=has_store,
    )


def _open_mpi(variables: Mapping[str, str]) -> LaunchedRank:
    # The namespace counts up from the number of a process; the key is drawn at random for each job.
    names = ("PMIX_NAMESPACE", "OMPI_MCA_orte_precondition_transports")
    job = " ".join(variables[name] for name in names if name in variables)
    return LaunchedRank(
        OPEN_MPI,
        number(variables, "OMPI_COMM_WORLD_RANK"),
        number(variables, "OMPI_COMM_WORLD_SIZE"),
        number(variables, "OMPI_COMM_WORLD_LOCAL_RANK", 0),
        _optional(variables, "OMPI_COMM_WORLD_LOCAL_SIZE"),
        job or None,
        cores=os.cpu_count() if variables.get("OMPI_MCA_orte_bound_at_launch") == "1" else None,
    )


def _pmi(variables: Mapping[str, str]) -> LaunchedRank | None:
    if "SLURM_STEP_ID" in variables and "MPI_LOCALRANKID" not in variables:
        # srun --mpi=pmi2, which tells more itself.
        return None
    # On several hosts of Slurm its processes are a step; steps that came before are no part of a world of one host.
    step = [variables[name] for name in ("SLURM_JOB_ID", "SLURM_STEP_ID") if name in variables]
    local_size, world_size = _optional(variables, "MPI_LOCALNRANKS"), number(variables, "PMI_SIZE")
    return LaunchedRank(
        PMI,
        number(variables, "PMI_RANK"),
        world_size,
        number(variables, "MPI_LOCALRANKID", 0),
        local_size,
        " ".join(step) if len(step) == 2 and local_size != world_size else None,
    )


def _slurm(variables: Mapping[str, str]) -> LaunchedRank | None:
    tasks, node = counts_of_nodes(variables["SLURM_STEP_TASKS_PER_NODE"]), number(variables, "SLURM_NODEID")
    here = variables["SLURM_GTIDS"].count(",") + 1
    # A batch script that was submitted in a step inherits the variables of that one, but has tasks of its own.
    is_inherited = node >= len(tasks) or here != tasks[node]
    if number(variables, "SLURM_STEP_ID") >= _LAST_STEP or is_inherited:
        return None
    names = ("SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
    return LaunchedRank(
        SLURM,
        number(variables, "SLURM_PROCID"),
        number(variables, "SLURM_STEP_NUM_TASKS"),
        number(variables, "SLURM_LOCALID", 0),
        here,
        " ".join(variables.get(name, "0") for name in names),
        first_host(variables.get("SLURM_STEP_NODELIST", "")) or None,
        _optional(variables, "SLURM_CPUS_ON_NODE"),
    )


def _kubernetes(variables: Mapping[str, str]) -> LaunchedRank:
    return LaunchedRank(KUBERNETES, number(variables, "JOB_COMPLETION_INDEX"), number(variables, "WORLD_SIZE"))


def _optional(variables: Mapping[str, str], name: str) -> int | None:
    return number(variables, name) if name in variables else None


def _checked(place: LaunchedRank, name: str) -> LaunchedRank:
    if not 0 <= place.rank < place.world_size:
        raise RendezvousError(f"{name}={place.rank}: expected 0 … {place.world_size - 1}, of {place.world_size} ranks")
    return place


_STEP = (
    "SLURM_PROCID",
    "SLURM_STEP_ID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_NODEID",
    "SLURM_GTIDS",
)
_LAUNCHERS = (
    (("RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"), _torchrun),
    (("RANK", "WORLD_SIZE", "RIPIENO_TOKEN"), _ripieno),
    (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), _open_mpi),
    (("PMI_RANK", "PMI_SIZE"), _pmi),
    (_STEP, _slurm),
    (("JOB_COMPLETION_INDEX", "WORLD_SIZE"), _kubernetes),
    (("RANK", "WORLD_SIZE"), _other),
)
