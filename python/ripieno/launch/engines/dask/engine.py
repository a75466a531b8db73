"""Provide the Dask engine: each rank is a task on its own worker of an existing cluster.

A task is pinned to its worker, so Dask never moves it. It secedes from the worker's thread pool, so Dask can run other
tasks there, for example for the next program. A job holds a lock of the cluster while it selects workers and starts its
tasks, so two jobs never select the same worker.
"""

from __future__ import annotations

import pydoc
import threading
import uuid
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from distributed import Client, Lock
from distributed.utils import get_ip

from ripieno._version import __version__
from ripieno.errors import EngineError, InputError, TooFewSlots
from ripieno.launch.engine.contract import Engine, Handover
from ripieno.launch.engine.member_server import Invitation
from ripieno.launch.engines.dask.job import DaskJob
from ripieno.launch.engines.dask.run import RESTART_S, DaskRun
from ripieno.launch.limits import CONNECT_S, MANAGER_S
from ripieno.launch.process.processes import in_this_process

_KEYS = "ripieno-rank-"
_ADVICE = "a rank takes a worker; wait until other jobs and tasks have ended, request fewer ranks or add workers"


class DaskEngine(Engine):
    """The workers of a Dask cluster, each with a slot for one rank.

    Parameters
    ----------
    address : str, optional
        Address of the scheduler: ``"tcp://10.0.0.1:8786"``. The engine creates a client, and closes it without jobs.
    client : distributed.Client, optional
        Existing client; by default the current one.

    Raises
    ------
    EngineError
        If the process has no client, or no scheduler answers.
    InputError
        If both options are set, or the client is asynchronous.
    """

    NAME = "dask"
    OPTIONS = frozenset({"address", "client"})

    def __init__(self, address: str | None = None, client: Client | None = None) -> None:
        if address is not None and client is not None:
            raise InputError("address= and client= were given: expected one of them")
        self._address = address
        if address is None:
            self._cached_client = _current(client)
        else:
            self._connect(address)
        self._job_count = 0
        self._lock = threading.Lock()
        self.threads = min((worker["nthreads"] for worker in self._workers().values()), default=1)

    def slots(self) -> int:
        return len(self._workers())

    def host(self) -> str:
        hosts = [worker["host"] for worker in self._workers().values()]
        remote_hosts = [host for host in hosts if not _is_loopback(host)]
        if not remote_hosts or self._client.scheduler.address.startswith("inproc:"):
            return "127.0.0.1"
        return str(get_ip(remote_hosts[0]))

    def handover(self) -> Handover:
        address = self._client.scheduler.address
        if address.startswith("inproc:"):
            return Handover("inside of this process", True, True)
        is_safe = address.startswith("tls:")
        advice = "start scheduler and workers with certificates (distributed.Security, tls://)"
        return Handover(f"with tasks by Dask's scheduler at {address}", is_safe, is_safe, advice)

    def start(self, workers: int, invitation: Invitation) -> DaskRun:
        with self._lock:
            self._job_count += 1
        run = DaskRun(self._client, f"{_KEYS}{uuid.uuid4().hex[:12]}", self._ended)
        try:
            self._await_workers(workers)
            with self._cluster_lock():
                waiting = run.begin(self._free_workers(workers), invitation)
            if waiting:
                raise TooFewSlots(self.NAME, workers, workers - waiting, len(self._workers()), _ADVICE)
        except BaseException:
            run.abandon()
            raise
        return run

    def job(self, workers: int, **options: Any) -> DaskJob:
        """Return a job of `workers` ranks; its programs read Dask data among their arguments from the workers."""
        return DaskJob(self, workers, self._client, **options)

    @property
    def _client(self) -> Client:
        """Return the caller's client, or the engine's own."""
        if self._address is not None and self._cached_client.status == "closed":
            self._connect(self._address)
        return self._cached_client

    def _connect(self, address: str) -> None:
        """Open a client until no job runs, or this engine is deleted."""
        self._cached_client = connected(address)
        self._close = weakref.finalize(self, in_this_process(self._cached_client.close))

    def _ended(self) -> None:
        """Record that a job has released its workers."""
        with self._lock:
            self._job_count -= 1
            if self._job_count == 0 and self._address is not None:
                self._close()

    def _workers(self) -> dict[str, dict[str, Any]]:
        """Return the scheduler's data on all workers that accept tasks, by address."""
        try:
            # `scheduler_info` may return data that another thread has fetched with `n_workers=0`.
            workers = self._client.sync(self._client.scheduler.identity, n_workers=-1)["workers"]
        except OSError as error:
            raise EngineError(f"the Dask scheduler of this client does not answer: {error}") from error
        return {address: worker for address, worker in workers.items() if worker["status"] == "running"}

    @contextmanager
    def _cluster_lock(self) -> Iterator[None]:
        """Hold the cluster's lock, so that no other job selects workers."""
        lock = Lock("ripieno-choosing", scheduler_rpc=self._client.scheduler, loop=self._client.loop)
        try:
            if not lock.acquire(timeout=MANAGER_S):
                raise EngineError(
                    f"another job has been choosing Dask workers for {MANAGER_S:g} s; if its process has died, its "
                    "lock ends after distributed.scheduler.locks.lease-timeout: try again then"
                )
            try:
                yield
            finally:
                lock.release()
        finally:
            # Otherwise the callback would extend the lease forever and keep the lock in memory.
            if (refresh := getattr(lock, "refresh_callback", None)) is not None:
                self._client.loop.add_callback(refresh.stop)

    def _free_workers(self, needed: int) -> list[str]:
        """Return the addresses of workers without a rank, with the fewest tasks first, grouped by host.

        If all threads of a worker are busy, the rank starts on the next free thread.
        """
        workers = self._workers()
        processing = {worker: set(map(str, keys)) for worker, keys in self._client.processing().items()}
        candidates = [each for each in workers if not _ranks(processing.get(each, ()))]
        self._check_versions(candidates)
        load = {}
        for worker, (executing, seceded) in self._run_on_workers(_tasks, candidates).items():
            if not _ranks(executing | seceded):
                load[worker] = len((processing.get(worker, set()) - seceded) | executing) / workers[worker]["nthreads"]
        if len(load) < needed:
            raise TooFewSlots(self.NAME, needed, len(load), len(workers), _ADVICE)
        return sorted(sorted(load, key=load.__getitem__)[:needed], key=lambda each: workers[each]["host"])

    def _await_workers(self, needed: int) -> None:
        """Wait briefly for workers that are restarting."""
        try:
            self._client.wait_for_workers(needed, timeout=RESTART_S)
        except TimeoutError:
            # The error about free slots reports their number.
            return

    def _check_versions(self, workers: list[str]) -> None:
        # A task of this package would end a worker that cannot unpickle it, so a standard function checks first.
        versions = self._run_on_workers(pydoc.locate, workers, "ripieno.__version__")
        found = {f"worker {worker}": version for worker, version in versions.items()}
        # The scheduler unpickles tasks as well.
        found["scheduler"] = self._client.run_on_scheduler(pydoc.locate, "ripieno.__version__")
        for process, version in found.items():
            if version != __version__:
                is_broken = isinstance(version, Exception)
                has = f"cannot import ripieno: {version}" if is_broken else f"has ripieno {version}"
                has = "has no ripieno" if version is None else has
                raise EngineError(
                    f"the Dask {process} {has}, the process that launches the job has ripieno {__version__}: "
                    "install the same version there"
                )

    def _run_on_workers(self, function: Any, workers: list[str], *args: Any) -> dict[str, Any]:
        """Run `function` in each worker's process, outside of its threads; return the available results."""
        if not workers:
            return {}
        answers = self._client.run(function, *args, workers=workers, on_error="return")
        return {worker: answer for worker, answer in answers.items() if not isinstance(answer, OSError)}


