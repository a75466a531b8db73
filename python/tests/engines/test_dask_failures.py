"""Ranks on the workers of a Dask cluster: failures and their remains."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
import ripieno as rp
from dask_cases import INSIDE, PROMPT_S, RESTART_S, launch, place, ranks_left
from ripieno import errors
from ripieno.launch.engine.remote import RemoteChannel
from varied import exhaustively
from watching import comes_true, gone_within, under_load

distributed = pytest.importorskip("distributed", reason="needs Dask: pip install 'ripieno[dask]'")

from ripieno.launch.engines.dask import engine as dask  # noqa: E402
from ripieno.launch.engines.dask import run  # noqa: E402

WORKERS = 4


def test_the_end_of_a_worker_is_reported_with_the_message_of_dask(dask_client):
    def program(comm):
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        comm.barrier()

    with launch(dask_client) as job:
        places = job.run(place)
        started = time.monotonic()
        with pytest.raises(rp.RankFailed) as caught:
            job.run(program)
    assert time.monotonic() - started <= under_load(PROMPT_S)
    assert caught.value.rank == 1 and caught.value.host
    assert f"dask reports: the worker {places[1]} has left the cluster (its process ended" in caught.value.cause
    # Dask would repeat the lone rank endlessly.
    assert not any(map(dask._ranks, dask_client.processing().values()))
    dask_client.wait_for_workers(WORKERS, timeout=RESTART_S)
    with launch(dask_client) as job:
        assert places[1] not in job.run(place)


def test_ranks_of_a_job_that_fails_are_no_failed_tasks_in_the_logs_of_workers(dask_client):
    def failed_tasks() -> int:
        logs = dask_client.get_worker_logs().values()
        return sum("Compute Failed" in text for entries in logs for _, text in entries)

    before = failed_tasks()
    with launch(dask_client) as job, pytest.raises(ZeroDivisionError):
        job.run(lambda comm: comm.barrier() or 1 // comm.rank)
    assert failed_tasks() == before


def test_a_rank_that_loses_its_launcher_is_reported_by_dask(dask_client):
    def program(comm):
        if comm.rank == 1:
            for each in gc.get_objects():
                if isinstance(each, RemoteChannel):
                    each.shut_down()
        comm.recv(1 - comm.rank)

    with (
        launch(dask_client, 2) as job,
        pytest.raises(rp.RankFailed, match=r"dask reports: .* has lost the connection") as caught,
    ):
        job.run(program)
    assert caught.value.rank == 1


stuck = threading.Event()


def stays(comm, error: Exception | None = None) -> None:
    """Rank 0 fails, or waits for the other rank, which waits for the test in the same process."""
    if comm.rank == 0:
        comm.emit({"event": "begun"})
        if error is not None:
            raise error
        comm.recv(1)
    stuck.wait()


@pytest.fixture
def sticking() -> Iterator[None]:
    """Keep ranks stuck until the end of the test."""
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
            job.report_to(lambda event: client.retire_workers([places[1]])),
            pytest.raises(rp.RankFailed, match=r"has left the cluster \(closed or retired on request\)"),
        ):
            job.run(stays)


def test_a_rank_that_is_run_again_ends_at_once(dask_client):
    """This happens when a worker returns under its old address before the scheduler knows that the job is over."""

    class Noting(dask.DaskEngine):
        def start(self, workers, invitation):
            self.invitation = invitation
            return super().start(workers, invitation)

    engine = Noting(client=dask_client)
    with rp.launch(2, engine=engine):
        again = dask_client.submit(run._rank, engine.invitation, 0, pure=False)
        with pytest.raises(rp.RendezvousError, match="has begun without this attempt of the task"):
            again.result(timeout=under_load(PROMPT_S))


def test_a_cancelled_task_ends_the_job(dask_client):
    def program(comm):
        if comm.rank == 0:
            comm.emit({"event": "begun"})
            comm.recv(1)
        while True:
            pass

    def cancel(event):
        ranks = [key for keys in dask_client.processing().values() for key in dask._ranks(keys)]
        (key,) = (key for key in ranks if key.endswith("-1"))
        dask_client.cancel(distributed.Future(key, dask_client))

    with (
        launch(dask_client, 2) as job,
        job.report_to(cancel),
        pytest.raises(rp.RankFailed, match=r"rank 1 on .* dask reports: its task is cancelled"),
    ):
        job.run(program)
    assert comes_true(lambda: not ranks_left(dask_client), PROMPT_S)


def test_without_a_nanny_a_rank_that_does_not_leave_keeps_its_worker(dask_threads, sticking):
    with launch(dask_threads) as job, pytest.raises(KeyError, match="mine"):
        job.run(stays, KeyError("mine"))
    with pytest.raises(errors.TooFewSlots, match="1 free, 2 in all"):
        launch(dask_threads)
    stuck.set()
    assert comes_true(lambda: not ranks_left(dask_threads), PROMPT_S)
    with launch(dask_threads) as job:
        assert len(job.run(place)) == 2


def test_ranks_may_be_threads_of_the_launching_process(dask_threads):
    with launch(dask_threads) as job:
        assert job.run(lambda comm: (os.getpid(), comm.allgather(comm.rank))) == [(os.getpid(), [0, 1])] * 2


def test_workers_keep_no_descriptor_and_no_thread_of_25_jobs(dask_client):
    failing_count = 5

    def held():
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    def one(fails: bool) -> None:
        with launch(dask_client) as job:
            if fails:
                with pytest.raises(ZeroDivisionError):
                    job.run(lambda comm: comm.barrier() or 1 // comm.rank)
            else:
                job.run(place)

    one(fails=True)
    before = dask_client.run(held)
    for number in range(25):
        one(fails=number % failing_count == 0)

    def no_more() -> bool:
        now = dask_client.run(held)
        if now.keys() != before.keys():
            return False
        pairs = [pair for each in before for pair in zip(before[each], now[each], strict=True)]
        # A worker may start a thread meanwhile; a leak would grow with every failing job.
        return all(after < earlier + failing_count for earlier, after in pairs)

    assert comes_true(no_more, PROMPT_S), (before, dask_client.run(held))


def test_a_scheduler_that_is_lost_ends_the_job(tmp_path):
    """Its only worker has no nanny and ends by itself, so either event may be detected first."""
    options = ["--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0", "--scheduler-file", tmp_path / "cluster"]
    start = [sys.executable, "-m", "dask"]

    def program(comm):
        comm.emit({"event": "begun"})
        while True:
            pass

    with (
        subprocess.Popen([*start, "scheduler", "--port", "0", *options]) as scheduler,
        subprocess.Popen([*start, "worker", "--no-nanny", *options]) as worker,
    ):
        try:
            with distributed.Client(scheduler_file=tmp_path / "cluster", set_as_default=False) as client:
                client.wait_for_workers(1, timeout=RESTART_S)
                with (
                    launch(client, 1, on_event=lambda event: scheduler.kill()) as job,
                    pytest.raises(rp.RipienoError, match="the connection to the scheduler is lost"),
                ):
                    job.run(program)
            assert gone_within(RESTART_S, [worker.pid])
        finally:
            scheduler.kill()
            worker.kill()


def test_ranks_that_are_lost_while_data_are_waited_for_end_the_wait(dask_client):
    never = dask_client.submit(len, "", resources={"missing resource": 1}, pure=False)
    with launch(dask_client) as job:
        pid = job.run(lambda comm: os.getpid())[1]
        dying = threading.Timer(0.2, os.kill, [pid, signal.SIGKILL])
        dying.start()
        with pytest.raises(rp.RankFailed, match=r"rank 1 on .* dask reports: the worker "):
            job.run(place, never)
        dying.join()
        dask_client.wait_for_workers(WORKERS, timeout=RESTART_S)
        assert job.run(lambda comm: comm.allreduce(1)) == [job.workers] * job.workers


# The launching process


SCRIPT = """
import os, signal, sys, threading
import ripieno as rp

