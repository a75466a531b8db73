"""Provide `Binding`: the assignment of cores to ranks, and optionally of one core to each of their threads.

|  | bind="core" | bind="socket" | bind="none" |
|---|---|---|---|
| thread_affinity="inherit" | Q | R | U |
| thread_affinity="pin" | T | V | S |

The letters follow Ekanayake et al., "Java thread and process performance for parallel machine learning on multicore HPC
clusters", table I. Ranks use the available cores (of a cgroup's cpuset, of taskset) in order, socket by socket. With
more threads than cores, hardware threads count as cores.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ripieno import host
from ripieno.errors import InputError
from ripieno.host import Core

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

BINDS = ("core", "socket", "none")
THREAD_AFFINITIES = ("inherit", "pin")
VARIABLES = ("RIPIENO_BIND", "RIPIENO_THREAD_AFFINITY")
PATTERNS = dict(zip(((bind, threads) for threads in THREAD_AFFINITIES for bind in BINDS), "QRUTVS", strict=True))


@dataclass(frozen=True)
class Binding:
    """A pattern of core and thread binding.

    Attributes
    ----------
    bind : {"core", "socket", "none"}
        The CPUs of each rank: as many cores as it has threads, a socket, or all.
    thread_affinity : {"inherit", "pin"}
        Whether its threads may use all CPUs of the rank, or each has its own core.
    """

    bind: str = "none"
    thread_affinity: str = "inherit"

    def __post_init__(self) -> None:
        if self.bind not in BINDS:
            raise InputError(f"bind={self.bind!r}: expected one of {', '.join(BINDS)}")
        if self.thread_affinity not in THREAD_AFFINITIES:
            raise InputError(
                f"thread_affinity={self.thread_affinity!r}: expected one of {', '.join(THREAD_AFFINITIES)}"
            )

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> Binding:
        """Return the binding that the environment requests."""
        bind, affinity = (variables.get(name, "") for name in VARIABLES)
        try:
            return cls(bind or "none", affinity or "inherit")
        except InputError as error:
            raise InputError(f"{', '.join(VARIABLES)}: {error}") from None

    @classmethod
    def take_from(cls, variables: MutableMapping[str, str]) -> Binding:
        """Like `of`, but remove the variables, so that child processes of the rank do not bind themselves."""
        found = cls.of(variables)
        for name in VARIABLES:
            variables.pop(name, None)
        return found

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables for this binding; none for the default binding."""
        return dict(zip(VARIABLES, (self.bind, self.thread_affinity), strict=True)) if self.is_requested else {}

    @property
    def is_requested(self) -> bool:
        """Return whether the binding differs from the default."""
        return self != Binding()

    @property
    def letter(self) -> str:
        """Return the letter of the pattern: Q, R, U, T, V or S."""
        return PATTERNS[self.bind, self.thread_affinity]

    def __str__(self) -> str:
        return f"bind={self.bind!r}, thread_affinity={self.thread_affinity!r}"


@dataclass(frozen=True)
class RankCpus:
    """The CPUs of a rank.

    Attributes
    ----------
    cpus
        CPUs that all its threads may use.
    pins
        The CPU of each kernel thread; empty if threads are not pinned.
    """

    cpus: frozenset[int]
    pins: tuple[int, ...] = ()

    def take(self) -> None:
        """Bind all threads of this process to these CPUs."""
        for tid in map(int, os.listdir("/proc/self/task")):
            # The thread may have ended meanwhile.
            with suppress(ProcessLookupError):
                os.sched_setaffinity(tid, self.cpus)
        self.pin()

    def pin(self) -> None:
        """Pin the threads of kernels."""
        if self.pins:
            # Imported here, so that scripts without pins do not load the native module early.
            import ripieno._native as _native

            _native.pin_threads(self.pins)


