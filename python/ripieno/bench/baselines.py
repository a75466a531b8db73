"""Provide the compared implementations and their launch: Ripieno, Open MPI, MPICH, Intel MPI, Gloo, mpi4py.

Each implementation runs a program that prints "CASE SECONDS" lines; see ``programs/timing.py`` for the rules.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ripieno.bench import toolchain
from ripieno.bench.cases import BenchCase
from ripieno.bench.processes import TIMEOUT_S, run, run_ranks
from ripieno.bench.programs.timing import REFUSED
from ripieno.host import usable_cores
from ripieno.launch.limits import check_memory

PROGRAMS = Path(__file__).parent / "programs"
_NOT_IN_GLOO = ("reduce-scatter", "alltoall")


@dataclass(frozen=True)
class Deployment:
    """Placement of ranks: by default all on this host.

    Parameters
    ----------
    world_size
        Number of ranks.
    command
        Returns the command line that runs another command line on the host of a rank.
    address, port
        Address of rank 0 during bootstrap; by default a free port of this host.
    environment
        Environment variables of a rank.
    interface
        The network interface between the ranks; "lo" on one host.
    hosts, remote_shell
        For mpirun: the hosts of the ranks, and an ssh-like program that runs a command there. None on one host.
    """

    world_size: int
    command: Callable[[int, list[str]], list[str]] = lambda rank, words: words
    address: str = "127.0.0.1"
    port: int | None = None
    environment: Callable[[int], Mapping[str, str]] = lambda rank: {}
    interface: str = "lo"
    hosts: Sequence[str] | None = None
    remote_shell: Path | None = None

    def __post_init__(self) -> None:
        if self.hosts is None:
            check_memory(self.world_size)

    @property
    def shares_cores(self) -> bool:
        """Return whether ranks outnumber the cores of this machine."""
        return self.world_size > usable_cores()

    def ranks(self, words: list[str], timeout_s: float, environment: Mapping[str, str]) -> str:
        """Run a program as all ranks and return the output of rank 0."""
        return run_ranks(
            [self.command(rank, words) for rank in range(self.world_size)],
            address=self.address,
            port=self.port,
            environment=lambda rank: {**environment, **self.environment(rank)},
            timeout_s=timeout_s,
        )


@dataclass(frozen=True)
class Baseline:
    """An implementation under comparison.

    Parameters
    ----------
    name
        Name in tables.
    start
        Runs the program with arguments (a budget and cases) and a timeout in seconds, and returns its output.
    supports
        Predicate for supported cases.
    ours
        Whether the implementation is Ripieno, which supports the algorithm names of cases.
    """

    name: str
    start: Callable[[list[str], float], str]
    supports: Callable[[BenchCase], bool] = lambda case: True
    ours: bool = False

    def times(
        self, cases: Sequence[BenchCase], budget_s: float, timeout_s: float = TIMEOUT_S
    ) -> dict[str, list[float] | str]:
        """Return the seconds of each supported case, by `word`, in one run of its program, or the reason for refusal.

        Raises
        ------
        ProgramFailed
            If the program fails or times out.
        """
        words = list(dict.fromkeys(self.word(case) for case in self.supported(cases)))
        found: dict[str, list[float]] = {word: [] for word in words}
        refused: dict[str, str] = {}
        if words:
            for line in self.start([f"{budget_s:g}", *words], timeout_s).splitlines():
                word, text = line.split(maxsplit=1)
                if text.startswith(REFUSED):
                    refused[word] = text.removeprefix(REFUSED)
                else:
                    found[word].append(float(text))
        return {**found, **refused}

    def word(self, case: BenchCase) -> str:
        """Return the program's name for a case."""
        return case.word if self.ours else BenchCase(case.collective, case.size_bytes).word

    def supported(self, cases: Sequence[BenchCase]) -> list[BenchCase]:
        """Return the supported cases."""
        return [case for case in cases if self.supports(case)]


