"""Provide the detection of the launcher that started this process, and of the assigned rank, from the environment.

| launcher | detected by | identity of the job |
|---|---|---|
| torchrun | RANK, WORLD_SIZE, TORCHELASTIC_RUN_ID | run id, count of restarts, MASTER_PORT |
| ripieno run | RANK, WORLD_SIZE, RIPIENO_TOKEN | none: it provides the token itself |
| Open MPI | OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE | PMIX_NAMESPACE and the key of its transports |
| MPICH, Intel MPI | PMI_RANK, PMI_SIZE | none; on several hosts of Slurm the job and step |
| Slurm | SLURM_PROCID, SLURM_STEP_ID and further variables of an srun step | job, step and count of restarts |
| Kubernetes | JOB_COMPLETION_INDEX, WORLD_SIZE | none |
| any other | RANK, WORLD_SIZE | none |

Upper rows take precedence, because launchers may be nested: torchrun in srun, or mpirun in a batch script. Ranks
inherit the variables of the outer launcher.
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
# Variables that identify a rank of an MPI launcher. Its child processes inherit them.
MPI_VARIABLES = (
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
)
# Variables that child processes of a rank must not inherit.
_SECRETS = ("RIPIENO_TOKEN", "RIPIENO_SECRET")
_removed_secrets: dict[str, str] = {}
# Slurm uses larger step ids for batch scripts, containers and interactive shells, which are not started by srun.
_LAST_STEP = 0xFFFFFFF0


@dataclass(frozen=True)
class LaunchedRank:
    """The rank that a launcher assigned to this process.

    Attributes
    ----------
    launcher
        The launcher's name.
    rank, world_size
        This rank, and the number of ranks.
    local_rank, local_size
        The rank and the number of ranks on this host; the size is None if the launcher does not provide it.
    job
        An identity shared only by the ranks of this attempt of the job; None if the launcher has none.
    root
        The host of rank 0, if the launcher provides it.
    cores
        Number of this host's cores that the job may use, if the ranks are bound to some of them.
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
        """Return whether this is the only rank, which needs no rendezvous."""
        return self.world_size == 1 and self.launcher != RIPIENO

    @property
    def on_one_host(self) -> bool:
        """Return whether all ranks are known to run on this host."""
        return self.local_size == self.world_size

    @property
    def one_terminal(self) -> bool:
        """Return whether the launcher collects the output of its ranks, and ends all ranks after a failure."""
        return self.launcher in (TORCHRUN, OPEN_MPI, PMI, SLURM)

    def threads(self, usable_cores: int) -> int:
        """Return this rank's share of its host's cores, at least 1, if it may use `usable_cores` of them itself."""
        return max(1, min(usable_cores, (self.cores or usable_cores) // (self.local_size or 1)))


def take_secrets() -> None:
    """Remove the job's secrets from the environment, so that child processes do not inherit them."""
    _removed_secrets.update((name, os.environ.pop(name)) for name in _SECRETS if name in os.environ)


def own_variables() -> Mapping[str, str]:
    """Return the environment as set by the launcher, including the removed secrets."""
    return {**_removed_secrets, **os.environ}


def detect(variables: Mapping[str, str]) -> LaunchedRank | None:
    """Return the rank that the launcher's `variables` describe; None if no launcher has started this process.

    Raises
    ------
    RendezvousError
        If a variable is not a number, or the rank is outside of the world.
    """
    present = {name: value for name, value in variables.items() if value}
    for known_by, rank_of in _LAUNCHERS:
        if all(name in present for name in known_by):
            launched = rank_of(present)
            if launched is not None:
                return _checked(launched, known_by[0])
    return None


def first_host(nodelist: str) -> str:
    """Return the first host of a Slurm host list: ``gpu[007-009,12],login1`` begins with ``gpu007``."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])+", nodelist)
    return re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", first[0]) if first else ""


def counts_of_nodes(text: str) -> list[int]:
    """Return the numbers of tasks or CPUs per node from Slurm's notation ``2(x3),1``."""
    groups = re.findall(r"(\d+)(?:\(x(\d+)\))?", text)
    return [int(count) for count, times in groups for _ in range(int(times or 1))]


def number(variables: Mapping[str, str], name: str, default: int | None = None) -> int:
    """Return the whole number in a variable, or `default` if it is not set."""
    text = variables.get(name) or default
    try:
        return int(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise RendezvousError(f"{name}={text!r}: expected a whole number") from None


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
    # The namespace is derived from a process id; the key is random for each job.
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
        # Under srun --mpi=pmi2, Slurm's own variables are more complete.
        return None
    # On several Slurm hosts the processes form a step. On one host, the variables may belong to an earlier step.
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
    # A batch script submitted within a step inherits that step's variables, but has other tasks.
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


def _checked(launched: LaunchedRank, name: str) -> LaunchedRank:
    if not 0 <= launched.rank < launched.world_size:
        raise RendezvousError(
            f"{name}={launched.rank}: expected 0 … {launched.world_size - 1}, of {launched.world_size} ranks"
        )
    return launched


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
