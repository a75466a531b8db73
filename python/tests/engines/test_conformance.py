"""Guarantees of all engines: the whole suite on one engine of each kind, the essential tests on every engine.

`make test-all` runs the whole suite on every engine.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import conformance_programs as programs
import launched
import numpy as np
import pytest
import ripieno as rp
import scipy.sparse
from conformance import DRIVERS, ENGINES, SLOTS, TestedEngine, resource_counts
from watching import comes_true, gone_within, under_load

# Maximum time from the failure of a rank to the caller's error.
PROMPT_S = 5.0
# Maximum time until a request with too few slots is rejected.
REFUSED_S = 15.0
# Maximum time between the end of the launching process and the end of ranks that only compute.
LEFT_S = 10.0
# A hung rank is detected after this time and then ended; a first, gentle request has no effect on it.
HEARTBEAT_S = 2.0
STILL_S = 40.0
# An engine's cleanup after a job, such as ending processes, is done by then.
SETTLED_S = 60.0
# A leak of each of this many jobs is distinguishable from the engine's own growth.
LEAVING_JOB_COUNT = 3
# Maximum number of rounds. Growth in every one of them is a leak.
LEAVING_ROUND_COUNT = 3


def _rows() -> tuple[np.ndarray]:
    return (np.random.default_rng(1).normal(size=(3000, 6)).astype(np.float32),)


def _few_rows() -> tuple[np.ndarray]:
    (rows,) = _rows()
    return (rows[:101],)


def _rows_with_target() -> tuple[np.ndarray, np.ndarray]:
    (rows,) = _rows()
    return rows, rows @ np.arange(6.0)


def _rows_with_classes() -> tuple[np.ndarray, np.ndarray]:
    rows, target = _rows_with_target()
    return rows, target > 1


def _edges() -> tuple[np.ndarray]:
    return (np.random.default_rng(3).integers(0, 150, size=(400, 2)),)


def _ratings() -> tuple[scipy.sparse.csr_matrix]:
    random = np.random.default_rng(2)
    users, items = np.divmod(random.permutation(90 * 40)[:1200], 40)
    return (scipy.sparse.csr_matrix((random.integers(1, 6, 1200).astype(np.float32), (users, items)), shape=(90, 40)),)


# By name: the estimator, its input, and its fitted attributes.
MODELS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]], tuple[str, ...]]] = {
    "kmeans": (
        partial(rp.KMeans, 7, random_state=3, max_iter=5, tol=0),
        _rows,
        ("cluster_centers_", "labels_", "inertia_"),
    ),
    "pca": (partial(rp.PCA, 3), _rows, ("components_", "explained_variance_")),
    "ridge": (rp.Ridge, _rows_with_target, ("coef_", "intercept_")),
    "logistic": (rp.LogisticRegression, _rows_with_classes, ("coef_", "intercept_")),
    "mds": (partial(rp.MDS, 2, metric="euclidean", max_iter=3, random_state=0), _few_rows, ("embedding_", "stress_")),
    "layout": (partial(rp.FruchtermanReingold, max_iter=5, random_state=0), _edges, ("positions_",)),
    "als": (partial(rp.ALS, 4, max_iter=3, random_state=0), _ratings, ("user_factors_", "item_factors_")),
}


@pytest.fixture(scope="module", params=ENGINES)
def tested_engine(request: pytest.FixtureRequest):
    tested_engine = TestedEngine(request.param)
    yield tested_engine
    tested_engine.close()


@pytest.fixture
def engine(tested_engine: TestedEngine, request: pytest.FixtureRequest) -> TestedEngine:
    """Run each engine in turn, with a running job. The fixture that starts the engine is requested by each test."""
    started = None if tested_engine.name == "local" else request.getfixturevalue(tested_engine.name)
    tested_engine.options = ENGINES[tested_engine.name](started)
    tested_engine.driver = DRIVERS[tested_engine.name](started) if tested_engine.name in DRIVERS else None
    return tested_engine


@pytest.mark.every_engine
def test_a_sum_of_10_MB_is_right_on_every_rank(engine: TestedEngine):
    rows = engine.job().run(programs.summed, 1_250_000)

    assert rows == [(rank, SLOTS, True) for rank in range(SLOTS)]


def test_ranks_that_encrypt_all_their_connections_compute_the_same(engine: TestedEngine):
    engine.close()
    with engine.launch(SLOTS, links="tcp", tls=True) as job:
        rows = job.run(programs.summed, 1_250_000)

    assert rows == [(rank, SLOTS, True) for rank in range(SLOTS)]


def test_state_of_ranks_is_kept_for_the_next_run(engine: TestedEngine):
    job = engine.job()
    first = job.run(programs.counted)

    assert job.run(programs.counted) == [count + 1 for count in first]


def test_50_MB_make_a_round_trip(engine: TestedEngine):
    array = np.random.default_rng(0).random(6_250_000)

    rows = engine.job().run(programs.told_and_returned, array)

    assert [digest for digest, _ in rows] == [programs.hashlib.sha256(array).hexdigest()] * SLOTS
    np.testing.assert_array_equal(rows[-1][1], array * 2)


def test_broadcast_variables_are_equal_on_every_rank_and_use_their_own_links(engine: TestedEngine):
    strategies = ["auto", "chain", "bittorrent", "splitstream"][:SLOTS]

    rows = engine.job().run(programs.variable_used, strategies)

    assert rows == [[rank + root for root in range(len(strategies))] for rank in range(SLOTS)]


@pytest.mark.parametrize("strategy", ["auto", "chain"])
def test_a_broadcast_value_of_a_job_outlives_a_program_that_fails(engine: TestedEngine, strategy: str):
    job = engine.job()
    with job.broadcast(np.arange(200_000), strategy) as used, job.broadcast(np.arange(200_000), strategy) as unused:
        assert job.run(programs.handle_used, used) == list(range(SLOTS))
        with suppress(programs.Wrong):
            job.run(programs.fail, 1, "raise", "in a collective")
        for table in (unused, used):
            assert job.run(programs.handle_used, table) == list(range(SLOTS))


def test_files_of_rank_0_reach_every_rank(engine: TestedEngine, tmp_path: Path):
    contents = [bytes(0), np.random.default_rng(4).bytes(1_000_003)]
    files = [str(tmp_path / f"given {at}") for at in range(len(contents))]
    for name, content in zip(files, contents, strict=True):
        Path(name).write_bytes(content)

    rows = engine.job().run(programs.distributed, files, str(tmp_path / "copies"))

    assert rows[0][0] == {(0, "copied", ""), *((rank, "fetched", "") for rank in range(1, SLOTS))}
    expected = [programs.hashlib.sha256(content).hexdigest() for content in contents]
    assert [digests for _, digests in rows] == [expected] * SLOTS


def test_accumulators_hold_the_sum_of_all_ranks(engine: TestedEngine):
    job = engine.job()
    rows = job.accumulator(0)

    job.run(lambda comm, rows: rows.add(comm.rank + 1), rows)

    assert rows.value == SLOTS * (SLOTS + 1) // 2


def test_events_arrive_in_order_with_their_rank(engine: TestedEngine):
    engine.job().run(programs.emit, 20)

    for rank in range(SLOTS):
        received = [event for event in engine.events if event["rank"] == rank]
        assert [event["step"] for event in received] == list(range(20))
        assert all((event["array"] == event["step"]).all() for event in received)


def test_a_dashboard_shows_the_work_of_every_rank(engine: TestedEngine):
    engine.close()
    with engine.launch(SLOTS, dashboard=True) as job:
        job.run(programs.summed, 1_250_000)
        ranks = job.dashboard.board.ranks
        assert sorted(ranks) == list(range(SLOTS))
        assert all(each.sums["bytes_sent"] > 0 < each.memory_bytes for each in ranks.values())
    # The page would stay open in engines that share this process.
    job.dashboard.close()


def test_programs_may_print_any_amount(engine: TestedEngine):
    assert engine.job().run(programs.print_much, 2000) == [SLOTS] * SLOTS


def test_an_argument_that_cannot_travel_is_reported_and_the_job_continues(engine: TestedEngine):
    job = engine.job()
    with pytest.raises(rp.SerializationError, match=r"summed or its arguments cannot be sent"):
        job.run(programs.summed, threading.Lock())

    assert engine.job() is job and engine.works()


@cache
def _fitted_by_local_workers(name: str) -> Any:
    model, data, _ = MODELS[name]
    return model(workers=SLOTS, threads=1).fit(*data())


@pytest.mark.parametrize("name", MODELS)
def test_a_fit_has_the_same_bits_as_with_local_workers(engine: TestedEngine, name: str):
    model, data, results = MODELS[name]
    expected = _fitted_by_local_workers(name)

    found = model(engine=engine.job()).fit(*data())

    for result in results:
        assert np.asarray(getattr(found, result)).tobytes() == np.asarray(getattr(expected, result)).tobytes(), result


@pytest.mark.every_engine
def test_own_rows_and_partition_files_have_the_model_of_all_rows(engine: TestedEngine, tmp_path: Path):
    rows, partition_file = programs.rows_and_partitions(tmp_path)
    expected = rp.KMeans(4, random_state=0).fit(rows)

    results = engine.job().run(programs.fit_where_rows_lie, rows, partition_file)
    of_job = rp.KMeans(4, random_state=0, engine=engine.job()).fit(partition_file)

    for inertia, labels, inertia_of_parts in results:
        assert (inertia, inertia_of_parts) == pytest.approx((expected.inertia_, expected.inertia_), rel=1e-12)
        np.testing.assert_array_equal(labels, expected.labels_)
    assert of_job.inertia_ == pytest.approx(expected.inertia_, rel=1e-12)
    np.testing.assert_array_equal(of_job.labels_, expected.labels_)


@pytest.mark.parametrize(
    ("culprit", "others"),
    [(0, "in a collective"), pytest.param(1, "computing", marks=pytest.mark.every_engine), (3, "not yet there")],
)
def test_the_caller_gets_the_exception_of_a_rank(engine: TestedEngine, culprit: int, others: str):
    with pytest.raises(programs.Wrong) as caught:
        engine.job().run(programs.fail, culprit, "raise", others)
    took_s = time.time() - _moment_of_failure(engine)

    assert caught.value.args == (culprit, "on purpose")
    cause = caught.value.__cause__
    assert isinstance(cause, rp.RankFailed) and cause.rank == culprit and cause.host
    assert "in _raise" in cause.traceback
    assert took_s <= under_load(PROMPT_S)
    assert engine.works()


@pytest.mark.parametrize(
    ("culprit", "others"), [pytest.param(0, "in a collective", marks=pytest.mark.every_engine), (2, "computing")]
)
def test_a_rank_that_is_killed_is_named(engine: TestedEngine, culprit: int, others: str):
    with pytest.raises(rp.RankFailed) as caught:
        engine.job().run(programs.fail, culprit, "kill", others)
    took_s = time.time() - _moment_of_failure(engine)

    assert caught.value.rank == culprit and caught.value.host
    assert took_s <= under_load(PROMPT_S)
    assert comes_true(lambda: _works_again(engine), SETTLED_S)


def test_a_rank_that_hangs_is_named_and_ended(engine: TestedEngine):
    engine.close()
    job = engine.launch(2, heartbeat_timeout_s=HEARTBEAT_S, on_event=engine.events.append)
    with job, pytest.raises(rp.RankFailed) as caught:
        job.run(programs.fail, 1, "stop", "in a collective")
    took_s = time.time() - _moment_of_failure(engine)
    (pid,) = (event["stands still"] for event in engine.events if "stands still" in event)

    try:
        assert caught.value.rank == 1
        assert took_s <= under_load(STILL_S)
        assert gone_within(SETTLED_S, [pid])
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    assert comes_true(lambda: _works_again(engine), SETTLED_S)


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("policy", "left"), [("shrink", 2), ("respawn", 3)])
def test_a_program_restarts_after_a_failure_with_fewer_ranks_if_requested(
    engine: TestedEngine, tmp_path: Path, policy: str, left: int
):
    engine.close()
    with engine.launch(3, on_failure=policy) as job:
        with pytest.warns(RuntimeWarning, match=f"rank 1 on .*restarts on {left} ranks"):
            assert job.run(programs.sum_and_kill_rank, tmp_path) == [left] * left
        assert list(job.lost) == [1] and job.workers == left
        for workers in (2, 3):
            job.resize(workers)
            assert job.run(programs.sum_and_kill_rank, tmp_path) == [workers] * workers
    assert comes_true(lambda: _works_again(engine), SETTLED_S)


def test_engines_keep_no_spares(engine: TestedEngine):
    if engine.name == "local":
        pytest.skip("local workers may have spares")
    with pytest.raises(rp.InputError, match="spares=1: an engine starts replacements on demand"):
        engine.launch(2, spares=1)


@pytest.mark.timeout(400)
def test_a_fit_continues_from_its_folder_where_a_rank_has_died(engine: TestedEngine, tmp_path: Path):
    engine.close()
    (rows,) = _rows()
    expected = rp.KMeans(7, random_state=3, max_iter=6, tol=0.0, workers=3, threads=1).fit(rows)
    with engine.launch(3, on_failure="respawn") as job, pytest.warns(RuntimeWarning, match="restarts on 3 ranks"):
        found = job.run(programs.fit_and_kill_rank, tmp_path, rows)

    # Surviving local ranks may hold the current iteration in memory.
    assert {resumed_from for resumed_from, _ in found} in ({3}, {4})
    assert all(centers.tobytes() == expected.cluster_centers_.tobytes() for _, centers in found)
    assert comes_true(lambda: _works_again(engine), SETTLED_S)


@pytest.mark.every_engine
def test_ranks_that_only_compute_end_with_the_process_that_launched_them(engine: TestedEngine):
    if engine.driver is None:
        pytest.skip("the process with the SparkSession runs the tests")
    engine.close()

    assert launched.ranks_that_outlive_their_launcher(engine.driver, signal.SIGKILL, "main", LEFT_S) == []
    assert comes_true(lambda: _works_again(engine), SETTLED_S)


def test_sys_exit_is_a_failure_of_that_rank(engine: TestedEngine):
    with pytest.raises(rp.RankFailed) as caught:
        engine.job().run(programs.fail, 2, "exit", "in a collective")

    assert caught.value.rank == 2 and "SystemExit: 3" in caught.value.cause
    assert engine.works()


def test_a_result_that_cannot_travel_is_reported_with_its_rank(engine: TestedEngine):
    with pytest.raises(rp.SerializationError, match=r"the result of rank 1, a lock, cannot be sent"):
        engine.job().run(programs.return_what_cannot_travel)

    assert engine.works()


@pytest.mark.every_engine
def test_too_few_slots_are_reported_soon_with_numbers(engine: TestedEngine):
    if engine.name == "local":
        pytest.skip("this machine starts as many processes as requested")
    needed, free = (2, 0) if engine.counts_other_jobs else (SLOTS + 1, SLOTS)
    # Spark's stage would wait for other stages to end.
    waiting = {"slots_timeout_s": 2.0} if engine.options["engine"] == "spark" else {}
    job, started = engine.job(), time.monotonic()

    with pytest.raises(rp.TooFewSlots, match=f"for {needed} ranks: {free} free, {SLOTS} in all; .") as caught:
        engine.launch(needed, **waiting)

    assert time.monotonic() - started <= under_load(REFUSED_S)
    assert (caught.value.needed, caught.value.free, caught.value.total) == (needed, free, SLOTS)
    assert engine.job() is job and engine.works()


def test_two_jobs_at_once_do_not_mix(engine: TestedEngine):
    engine.close()
    rows: dict[int, list[list[float]]] = {}

    def work(number: int) -> None:
        with engine.launch(2) as job:
            rows[number] = job.run(programs.many_sums, number, 50)

    threads = [threading.Thread(target=work, args=[number]) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    expected = {number: [[2 * (1000.0**number + round) for round in range(50)]] * 2 for number in (1, 2)}
    assert rows == expected


def test_jobs_leave_no_resources_behind(engine: TestedEngine):
    """Earlier tests have run jobs, so engines already have their cached resources.

    Engines create pooled threads and sockets on demand. A leak grows with every job.
    """
    engine.close()
    with engine.launch(2) as job:
        held = {each["pid"]: each for each in job.run(programs.held)}
    grown = []
    while len(grown) < LEAVING_ROUND_COUNT:
        before, here = held, resource_counts()
        for _ in range(LEAVING_JOB_COUNT):
            with engine.launch(2) as job, pytest.raises(programs.Wrong):
                held = {each["pid"]: each for each in job.run(programs.held)}
                job.run(programs.fail, 1, "raise", "in a collective")
        more = {resource: count + LEAVING_JOB_COUNT for resource, count in here.items()}
        left = comes_true(lambda: all(resource_counts()[resource] < more[resource] for resource in more), SETTLED_S)  # noqa: B023
        # The last job counts while it runs, as the first did.
        kept = all(
            held[pid][resource] < before[pid][resource] + LEAVING_JOB_COUNT - 1
            for pid in before.keys() & held.keys()
            for resource in ("threads", "sockets")
        )
        if left and kept:
            return
        grown.append((before, held, here, resource_counts()))
    pytest.fail(f"grows with every {LEAVING_JOB_COUNT} jobs: {grown}")


def _moment_of_failure(engine: TestedEngine) -> float:
    (moment,) = (event["fails at"] for event in engine.events if "fails at" in event)
    return moment


def _works_again(engine: TestedEngine) -> bool:
    """Return whether the engine has all its slots again after the loss of a process."""
    try:
        return engine.works()
    except rp.EngineError:
        return False