def ripieno(place: Deployment, *, through: str = "native", links: str = "auto") -> Baseline:
    """Return Ripieno with its "native" loop, that loop on arrays of `ripieno.empty` ("shared"), or "python"."""
    words, environment = module("ripieno.bench.rank")
    words += [through, "--links", links, "--budget"]
    start = lambda arguments, timeout_s: place.ranks([*words, *arguments], timeout_s, environment)  # noqa: E731
    return Baseline("Ripieno", start, ours=True)


def module(name: str) -> tuple[list[str], dict[str, str]]:
    """Return the command line that runs a module of this package, and its environment variables."""
    package = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    return [sys.executable, "-m", name], {"PYTHONPATH": path}


def open_mpi(
    place: Deployment,
    *,
    name: str,
    single_copy: str = "cma",
    settings: Mapping[str, str] | None = None,
    yields_to_sleep: bool = False,
) -> Baseline:
    """Return Open MPI in its fastest mode.

    On one host it uses shared memory and pinned ranks. They spin, or yield if they share cores.

    Parameters
    ----------
    name
        Name in tables.
    single_copy
        Transport of large messages in shared memory: "cma" or "none".
    settings
        More MCA parameters, such as a forced algorithm.
    yields_to_sleep
        Whether a yield of the core sleeps briefly. Ranks of emulated hosts share cores, unlike real hosts.

    Raises
    ------
    Skipped
        If it is not installed.
    """
    mpi = toolchain.open_mpi()
    command = [
        *_open_mpi(mpi, place, single_copy, settings or {}, yields_to_sleep),
        str(mpi.compiled(PROGRAMS / "collectives.c")),
    ]
    return Baseline(
        name, lambda arguments, timeout_s: run(place.command(0, [*command, *arguments]), timeout_s=timeout_s)
    )


def mpi4py(place: Deployment, *, single_copy: str = "cma") -> Baseline:
    """Return mpi4py over Open MPI.

    Raises
    ------
    Skipped
        If one of them is not installed.
    """
    words = [*python_by_open_mpi(place, single_copy=single_copy), "-m", "ripieno.bench.rank", "mpi4py", "--budget"]
    mechanism = {"cma": "CMA", "none": "copies"}[single_copy]
    return Baseline(
        f"mpi4py ({mechanism})", lambda arguments, timeout_s: run([*words, *arguments], timeout_s=timeout_s)
    )


def python_by_open_mpi(place: Deployment, *, single_copy: str = "cma") -> list[str]:
    """Return the command line that starts this interpreter, which has mpi4py, as ranks of Open MPI.

    Raises
    ------
    Skipped
        If one of them is not installed.
    """
    mpi = toolchain.open_mpi()
    toolchain.require_mpi4py()
    return [*_open_mpi(mpi, place, single_copy, {}, False), sys.executable]


def _open_mpi(
    mpi: toolchain.Mpi, place: Deployment, single_copy: str, settings: Mapping[str, str], yields_to_sleep: bool
) -> list[str]:
    """Return the command line of mpirun, up to the program."""
    words = [mpi.launcher, "--oversubscribe", "-np", str(place.world_size)]
    if os.geteuid() == 0:
        words.append("--allow-run-as-root")
    parameters = {"pml": "ob1", "mpi_yield_when_idle": str(int(place.shares_cores))}
    if place.hosts is None:
        words += ["--bind-to", "none" if place.shares_cores else "core"]
        # Version 5 has other names for its shared memory and for the transport of large messages.
        if mpi.version >= (5,):
            parameters |= {"btl": "sm,self", "smsc": {"cma": "cma", "none": "^cma"}[single_copy]}
        else:
            parameters |= {"btl": "vader,self", "btl_vader_single_copy_mechanism": single_copy}
    else:
        words += ["--bind-to", "none", "-H", ",".join(f"{host}:1" for host in place.hosts)]
        parameters |= {
            "plm_rsh_agent": str(place.remote_shell),
            "plm_rsh_no_tree_spawn": "1",
            "plm_rsh_num_concurrent": str(len(place.hosts)),
            "btl": "tcp,self",
            "btl_tcp_if_include": place.interface,
            "oob_tcp_if_include": place.interface,
        }
    if yields_to_sleep:
        parameters["mpi_yield_when_idle"] = "1"
        words += ["-x", f"LD_PRELOAD={toolchain.shared_object(PROGRAMS / 'patient_yield.c')}"]
    parameters |= settings
    return [*words, *(word for name, value in parameters.items() for word in ("--mca", name, value))]


