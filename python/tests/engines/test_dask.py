"""Ranks on the workers of a Dask cluster: slots and rejected requests."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator

import pytest
import ripieno as rp
from dask_cases import PROMPT_S, launch, place, ranks_left, workers
from ripieno import errors
from watching import comes_true, under_load

distributed = pytest.importorskip("distributed", reason="needs Dask: pip install 'ripieno[dask]'")

from ripieno.launch.engines.dask import engine as dask  # noqa: E402
from ripieno.launch.engines.dask import run  # noqa: E402

WORKERS = 4

# Slots


def test_every_worker_has_room_for_one_rank_with_its_threads(dask_threads):
    with launch(dask_threads) as job:
        assert (job.workers, job.threads) == (2, 2)
        assert sorted(job.run(place)) == workers(dask_threads)


def test_workers_are_counted_while_the_client_asks_the_scheduler_for_itself(dask_threads):
    stop = threading.Event()

    def ask_without_workers() -> None:
        while not stop.is_set():
            dask_threads.sync(dask_threads._update_scheduler_info)

    asking = threading.Thread(target=ask_without_workers)
    asking.start()
    try:
        engine = dask.DaskEngine(client=dask_threads)
        assert {engine.slots() for _ in range(300)} == {2}
    finally:
        stop.set()
        asking.join()


def test_jobs_that_are_launched_at_once_never_share_a_worker(dask_client):
    together, places, refused = threading.Barrier(5), [], []

    def work() -> None:
        try:
            with launch(dask_client, 2) as job:
                places.extend(job.run(place))
                together.wait(under_load(PROMPT_S * 4))
        except errors.TooFewSlots as error:
            refused.append(error)
            together.wait(under_load(PROMPT_S * 4))

    jobs = [threading.Thread(target=work) for _ in range(5)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert sorted(places) == workers(dask_client)
    assert [(error.needed, error.free, error.total) for error in refused] == [(2, 0, WORKERS)] * 3


def test_more_ranks_than_workers_are_refused_with_numbers(dask_client, monkeypatch):
    monkeypatch.setattr(dask, "RESTART_S", 0.1)
    with pytest.raises(
        errors.TooFewSlots, match="too few free slots for 5 ranks: 4 free, 4 in all; a rank takes a wor"
    ):
        launch(dask_client, 5)


@pytest.fixture
def held(dask_client) -> Iterator[distributed.Event]:
    """Occupy the thread of one worker until the event is set."""
    event = distributed.Event("held", client=dask_client)
    busy = dask_client.submit(lambda: distributed.Event("held").wait() and distributed.get_worker().address, pure=False)
    assert comes_true(lambda: any(dask_client.run(len_running).values()), PROMPT_S)
    event.address = next(worker for worker, count in dask_client.run(len_running).items() if count)
    yield event
    event.set()
    assert busy.result(timeout=under_load(PROMPT_S)) == event.address
    event.clear()


def len_running(dask_worker) -> int:
    return len(dask_worker.state.all_running_tasks)


def test_a_worker_whose_threads_are_busy_is_last(dask_client, held, monkeypatch):
    with launch(dask_client, 3) as job:
        assert held.address not in job.run(place)
    monkeypatch.setattr(run, "SLOTS_S", 1.0)
    with pytest.raises(errors.TooFewSlots, match="3 free, 4 in all"):
        launch(dask_client, 4)
    assert comes_true(lambda: not ranks_left(dask_client), PROMPT_S)


def test_a_rank_takes_the_next_thread_that_is_free(dask_client, held):
    later = [dask_client.submit(int, number, workers=[held.address], pure=False) for number in range(100)]
    waiting = threading.Thread(
        target=lambda: comes_true(lambda: dask._ranks(dask_client.processing()[held.address]), PROMPT_S) and held.set()
    )
    waiting.start()
    with launch(dask_client) as job:
        assert held.address in job.run(place)
    waiting.join()
    assert dask_client.gather(later) == list(range(100))


def test_the_end_of_a_job_keeps_the_event_subscriptions_of_the_next_one(dask_client):
    worker = workers(dask_client)[0]
    first, second = [], []
    ending = run.EventSubscription(dask_client, worker, first.append)
    staying = run.EventSubscription(dask_client, worker, second.append)
    # Events logged now may reach the scheduler before the listeners are registered.
    assert comes_true(lambda: dask_client.log_event(worker, "both") or (first and second), PROMPT_S)

    ending.close()
    dask_client.log_event(worker, "one")
    assert comes_true(lambda: "one" in [event for _, event in second], PROMPT_S)
    assert "one" not in [event for _, event in first]
    staying.close()
    assert not run.EventSubscription._open


def test_dask_computes_on_the_workers_of_a_job(dask_client):
    with launch(dask_client) as job:
        assert dask_client.submit(lambda: 3).result(timeout=under_load(PROMPT_S)) == 3
        assert len(job.run(place)) == WORKERS


def test_keys_of_collections_are_no_ranks():
    assert dask._ranks([("chunk-1", 0), "chunk-2", "ripieno-rank-1-0"]) == ["ripieno-rank-1-0"]


def test_a_task_may_launch_a_job(dask_client):
    def task():
        import ripieno as rp
        from distributed import worker_client

        with worker_client(), rp.launch(engine="dask") as job:
            return job.run(lambda comm: comm.allreduce(comm.rank))

    assert dask_client.submit(task).result(timeout=30) == [6] * WORKERS


def test_adaptive_clusters_do_not_take_workers_away_from_a_job(dask_client):
    with launch(dask_client, 3) as job:
        places = job.run(place)
        closing = dask_client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.workers_to_close(n=WORKERS))
    assert len(closing) == 1 and not set(closing) & set(places)


#: Rejected requests


def test_workers_without_ripieno_or_with_another_one_are_named(dask_client, monkeypatch):
    odd = workers(dask_client)[0]

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

    dask_client.run(hide, ModuleNotFoundError("No module named 'ripieno'", name="ripieno"), workers=[odd])
    try:
        with pytest.raises(
            rp.EngineError, match=rf"the Dask worker {odd} has no ripieno, .*: install the same version there"
        ):
            launch(dask_client)
    finally:
        dask_client.run(show, workers=[odd])
    dask_client.run(hide, ImportError("a library is missing"), workers=[odd])
    try:
        with pytest.raises(rp.EngineError, match=rf"the Dask worker {odd} cannot import ripieno: .*a library is miss"):
            launch(dask_client)
    finally:
        dask_client.run(show, workers=[odd])
    with monkeypatch.context() as patch:
        patch.setattr(dask_client, "run_on_scheduler", lambda *_: None)
        with pytest.raises(rp.EngineError, match="the Dask scheduler has no ripieno"):
            launch(dask_client)
    monkeypatch.setattr(dask, "__version__", "9.9")
    with pytest.raises(rp.EngineError, match=r"has ripieno .*, the process that launches the job has ripieno 9\.9"):
        launch(dask_client)


def test_clients_that_cannot_be_used_are_refused(dask_client, monkeypatch):
    with pytest.raises(rp.EngineError, match=r"there is no Dask client: make one"):
        rp.launch(engine="dask")
    with pytest.raises(rp.InputError, match="address= and client= were given"):
        rp.launch(engine="dask", address="tcp://127.0.0.1:1", client=dask_client)
    monkeypatch.setattr(dask, "CONNECT_S", 0.3)
    with pytest.raises(rp.EngineError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:1"):
        rp.launch(engine="dask", address="tcp://127.0.0.1:1")
    with distributed.Client(dask_client.scheduler.address, set_as_default=False) as closed:
        pass
    with pytest.raises(rp.EngineError, match="the Dask client is closed"):
        launch(closed)

    async def asynchronous() -> None:
        async with distributed.Client(dask_client.scheduler.address, asynchronous=True, set_as_default=False) as other:
            with pytest.raises(rp.InputError, match="client= is asynchronous"):
                launch(other)

    asyncio.run(asynchronous())


def test_a_custom_engine_recreates_its_client(dask_client):
    engine = dask.DaskEngine(address=dask_client.scheduler.address)
    for _ in range(2):
        with rp.launch(2, engine=engine) as job:
            assert len(job.run(place)) == 2
        assert engine._cached_client.status == "closed"


def test_a_launch_that_is_refused_leaves_no_client(dask_client, tmp_path):
    def clients() -> int:
        return dask_client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.clients))

    before = clients()
    for wrong in ({"nonsense": 1}, {"trace": tmp_path / "trace.json"}):
        with pytest.raises(rp.InputError):
            rp.launch(1, engine="dask", address=dask_client.scheduler.address, **wrong)
    assert comes_true(lambda: clients() == before, PROMPT_S)


def test_the_current_client_is_the_default(dask_client):
    with dask_client.as_current(), rp.launch(2, engine="dask") as job:
        assert len(job.run(place)) == 2
