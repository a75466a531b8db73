"""Provide the ranks that run a job: started workers, existing workers, or the ranks of a program."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ripieno.launch import Job, launch
from ripieno.launch.job.process_job import RESPAWN_COUNT_MAX
from ripieno.mapreduce import worker

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator


class RankTeam(ABC):
    """Ranks that each keep a part of the job.

    Attributes
    ----------
    hosts : list of str
        The host of every rank.
    restarts : int
        The maximum number of repetitions of a call after losses of ranks. The ranks need their parts again for each.
    """

    restarts = 0

    def __init__(self, replicas: int) -> None:
        self._key = f"mapreduce {secrets.token_hex(8)}"
        self._replicas = replicas
        self.hosts: list[str] = []
        self.open_parts()

    def open_parts(self) -> None:
        """Begin the job on all ranks."""
        self.hosts = self.run(worker.open_part, self._replicas)

    @property
    def has_replicas(self) -> bool:
        """Whether several ranks run each task at the same time."""
        return self._replicas > 1

    @property
    def has_lost_parts(self) -> bool:
        """Whether the ranks have reconnected since `open_parts`, and so have lost their parts."""
        return False

    @abstractmethod
    def run(self, function: Callable[..., Any], *args: Any, options: str = "") -> list[Any]:
        """Return ``function(comm, key, *args)`` of every rank, in rank order. All drivers pass the same `options`."""

    @abstractmethod
    def close(self, error: BaseException | None) -> None:
        """End the job's parts on the ranks, and the workers started for it. `error` is the reason, if there is one."""


class JobRanks(RankTeam):
    """Worker processes. The driver is the process that started them."""

    def __init__(self, job: Job | None, options: dict[str, Any]) -> None:
        self._is_own = job is None
        self._job = launch(**options) if job is None else job
        self._epoch = -1
        if self._job._on_failure != "raise":
            # A job with ``on_failure="shrink"`` has at most as many failures as ranks.
            self.restarts = max(RESPAWN_COUNT_MAX, self._job.workers)
        try:
            super().__init__(self._job.replicas)
        except BaseException as error:
            self.close(error)
            raise

    def open_parts(self) -> None:
        super().open_parts()
        self._epoch = self._job.epoch

    @property
    def has_lost_parts(self) -> bool:
        return self._job.epoch != self._epoch

    def run(self, function: Callable[..., Any], *args: Any, options: str = "") -> list[Any]:
        return self._job.run(function, self._key, *args)

    def close(self, error: BaseException | None) -> None:
        if self._is_own:
            self._job.__exit__(None if error is None else type(error), error, None)
        elif not self._job.over and not self.has_lost_parts:
            self.run(worker.close_part)


class ProgramRanks(RankTeam):
    """The ranks of a program. All of them run the driver and get the same results."""

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        super().__init__(1)

    def run(self, function: Callable[..., Any], *args: Any, options: str = "") -> list[Any]:
        mine: object = function(self._comm, self._key, *args)
        return self._comm._allgather_values(f"{function.__name__} of a map-reduce job{options}", mine)

    def close(self, error: BaseException | None) -> None:
        worker.close_part(self._comm, self._key)
