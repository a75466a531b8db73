"""Binding: on which cores a rank computes, and whether each of its threads has one of its own.

|  | bind="core" | bind="socket" | bind="none" |
|---|---|---|---|
| thread_affinity="inherit" | Q | R | U |
| thread_affinity="pin" | T | V | S |

The letters are those of Ekanayake et al., "Java thread and process performance for parallel machine learning on
multicore HPC clusters", table I. Ranks take the cores that they may use (of a cgroup's cpuset, of taskset) in their
order, socket by socket. With more threads than cores, hardware threads count as cores.
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
    """A pattern.

    Attributes
    ----------
    bind : {"core", "socket", "none"}
        What each rank is bound to: as many cores as it has threads, a socket, or nothing.
    thread_affinity : {"inherit", "pin"}
        Whether its threads may be wherever it may, or each has a core of its own.
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
        """What the environment says."""
        bind, affinity = (variables.get(name, "") for name in VARIABLES)
        try:
            return cls(bind or "none", affinity or "inherit")
        except InputError as error:
            raise InputError(f"{', '.join(VARIABLES)}: {error}") from None

    @classmethod
    def taken_from(cls, variables: MutableMapping[str, str]) -> Binding:
        """The same. It is taken out: processes that a rank starts are no ranks."""
        found = cls.of(variables)
        for name in VARIABLES:
            variables.pop(name, None)
        return found

    @property
    def environment(self) -> dict[str, str]:
        """What says it to a rank; nothing of the pattern that asks for nothing."""
        return dict(zip(VARIABLES, (self.bind, self.thread_affinity), strict=True)) if self.is_asked else {}

    @property
    def is_asked(self) -> bool:
        """Whether it asks for anything."""
        return self != Binding()

    @property
    def letter(self) -> str:
        """Q, R, U, T, V or S."""
        return PATTERNS[self.bind, self.thread_affinity]

    def __str__(self) -> str:
        return f"bind={self.bind!r}, thread_affinity={self.thread_affinity!r}"


@dataclass(frozen=True)
class BindingPlace:
    """Where a rank computes.

    Attributes
    ----------
    cpus
        Where all its threads may be.
    pins
        The CPU of each thread of its kernels; empty if they may be on all of them.
    """

    cpus: frozenset[int]
    pins: tuple[int, ...] = ()

    def take(self) -> None:
        """Bring all threads of this process there."""
        for tid in map(int, os.listdir("/proc/self/task")):
            # One that has ended meanwhile needs no place.
            with suppress(ProcessLookupError):
                os.sched_setaffinity(tid, self.cpus)
        self.pin()

    def pin(self) -> None:
        """Pin the threads of kernels."""
        if self.pins:
            # Imported late: a script that asks for no pins need not load it before its first line.
            import ripieno._native as _native

            _native.pin_threads(self.pins)


def places(
    binding: Binding, threads: Sequence[int], cores: Sequence[Core], host_name: str = "this host"
) -> list[BindingPlace]:
    """The place of each rank of a host that computes with so many threads, if all may use `cores`.

    Raises
    ------
    InputError
        There are not enough cores.
    """
    # Each part: its cores, the ranks that have them, and what it is called.
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
    for here, counts, where in parts:
        cpus = frozenset(cpu for core in here for cpu in core.cpus)
        if binding.bind != "core" and binding.thread_affinity == "inherit":
            found += [BindingPlace(cpus) for _ in counts]
            continue
        for units in _dealt(binding, counts, here, where):
            own = frozenset(cpu for unit in units for cpu in unit) if binding.bind == "core" else cpus
            found.append(
                BindingPlace(own, tuple(unit[0] for unit in units) if binding.thread_affinity == "pin" else ())
            )
    return found


def bind_together(comm: Communicator, binding: Binding, *, whole_process: bool) -> None:
    """Bind every rank, whoever has started it. Ranks of a host that may use the same cores divide them.

    It is a collective if anything is asked for, which is to be the same on all ranks.
    `whole_process` binds the threads that there are already, too; else the calling one and those that it starts.

    Raises
    ------
    InputError
        On every rank: the cores of a host are not enough, or ranks that are threads of one process pin theirs.
    """
    if not binding.is_asked:
        return
    mine = (comm.nodes[comm.rank], tuple(host.cores()))
    told = comm.allgather((mine, comm.threads, os.getpid(), comm.hosts[comm.rank]))
    taken: dict[int, BindingPlace] = {}
    for group in dict.fromkeys(each[0] for each in told):
        ranks = [rank for rank, each in enumerate(told) if each[0] == group]
        if binding.thread_affinity == "pin" and len({told[rank][2] for rank in ranks}) < len(ranks):
            raise InputError(f"{binding}: ranks {ranks} are threads of one process, whose kernels pin theirs together")
        found = places(binding, [told[rank][1] for rank in ranks], group[1], told[ranks[0]][3])
        taken |= dict(zip(ranks, found, strict=True))
    place = taken[comm.rank]
    if whole_process:
        place.take()
    else:
        os.sched_setaffinity(0, place.cpus)
        place.pin()


@contextmanager
def lent_thread() -> Iterator[None]:
    """For ranks in threads that somebody else goes on to use: they may be where they might before, afterwards."""
    import ripieno._native as _native

    cpus, pins = os.sched_getaffinity(0), _native.pinned_cores()
    try:
        yield
    finally:
        os.sched_setaffinity(0, cpus)
        if _native.pinned_cores() != pins:
            _native.pin_threads(pins)


def _dealt(binding: Binding, threads: Sequence[int], cores: Sequence[Core], where: str) -> list[list[tuple[int, ...]]]:
    """For each thread of each rank the CPUs of a core of its own, or a hardware thread if cores are not enough."""
    needed, cpu_count = sum(threads), sum(len(core.cpus) for core in cores)
    if needed > cpu_count:
        ranks = f"{len(threads)} rank{'s' if len(threads) > 1 else ''}"
        raise InputError(
            f"{binding}: {ranks} of {where} with {' + '.join(map(str, threads))} threads need {needed} cores, and may "
            f"use {cpu_count}: take fewer ranks or threads, or leave them unbound and unpinned"
        )
    whole = [core.cpus for core in cores]
    units = whole if needed <= len(whole) else [(cpu,) for cpus in whole for cpu in cpus]
    rest = iter(units)
    return [[next(rest) for _ in range(count)] for count in threads]
