"""Ranks on the workers of a Dask cluster: what only Dask does, beside what every engine promises."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import ripieno as rp
from ripieno import errors
from watching import comes_true

distributed = pytest.importorskip("distributed", reason="needs Dask: pip install 'ripieno[dask]'")

from ripieno.launch.engines import dask, dask_run  # noqa: E402

WORKERS = 4
# From the end of a worker to the error that the caller gets, and to the moment when no rank runs any more.
PROMPT_S = 5.0
# Until a nanny has started a worker again, on a busy machine.
RESTART_S = 60.0
# Workers in this process, that listen nowhere.
INSIDE = {"processes": False, "dashboard_address": "127.0.0.1:0", "worker_dashboard_address": "127.0.0.1:0"}


@pytest.fixture
def client(dask_client):
    """The cluster with all its workers, whatever an earlier test has done to them."""
    dask_client.wait_for_workers(WORKERS, timeout=RESTART_S)
    return dask_client


@pytest.fixture(scope="module")
def threads() -> Iterator[distributed.Client]:
    """A cluster whose 2 workers are in this process, without nannies, with 2 threads each."""
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=2, **INSIDE) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def launch(client, workers=None, **options):
    return rp.launch(workers, engine="dask", client=client, **options)


def place(comm) -> str:
    """The address of the worker that this rank is on."""
    assert comm.allreduce(1) == comm.world_size
    return distributed.get_worker().address


def ranks_left(client) -> list[str]:
    """Tasks of ranks that run on workers, whether the scheduler knows of them or not."""
    found = client.run(dask._tasks, on_error="return")
    return [key for seen in found.values() if isinstance(seen, tuple) for keys in seen for key in dask._ranks(keys)]


# Slots


def test_every_worker_has_room_for_one_rank_with_its_threads(threads):
    with launch(threads) as job:
        assert (job.workers, job.threads) == (2, 2)
        assert sorted(job.run(place)) == sorted(threads.scheduler_info()["workers"])


def test_jobs_that_are_launched_at_once_never_share_a_worker(client):
    together, places, refused = threading.Barrier(5), [], []

    def work() -> None:
        try:
            with launch(client, 2) as job:
                places.extend(job.run(place))
                together.wait(PROMPT_S * 4)
        except errors.TooFewSlots as error:
            refused.append(error)
            together.wait(PROMPT_S * 4)

    jobs = [threading.Thread(target=work) for _ in range(5)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert sorted(places) == sorted(client.scheduler_info()["workers"])
    assert [(error.needed, error.free, error.total) for error in refused] == [(2, 0, WORKERS)] * 3


def test_more_ranks_than_workers_are_refused_with_numbers(client, monkeypatch):
    monkeypatch.setattr(dask, "RESTART_S", 0.1)
    with pytest.raises(
        errors.TooFewSlots, match="too few free slots for 5 ranks: 4 free, 4 in all; a rank takes a wor"
    ):
        launch(client, 5)


def test_a_worker_whose_threads_are_taken_is_passed_by(client):
    held = distributed.Event("held", client=client)
    busy = client.submit(lambda: distributed.Event("held").wait() and distributed.get_worker().address)
    try:
        assert comes_true(lambda: any(client.processing().values()), PROMPT_S)
        with launch(client, 3) as job:
            places = job.run(place)
        with pytest.raises(errors.TooFewSlots, match="3 free, 4 in all"):
            launch(client, 4)
    finally:
        held.set()
    assert busy.result(timeout=PROMPT_S) not in places
    held.clear()


def test_dask_computes_on_the_workers_of_a_job(client):
    with launch(client) as job:
        assert client.submit(lambda: 3).result(timeout=PROMPT_S) == 3
        assert len(job.run(place)) == WORKERS


def test_a_task_may_launch_a_job(client):
    def task():
        import ripieno as rp
        from distributed import worker_client

        with worker_client(), rp.launch(engine="dask") as job:
            return job.run(lambda comm: comm.allreduce(comm.rank))

    assert client.submit(task).result(timeout=30) == [6] * WORKERS


def test_adaptive_clusters_do_not_take_workers_away_from_a_job(client):
    with launch(client, 3) as job:
        places = job.run(place)
        closing = client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.workers_to_close(n=WORKERS))
    assert len(closing) == 1 and not set(closing) & set(places)


# Failures


def test_the_end_of_a_worker_is_told_with_what_dask_says(client):
    def program(comm):
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        comm.barrier()

    with launch(client) as job:
        places = job.run(place)
        started = time.monotonic()
        with pytest.raises(rp.RankFailed) as caught:
            job.run(program)
    assert time.monotonic() - started <= PROMPT_S
    assert caught.value.rank == 1 and caught.value.host
    assert f"dask says: the worker {places[1]} has left the cluster (its process ended" in caught.value.cause
    # Dask would run the lone rank again, and again.
    assert not any(map(dask._ranks, client.processing().values()))
    client.wait_for_workers(WORKERS, timeout=RESTART_S)
    with launch(client) as job:
        assert places[1] not in job.run(place)


stuck = threading.Event()


def stays(comm, error: Exception | None = None) -> None:
    """Rank 0 fails, or waits for the other, which waits for the test, whose process they are in."""
    if comm.rank == 0:
        comm.emit({"event": "begun"})
        if error is not None:
            raise error
        comm.recv(1)
    stuck.wait()


@pytest.fixture
def sticking() -> Iterator[None]:
    """Ranks are stuck until the end of the test."""
    stuck.clear()
    yield
    stuck.set()


def test_a_worker_that_is_retired_ends_the_job(sticking):
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, **INSIDE) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
        launch(client) as job,
    ):
        places = job.run(place)
        with (
            job.telling(lambda event: client.retire_workers([places[1]])),
            pytest.raises(rp.RankFailed, match=r"has left the cluster \(closed or retired on purpose\)"),
        ):
            job.run(stays)


def test_a_rank_that_is_run_again_ends_at_once(client):
    """As when a worker comes back under its old address before the scheduler knows that the job is over."""

    class Noting(dask.DaskEngine):
        def start(self, workers, invitation):
            self.invitation = invitation
            return super().start(workers, invitation)

    engine = Noting(client=client)
    with rp.launch(2, engine=engine):
        again = client.submit(dask_run._rank, engine.invitation, 0, pure=False)
        with pytest.raises(rp.RendezvousError, match="has begun without this attempt of the task"):
            again.result(timeout=PROMPT_S)


def test_a_task_that_somebody_cancels_ends_the_job(client):
    def program(comm):
        if comm.rank == 0:
            comm.emit({"event": "begun"})
            comm.recv(1)
        while True:
            pass

    def cancel(event):
        (key,) = (key for keys in client.processing().values() for key in keys if key.endswith("-1"))
        client.cancel(distributed.Future(key, client))

    with (
        launch(client, 2) as job,
        job.telling(cancel),
        pytest.raises(rp.RankFailed, match=r"rank 1 on .* dask says: its task is cancelled"),
    ):
        job.run(program)
    assert comes_true(lambda: not ranks_left(client), PROMPT_S)


def test_without_a_nanny_a_rank_that_does_not_leave_keeps_its_worker(threads, sticking):
    with launch(threads) as job, pytest.raises(KeyError, match="mine"):
        job.run(stays, KeyError("mine"))
    with pytest.raises(errors.TooFewSlots, match="1 free, 2 in all"):
        launch(threads)
    stuck.set()
    assert comes_true(lambda: not ranks_left(threads), PROMPT_S)
    with launch(threads) as job:
        assert len(job.run(place)) == 2


def test_ranks_may_be_threads_of_the_launching_process(threads):
    with launch(threads) as job:
        assert job.run(lambda comm: (os.getpid(), comm.allgather(comm.rank))) == [(os.getpid(), [0, 1])] * 2


def test_workers_keep_no_descriptor_and_no_thread_of_25_jobs(client):
    def held():
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    def one(fails: bool) -> None:
        with launch(client) as job:
            if fails:
                with pytest.raises(ZeroDivisionError):
                    job.run(lambda comm: comm.barrier() or 1 // comm.rank)
            else:
                job.run(place)

    one(fails=True)
    before = client.run(held)
    for number in range(25):
        one(fails=number % 5 == 4)

    def no_more() -> bool:
        now = client.run(held)
        return now.keys() == before.keys() and all(now[each] <= before[each] for each in now)

    assert comes_true(no_more, PROMPT_S), (before, client.run(held))


# The launching process


SCRIPT = """
import os, sys, threading
import ripieno as rp