def mpich(place: Deployment) -> Baseline:
    """Return MPICH on one host. It cannot yield: if ranks outnumber cores, they starve each other.

    Raises
    ------
    Skipped
        If it is not installed.
    """
    mpi = toolchain.mpich()
    bind = [] if place.shares_cores else ["-bind-to", "core"]
    command = [mpi.launcher, *bind, "-n", str(place.world_size), str(mpi.compiled(PROGRAMS / "collectives.c"))]
    return Baseline("MPICH", lambda arguments, timeout_s: run([*command, *arguments], timeout_s=timeout_s))


def intel_mpi(place: Deployment) -> Baseline:
    """Return Intel MPI on one host, over shared memory. Its ranks are pinned unless they outnumber cores.

    Raises
    ------
    Skipped
        If it is not installed.
    """
    mpi = toolchain.intel_mpi()
    command = [mpi.launcher, "-n", str(place.world_size), str(mpi.compiled(PROGRAMS / "collectives.c"))]
    environment = {**mpi.environment, "I_MPI_FABRICS": "shm", "I_MPI_PIN": str(int(not place.shares_cores))}
    return Baseline(
        "Intel MPI",
        lambda arguments, timeout_s: run([*command, *arguments], environment=environment, timeout_s=timeout_s),
    )


def gloo(place: Deployment, *, python: str | None = None) -> Baseline:
    """Return Gloo through torch.distributed of the interpreter `python`.

    Raises
    ------
    Skipped
        If no interpreter has it.
    """
    words = [toolchain.torch_python(python), str(PROGRAMS / "gloo.py")]
    environment = {"GLOO_SOCKET_IFNAME": place.interface, "OMP_NUM_THREADS": "1"}
    start = lambda arguments, timeout_s: place.ranks([*words, *arguments], timeout_s, environment)  # noqa: E731
    return Baseline("Gloo", start, supports=lambda case: case.collective not in _NOT_IN_GLOO)


def peers(
    names: Sequence[str], place: Deployment, *, python: bool, gloo_python: str | None
) -> tuple[list[Baseline], list[str]]:
    """Return the named peers on one host, in all their modes, and remarks on versions and on missing peers."""
    makers: dict[str, list[Callable[[], Baseline]]] = {
        "openmpi": [
            lambda: open_mpi(place, name="Open MPI (CMA)", single_copy="cma"),
            lambda: open_mpi(place, name="Open MPI (copies)", single_copy="none"),
        ],
        "mpich": [lambda: mpich(place)],
        "intelmpi": [lambda: intel_mpi(place)],
        "gloo": [lambda: gloo(place, python=gloo_python)],
    }
    if python:
        makers["openmpi"] = [lambda: mpi4py(place, single_copy="cma"), lambda: mpi4py(place, single_copy="none")]
    installed = {"openmpi": toolchain.open_mpi, "mpich": toolchain.mpich, "intelmpi": toolchain.intel_mpi}
    found, remarks = [], []
    for name in names:
        try:
            found += [maker() for maker in makers[name]]
            if name in installed:
                remarks.append(installed[name]().title)
        except toolchain.Skipped as skipped:
            remarks.append(str(skipped))
    return found, remarks


#: Peer names that `peers` accepts.
PEERS = ("openmpi", "mpich", "intelmpi", "gloo")