# A shell's background job and its children ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

def program(comm):
    comm.emit({"pid": os.getpid()})
    if comm.rank == 0:
        comm.recv(1)
    if comm.rank == 1:
        while True:
            pass
    threading.Event().wait()

def print_event(event):
    print(event["rank"], event["pid"], flush=True)

try:
    with rp.launch(3, engine="dask", address=sys.argv[1], on_event=print_event) as job:
        job.run(program)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, *exhaustively(signal.SIGINT)])
def test_ranks_leave_when_the_launching_process_ends(dask_client, number):
    """One rank communicates, one computes, and one cannot be interrupted and ends with its worker."""
    command = [sys.executable, "-c", SCRIPT, dask_client.scheduler.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher:
        try:
            pids = dict(tuple(map(int, launcher.stdout.readline().split())) for _ in range(3))
            launcher.send_signal(number)
            assert comes_true(lambda: not ranks_left(dask_client), PROMPT_S), ranks_left(dask_client)
            assert launcher.wait(under_load(PROMPT_S * 2)) == (0 if number == signal.SIGINT else -number)
            assert ("interrupted" in launcher.stdout.read()) == (number == signal.SIGINT)
        finally:
            launcher.kill()

    def living() -> set[int]:
        # A worker that ends meanwhile has no result.
        return set(dask_client.run(os.getpid, on_error="ignore").values())

    assert comes_true(lambda: pids[2] not in living(), PROMPT_S)
    assert {pids[0], pids[1]} <= living()
    dask_client.wait_for_workers(WORKERS, timeout=RESTART_S)
    with launch(dask_client) as job:
        assert len(job.run(place)) == WORKERS