def program(comm):
    comm.emit({"pid": os.getpid()})
    if comm.rank == 0:
        comm.recv(1)
    if comm.rank == 1:
        while True:
            pass
    threading.Event().wait()

def say(event):
    print(event["rank"], event["pid"], flush=True)

try:
    with rp.launch(3, engine="dask", address=sys.argv[1], on_event=say) as job:
        job.run(program)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_ranks_leave_when_the_launching_process_ends(client, number):
    """The one that communicates, the one that computes, and, with its worker, the one that nothing interrupts."""
    command = [sys.executable, "-c", SCRIPT, client.scheduler.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher:
        try:
            pids = dict(tuple(map(int, launcher.stdout.readline().split())) for _ in range(3))
            launcher.send_signal(number)
            assert comes_true(lambda: not ranks_left(client), PROMPT_S), ranks_left(client)
            assert launcher.wait(PROMPT_S * 2) == (0 if number == signal.SIGINT else -number)
            assert ("interrupted" in launcher.stdout.read()) == (number == signal.SIGINT)
        finally:
            launcher.kill()
    living = set(client.run(os.getpid).values())
    assert {pids[0], pids[1]} <= living and pids[2] not in living
    client.wait_for_workers(WORKERS, timeout=RESTART_S)
    with launch(client) as job:
        assert len(job.run(place)) == WORKERS


# What is refused


def test_workers_without_ripieno_or_with_another_one_are_named(client, monkeypatch):
    odd = next(iter(client.scheduler_info()["workers"]))

    def hide(error):
        class Hidden:
            def find_spec(self, name, path=None, target=None):
                if name == "ripieno":
                    raise error

        sys.hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "ripieno"}
        sys.meta_path.insert(0, Hidden())

    def show():
        sys.meta_path.pop(0)
        sys.modules.update(sys.hidden)

    client.run(hide, ModuleNotFoundError("No module named 'ripieno'", name="ripieno"), workers=[odd])
    try:
        with pytest.raises(rp.EngineError, match=rf"the Dask worker {odd} has no ripieno, .*: install the same there"):
            launch(client)
    finally:
        client.run(show, workers=[odd])
    client.run(hide, ImportError("a library is missing"), workers=[odd])
    try:
        with pytest.raises(rp.EngineError, match=rf"the Dask worker {odd} cannot import ripieno: .*a library is miss"):
            launch(client)
    finally:
        client.run(show, workers=[odd])
    monkeypatch.setattr(dask, "__version__", "9.9")
    with pytest.raises(rp.EngineError, match=r"has ripieno .*, the process that launches the job has ripieno 9\.9"):
        launch(client)