def cpus_of_ranks(
    binding: Binding, threads: Sequence[int], cores: Sequence[Core], host_name: str = "this host"
) -> list[RankCpus]:
    """Return the place of each rank of a host, for `threads` threads per rank, if all ranks may use `cores`.

    Raises
    ------
    InputError
        If there are too few cores.
    """
    # Each part: its cores, the thread counts of its ranks, and its name in messages.
    parts = [(list(cores), list(threads), host_name)]
    if binding.bind == "socket":
        sockets = sorted({core.socket for core in cores})
        parts = [
            (
                [core for core in cores if core.socket == socket],
                [count for rank, count in enumerate(threads) if rank * len(sockets) // len(threads) == index],
                f"socket {socket} of {host_name}",
            )
            for index, socket in enumerate(sockets)
        ]
    found = []
    for part_cores, counts, where in parts:
        cpus = frozenset(cpu for core in part_cores for cpu in core.cpus)
        if binding.bind != "core" and binding.thread_affinity == "inherit":
            found += [RankCpus(cpus) for _ in counts]
            continue
        for units in _units_by_rank(binding, counts, part_cores, where):
            own = frozenset(cpu for unit in units for cpu in unit) if binding.bind == "core" else cpus
            found.append(RankCpus(own, tuple(unit[0] for unit in units) if binding.thread_affinity == "pin" else ()))
    return found


def bind_together(comm: Communicator, binding: Binding, *, whole_process: bool) -> None:
    """Bind every rank, independent of its launcher. Ranks of a host with the same usable cores divide them.

    This call is a collective unless the binding is the default; the binding must be equal on all ranks.
    With `whole_process` the call also binds existing threads. Otherwise only the calling thread and threads that it
    starts are bound.

    Raises
    ------
    InputError
        On every rank: if a host has too few cores, or ranks that are threads of one process pin their threads.
    """
    if not binding.is_requested:
        return
    own = (comm.nodes[comm.rank], tuple(host.cores()))
    entries = comm.allgather((own, comm.threads, os.getpid(), comm.hosts[comm.rank]))
    taken: dict[int, RankCpus] = {}
    for group in dict.fromkeys(each[0] for each in entries):
        ranks = [rank for rank, each in enumerate(entries) if each[0] == group]
        if binding.thread_affinity == "pin" and len({entries[rank][2] for rank in ranks}) < len(ranks):
            raise InputError(f"{binding}: ranks {ranks} are threads of one process, whose kernels pin theirs together")
        found = cpus_of_ranks(binding, [entries[rank][1] for rank in ranks], group[1], entries[ranks[0]][3])
        taken |= dict(zip(ranks, found, strict=True))
    place = taken[comm.rank]
    if whole_process:
        place.take()
    else:
        os.sched_setaffinity(0, place.cpus)
        place.pin()


@contextmanager
def restored_affinity() -> Iterator[None]:
    """Restore the CPU affinity of the calling thread at the end, for ranks in threads that belong to other code."""
    import ripieno._native as _native

    cpus, pins = os.sched_getaffinity(0), _native.pinned_cores()
    try:
        yield
    finally:
        os.sched_setaffinity(0, cpus)
        if _native.pinned_cores() != pins:
            _native.pin_threads(pins)


def _units_by_rank(
    binding: Binding, threads: Sequence[int], cores: Sequence[Core], where: str
) -> list[list[tuple[int, ...]]]:
    """Return, for each thread of each rank, the CPUs of its own core, or one hardware thread if cores are too few."""
    needed, cpu_count = sum(threads), sum(len(core.cpus) for core in cores)
    if needed > cpu_count:
        ranks = f"{len(threads)} rank{'s' if len(threads) > 1 else ''}"
        raise InputError(
            f"{binding}: {ranks} of {where} with {' + '.join(map(str, threads))} threads need {needed} cores, and may "
            f"use {cpu_count}: take fewer ranks or threads, or leave them unbound and unpinned"
        )
    by_core = [core.cpus for core in cores]
    units = by_core if needed <= len(by_core) else [(cpu,) for cpus in by_core for cpu in cpus]
    rest = iter(units)
    return [[next(rest) for _ in range(count)] for count in threads]