def connected(address: str) -> Client:
    """Return a client of the scheduler at `address`, or raise `EngineError`."""
    try:
        return Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise EngineError(f"no Dask scheduler answers at {address}: {error}") from error


def _current(client: Client | None) -> Client:
    try:
        client = client or Client.current()
    except ValueError:
        raise EngineError(
            "there is no Dask client: make one (distributed.Client), or pass address='tcp://…' of the scheduler"
        ) from None
    if client.asynchronous:
        raise InputError("client= is asynchronous: ranks are launched by a Client(..., asynchronous=False)")
    if client.status != "running":
        raise EngineError(f"the Dask client is {client.status}: make a new one")
    return client


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _ranks(keys: Iterable[Any]) -> list[str]:
    """Return the keys of ranks. A key of Dask is a string or, for a chunk of a collection, a tuple."""
    return [key for key in keys if isinstance(key, str) and key.startswith(_KEYS)]


def _tasks(dask_worker: Any) -> tuple[set[str], set[str]]:
    """Return the keys of tasks on this worker's threads, and of seceded tasks; both include cancelled tasks."""
    running = dask_worker.state.all_running_tasks
    seceded = {task.key for task in running if "long-running" in (task.state, task.previous)}
    return {str(task.key) for task in running if task.key not in seceded}, set(map(str, seceded))