def test_clients_that_cannot_be_used_are_refused(client, monkeypatch):
    with pytest.raises(rp.EngineError, match=r"there is no Dask client: make one"):
        rp.launch(engine="dask")
    with pytest.raises(rp.InputError, match="address= and client= were given"):
        rp.launch(engine="dask", address="tcp://127.0.0.1:1", client=client)
    monkeypatch.setattr(dask, "CONNECT_S", 0.3)
    with pytest.raises(rp.EngineError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:1"):
        rp.launch(engine="dask", address="tcp://127.0.0.1:1")
    with distributed.Client(client.scheduler.address, set_as_default=False) as closed:
        pass
    with pytest.raises(rp.EngineError, match="the Dask client is closed"):
        launch(closed)

    async def asynchronous() -> None:
        async with distributed.Client(client.scheduler.address, asynchronous=True, set_as_default=False) as other:
            with pytest.raises(rp.InputError, match="client= is asynchronous"):
                launch(other)

    asyncio.run(asynchronous())


def test_an_engine_of_ones_own_makes_its_client_anew(client):
    engine = dask.DaskEngine(address=client.scheduler.address)
    for _ in range(2):
        with rp.launch(2, engine=engine) as job:
            assert len(job.run(place)) == 2
        assert engine._found.status == "closed"


def test_the_current_client_is_the_default(client):
    with client.as_current(), rp.launch(2, engine="dask") as job:
        assert len(job.run(place)) == 2


PAGE = Path(__file__).resolve().parents[3] / "docs/engines/dask.md"
