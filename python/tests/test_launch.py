"""Jobs: arguments, results, and cleanup after failures."""

from __future__ import annotations

import atexit
import errno
import gc
import importlib
import json
import os
import random
import re
import selectors
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
import ripieno as rp
from ripieno.input.matrix import RowsInMemory
from ripieno.launch import limits
from ripieno.launch.job.local import LocalJob
from ripieno.launch.job.stand_ins import local
from ripieno.launch.process import running
from ripieno.launch.process.interruption import interruptible
from ripieno.launch.process.processes import end, is_stopped
from ripieno.wire.zero_copy import ZeroCopyArray, can_read
from varied import exhaustively
from watching import (
    EVENT_TIMEOUT_S,
    PROMPT_S,
    SLACK_S,
    gone_within,
    is_prompt,
    is_running,
    open_descriptors,
    under_load,
)


def ranks(comm, *args, **kwargs):
    return comm.rank, comm.world_size, args, kwargs


@pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
def test_every_rank_runs_the_program_and_results_are_in_order(world, workers):
    assert world(workers).run(ranks, 7, key="x") == [(rank, workers, (7,), {"key": "x"}) for rank in range(workers)]


def test_a_single_worker_is_the_calling_process():
    before = open_descriptors()
    with rp.launch(workers=1) as job:
        assert job.run(lambda comm: (os.getpid(), comm.hosts)) == [(os.getpid(), [socket.gethostname()])]
    assert open_descriptors() == before


def test_lambdas_and_local_classes_are_sent_both_ways(world):
    class Local:
        def __init__(self, value):
            self.value = value

    first, second = world(2).run(lambda comm, x: Local(x.value + comm.rank), Local(1))

    assert isinstance(first, Local) and isinstance(second, Local)
    assert (first.value, second.value) == (1, 2)


def shared(comm, nested):
    vectors = nested["deep"][0]
    maps = Path("/proc/self/maps").read_text()
    return vectors.flags.writeable, float(vectors.sum()), "memfd:ripieno-message" in maps, vectors.flags.aligned


def test_arrays_are_shared_with_workers_and_read_only(world):
    results = world(2).run(shared, {"deep": [np.ones(1_000_000)]})

    assert results == [(False, 1_000_000.0, True, True)] * 2


def own_rows(comm, source):
    share = source.read_share(comm.rank, comm.world_size)
    return share.points, share.points.flags.writeable, type(source.array).__name__


@pytest.mark.parametrize(("can_read", "kind"), [(True, "ZeroCopyArray"), (False, "ndarray")])
def test_rows_of_a_fit_are_shared_only_if_workers_cannot_read_the_callers_memory(can_read, kind):
    rows = np.random.default_rng(0).normal(size=(10_001, 3))
    with rp.launch(workers=3) as job:
        for member in job.members:
            assert member.can_read
            member.can_read = can_read
        results = job.run(own_rows, RowsInMemory(rows))
        small = job.run(own_rows, RowsInMemory(rows[:5]))
    assert [(writeable, found) for _, writeable, found in results] == [(False, kind)] * 3
    assert np.array_equal(np.concatenate([points for points, _, _ in results]), rows)
    assert [found for _, _, found in small] == ["ndarray"] * 3


def test_borrowed_arrays_are_read_by_slices_and_an_ended_owner_is_reported():
    array = np.arange(60, dtype=np.float32).reshape(10, 3, 2)
    borrowed = ZeroCopyArray.of(array)
    for rows in (slice(None), slice(2, 5), slice(4, 4), slice(9, 30), slice(7, 3)):
        assert np.array_equal(borrowed[rows], array[rows])
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    gone = replace(borrowed, pid=ended.pid)
    assert can_read(borrowed, array) and not can_read(gone, array)
    with pytest.raises(rp.SerializationError, match=f"process {ended.pid} cannot be read"):
        gone[:]


@dataclass
class Holder:
    array: np.ndarray


def arrays_of_all_kinds(count):
    numbers = np.arange(float(count))
    grid = np.arange(2.0 * count).reshape(2, count)
    return {
        "plain": [numbers],
        "nested": ({"deep": [Holder(numbers.copy())]},),
        "turned": [grid.T],
        "strided": [numbers[::2], grid[:, 1:]],
        "times": [numbers.astype("M8[s]"), numbers.astype("m8[s]")[::2]],
        "records": [np.zeros(count, [("when", "M8[s]"), ("x", "f4")])],
        "objects": [np.array([{}, "x"] * count, object)],
        "masked": [np.ma.masked_less(numbers, 3)],
        "one number": [np.array(1.0)],
    }


def arrays_in(value):
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, Holder):
        return [value.array]
    return [array for each in (value.values() if isinstance(value, dict) else value) for array in arrays_in(each)]


@pytest.mark.parametrize("count", [8, 100_000])
@pytest.mark.parametrize("workers", [1, 2])
def test_arrays_among_the_arguments_are_read_only_at_every_size_and_stay_the_callers(world, workers, count):
    def writable(comm, kinds, *, more):
        return [kind for kind, value in kinds.items() if any(each.flags.writeable for each in arrays_in(value))], (
            more.flags.writeable
        )

    kinds, more = arrays_of_all_kinds(count), np.zeros(count)

    assert world(workers).run(writable, kinds, more=more) == [([], False)] * workers
    assert more.flags.writeable and kinds["plain"][0].flags.writeable and kinds["objects"][0].flags.writeable


@pytest.mark.parametrize("workers", [1, 2])
def test_arrays_keep_their_kind_type_and_values(world, workers):
    kinds = arrays_of_all_kinds(50)
    for result in world(workers).run(lambda comm, kinds: kinds, kinds):
        for expected, got in zip(arrays_in(kinds), arrays_in(result), strict=True):
            assert type(got) is type(expected) and got.dtype == expected.dtype
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_program_that_would_write_to_an_argument_is_reported(world, workers):
    def add_one(comm, array):
        array += 1

    mine = np.zeros(3)
    with pytest.raises(ValueError, match="read-only"):
        world(workers).run(add_one, mine)
    assert mine.tolist() == [0, 0, 0]


@pytest.mark.parametrize("workers", [1, 2])
def test_other_arguments_are_copies(world, workers):
    mine = {"list": [1]}

    assert (
        world(workers).run(lambda comm, theirs: (theirs["list"].append(2), theirs)[1], mine)
        == [{"list": [1, 2]}] * workers
    )
    assert mine == {"list": [1]}


def test_a_single_worker_copies_no_array(world):
    large = np.zeros((1000, 1000))[::2]
    (address,) = world(1).run(lambda comm, nested: nested["x"].__array_interface__["data"][0], {"x": large})
    assert address == large.__array_interface__["data"][0]


def test_a_single_worker_runs_the_callers_own_function_and_returns_its_own_object(world):
    received, lock = [], threading.Lock()
    assert world(1).run(lambda comm: (received.append(comm.rank), lock)[1]) == [lock] and received == [0]


def mapped(comm, views):
    maps = Path("/proc/self/maps").read_text()
    in_file, in_memory = "vectors.npy" in maps, "memfd:ripieno-message" in maps
    return in_file, in_memory, [view.copy() for view in views], views[0].flags.writeable


def test_programs_run_in_the_callers_current_directory(tmp_path, monkeypatch):
    with rp.launch(workers=2, threads=1) as job:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            monkeypatch.chdir(tmp_path / name)
            assert job.run(lambda comm: os.getcwd()) == [str(tmp_path / name)] * 2
        # A program may change the directory, which persists for later programs.
        assert job.run(lambda comm: os.chdir("/")) == [None, None]
        assert job.run(lambda comm: os.getcwd()) == ["/", "/"]


def test_workers_import_by_the_callers_path_at_the_time_of_the_call(tmp_path, monkeypatch):
    with rp.launch(workers=2, threads=1) as job:
        for name in ("earlier_module_of_the_caller", "later_module_of_the_caller"):
            (tmp_path / name).mkdir()
            (tmp_path / name / f"{name}.py").write_text("def rank(comm):\n    return comm.rank\n")
            monkeypatch.syspath_prepend(tmp_path / name)
            # The program itself is imported on the workers, too.
            assert job.run(importlib.import_module(name).rank) == [0, 1]
        # A program may change the path, which persists for later programs.
        assert job.run(lambda comm: sys.path.append("/of/a/program")) == [None, None]
        assert job.run(lambda comm: sys.path[-1]) == ["/of/a/program"] * 2


def test_memory_maps_are_reopened_instead_of_copied(world, tmp_path):
    np.save(tmp_path / "vectors.npy", np.arange(300_000.0).reshape(-1, 3))
    whole = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    views = [whole, whole[10:20], whole[5::7, 1], whole[::-1], np.asarray(whole)[3:]]

    for in_file, in_memory, copies, writable in world(2).run(mapped, views):
        assert in_file and not in_memory and not writable
        for copy, view in zip(copies, views, strict=True):
            np.testing.assert_array_equal(copy, view)


def test_private_changes_to_a_memory_map_are_not_lost(world, tmp_path):
    np.save(tmp_path / "vectors.npy", np.zeros(100_000))
    changed = np.load(tmp_path / "vectors.npy", mmap_mode="c")
    changed[0] = 5

    assert world(2).run(lambda comm, x: x[0], changed) == [5, 5]


def test_large_results_are_writable(world):
    results = world(2).run(lambda comm: {"a": np.full(100_000, comm.rank)})

    for rank, result in enumerate(results):
        assert (result["a"] == rank).all()
        result["a"] += 1


def test_workers_share_the_cores(world):
    def look(comm):
        return comm.threads, os.environ["OMP_NUM_THREADS"], os.environ["OPENBLAS_NUM_THREADS"]

    with rp.launch(workers=2, threads=3) as job:
        assert job.run(look) == [(3, "3", "3")] * 2
    assert rp.launch(workers=1, threads=5).threads == 5


@pytest.mark.parametrize("workers", [1, 2])
def test_events_reach_the_caller_with_their_rank(workers):
    received = []
    with rp.launch(workers=workers, on_event=received.append) as job:
        job.run(lambda comm: [comm.emit({"step": step}) for step in range(3)])

    for rank in range(workers):
        assert [event for event in received if event["rank"] == rank] == [{"rank": rank, "step": s} for s in range(3)]


def test_events_are_sent_only_while_a_callback_is_set():
    def program(comm):
        # A value that cannot be sent would raise an error here.
        comm.emit({"rank": comm.rank, "lock": threading.Lock()})

    with rp.launch(workers=2) as job:
        job.run(program)
        with job.report_to(print), pytest.raises(rp.SerializationError, match="lock"):
            job.run(program)
        job.run(program)


CLOSED = """
import os, sys
report = os.dup(1)
for number in range(3):
    os.close(number)
import ripieno as rp

def program(comm):
    print("printed", flush=True)
    os.system("echo said by a shell")
    return comm.allreduce(1), {os.readlink(f"/proc/self/fd/{number}") for number in range(3)}

for workers in (1, 2):
    with rp.launch(workers, threads=1) as job:
        os.write(report, f"{job.run(program)}\\n".encode())
"""


def test_no_descriptor_of_a_job_takes_the_place_of_a_closed_standard_one():
    ran = subprocess.run([sys.executable, "-c", CLOSED], capture_output=True, text=True, timeout=60, check=False)
    assert ran.stdout.splitlines() == [str([(count, {"/dev/null"})] * count) for count in (1, 2)], ran


def test_output_is_prefixed_on_request(capfd):
    with rp.launch(workers=2, prefix_output=True) as job:
        job.run(lambda comm: print("hello", comm.rank, "\nagain"))

    lines = capfd.readouterr().out.splitlines()
    assert sorted(lines) == ["[rank 0] again", "[rank 0] hello 0 ", "[rank 1] again", "[rank 1] hello 1 "]


# Failures


class Custom(Exception):
    def __init__(self, code, text):
        super().__init__(code, text)
        self.code = code


class Stubborn(Exception):
    """An exception that cannot be recreated from its arguments."""

    def __init__(self, code, text):
        super().__init__(f"{code}: {text}")


def raise_at(comm, rank, make):
    if comm.rank == rank:
        raise make()
    comm.allreduce(1)


@pytest.mark.parametrize("culprit", [2, *exhaustively(0, 1)])
def test_the_caller_gets_the_culprits_own_exception(world, culprit):
    with pytest.raises(Custom) as caught:
        world(3).run(raise_at, culprit, lambda: Custom(42, "text"))

    cause = caught.value.__cause__
    assert caught.value.code == 42
    assert isinstance(cause, rp.RankFailed)
    assert (cause.rank, cause.host) == (culprit, socket.gethostname())
    assert "raise make()" in cause.traceback


@pytest.mark.parametrize("inner", [2, *exhaustively(1)])
def test_a_failure_in_a_job_that_a_rank_has_launched_is_that_ranks_own(inner):
    def program(comm):
        if comm.rank == 1:
            with rp.launch(workers=inner) as job:
                job.run(raise_at, 0, lambda: Custom(42, "text"))
        comm.barrier()

    with rp.launch(workers=2) as job, pytest.raises(Custom) as caught:
        job.run(program)
    assert caught.value.__cause__.rank == 1


def test_an_unpicklable_exception_is_reported_as_text(world):
    with pytest.raises(rp.RankFailed, match=r"rank 1 .*Stubborn: 3: text") as caught:
        world(2).run(raise_at, 1, lambda: Stubborn(3, "text"))
    assert caught.value.rank == 1


def test_workers_of_later_jobs_have_the_current_environment_of_the_launcher(monkeypatch, tmp_path):
    def inherited(comm):
        return os.environ.get("LATER"), os.getcwd(), os.umask(0o77), sorted(os.sched_getaffinity(0)), os.getppid()

    before = rp.launch(workers=2, threads=1)
    monkeypatch.setenv("LATER", "set")
    monkeypatch.chdir(tmp_path)
    umask, cores = os.umask(0o27), os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(cores)})
        with before, rp.launch(workers=2, threads=1) as job:
            first, second = before.run(inherited)[0], job.run(inherited)[0]
    finally:
        os.umask(umask)
        os.sched_setaffinity(0, cores)
    assert second[:4] == ("set", str(tmp_path), 0o27, [min(cores)])
    assert first[0] is None and first[4] != second[4]


def test_workers_start_from_one_warm_process_but_draw_different_numbers(monkeypatch):
    def program(comm):
        return os.getppid(), float(np.random.random()), random.random(), os.environ.get("LATER")

    with rp.launch(workers=2, threads=1) as one:
        monkeypatch.setenv("LATER", "set")
        with rp.launch(workers=2, threads=1) as two:
            results = one.run(program) + two.run(program)
    parents, numpy_draws, python_draws, later = zip(*results, strict=True)
    assert later == (None, None, "set", "set")
    assert len(set(parents)) == 1 and os.getpid() not in parents
    assert len(set(numpy_draws)) == len(set(python_draws)) == 4


def test_preloaded_modules_are_imported_before_a_worker_starts(monkeypatch):
    def program(comm):
        return "sqlite3" in sys.modules, "no_such_module" in sys.modules

    monkeypatch.setenv("RIPIENO_PRELOAD", "sqlite3,no_such_module")
    with rp.launch(workers=2, threads=1) as job:
        assert job.run(program) == [(True, False)] * 2


def test_workers_start_although_the_process_that_starts_them_was_killed():
    with rp.launch(workers=2, threads=1) as job:
        server = job.run(lambda comm: os.getppid())[0]
    os.kill(server, signal.SIGKILL)
    with rp.launch(workers=2, threads=1) as job:
        assert job.run(lambda comm: os.getppid())[0] != server


def test_a_worker_that_cannot_be_started_leaves_no_descriptor(monkeypatch):
    def refuse(name):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    gc.collect()
    before = open_descriptors()
    with monkeypatch.context() as patch:
        patch.setattr(os, "memfd_create", refuse)
        for prefix_output in (False, True):
            with pytest.raises(OSError, match="Too many open files"):
                rp.launch(workers=2, threads=1, prefix_output=prefix_output)
    gc.collect()
    assert open_descriptors() == before


def test_a_rank_that_is_killed_while_sigchld_is_ignored_is_reported_as_killed():
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with rp.launch(workers=2, threads=1) as job, pytest.raises(rp.RankFailed, match="killed by SIGKILL") as caught:
            job.run(lambda comm: os.kill(os.getpid(), signal.SIGKILL) if comm.rank else comm.barrier())
        assert caught.value.rank == 1
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_an_exception_with_a_long_message_is_described_in_short_to_other_ranks():
    def program(comm):
        if comm.rank == 0:
            raise ValueError("x" * 10_000_000)
        try:
            comm.barrier()
        except rp.RankFailed as error:
            return len(str(error))

    with rp.launch(workers=2, threads=1) as job, pytest.raises(ValueError, match="x" * 1000) as caught:
        job.run(program)
    assert len(str(caught.value)) == 10_000_000
    assert caught.value.__cause__.results[1] < 200_000


def test_a_victims_wrapped_error_is_not_taken_for_the_cause(world):
    def program(comm):
        if comm.rank == 1:
            raise KeyError("culprit")
        try:
            comm.barrier()
        except rp.RankFailed as error:
            raise RuntimeError("victim") from error

    with pytest.raises(KeyError, match="culprit"):
        world(3).run(program)


@pytest.mark.parametrize("workers", [1, 2])
def test_leaving_the_program_by_exit_is_a_failure_that_names_the_rank(workers):
    last = workers - 1
    with rp.launch(workers=workers) as job, pytest.raises(rp.RankFailed, match=rf"rank {last} .*SystemExit: 3"):
        job.run(raise_at, last, lambda: SystemExit(3))


@pytest.mark.parametrize("waiting", ["in a collective", "in a computation"])
def test_a_killed_worker_is_named_in_time(waiting):
    def program(comm):
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if waiting == "in a collective":
            comm.barrier()
        else:
            time.sleep(60)

    with rp.launch(workers=3) as job:
        pids = job.pids
        started = time.monotonic()
        with pytest.raises(rp.RankFailed, match="killed by SIGKILL") as caught:
            job.run(program)
        assert is_prompt(time.monotonic() - started)
    assert caught.value.rank == 1
    assert gone_within(0, pids)


@pytest.mark.parametrize("victim", [0, *exhaustively(1, 2)])
def test_a_worker_killed_before_the_rendezvous_is_named_in_time(monkeypatch, victim):
    start = LocalJob._start_one

    def start_and_kill(job, name, number, pump):
        worker = start(job, name, number, pump)
        if number == victim:
            worker.process.kill()
        return worker

    monkeypatch.setattr(LocalJob, "_start_one", start_and_kill)
    gc.collect()
    before = open_descriptors()
    started = time.monotonic()
    with pytest.raises(rp.RankFailed, match="killed by SIGKILL") as caught:
        rp.launch(workers=3)
    assert is_prompt(time.monotonic() - started)
    assert caught.value.rank == victim
    del caught
    gc.collect()
    assert open_descriptors() == before


def test_a_worker_that_is_stopped_while_it_starts_is_named(monkeypatch):
    start = LocalJob._start_one

    def start_and_stop(job, name, number, pump):
        worker = start(job, name, number, pump)
        if number == 1:
            worker.process.send_signal(signal.SIGSTOP)
        return worker

    monkeypatch.setattr(LocalJob, "_start_one", start_and_stop)
    started = time.monotonic()
    with pytest.raises(rp.RankFailed, match="its process has been stopped for 5 s") as caught:
        rp.launch(workers=3)
    assert is_prompt(time.monotonic() - started - 5)
    assert caught.value.rank == 1


def test_a_worker_that_falls_silent_is_named():
    def program(comm):
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        comm.barrier()

    with rp.launch(workers=3, heartbeat_timeout_s=1.0) as job, pytest.raises(rp.RankFailed) as caught:
        job.run(program)
    assert caught.value.rank == 1
    assert gone_within(0, job.pids)


@pytest.mark.timeout(30)
@pytest.mark.timeout(120)
def test_a_worker_that_is_stopped_while_it_exits_does_not_delay_the_end_of_its_job(monkeypatch):
    monkeypatch.setattr(limits, "SHUTDOWN_S", 1000.0)

    def stop_at_exit(comm):
        if comm.rank == 0:
            atexit.register(os.kill, os.getpid(), signal.SIGSTOP)

    job = rp.launch(2)
    job.run(stop_at_exit)
    pids = job.pids
    job.close()
    assert gone_within(0, pids)


def test_a_stopped_process_is_ended_without_delay():
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    sleeper.send_signal(signal.SIGSTOP)
    while not is_stopped(sleeper.pid):
        time.sleep(0.01)

    end([sleeper], grace_s=1000.0, step_s=1000.0)

    assert sleeper.returncode == -signal.SIGTERM


def test_a_closed_job_states_that_it_is_over(world):
    with rp.launch(workers=1) as job:
        pass
    with pytest.raises(rp.CommunicatorClosed, match="this job is over: it was closed; launch another one"):
        job.run(ranks)


#: Survived failures


def meet_a_mismatch(comm):
    try:
        comm.barrier() if comm.rank == 0 else comm.allreduce(np.ones(3))
    except rp.CollectiveMismatch:
        return comm.rank, "went on"


def lose_rank_1(comm):
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        comm.barrier()
    except rp.RankFailed as error:
        return comm.rank, error.rank


def raise_where_all_look(comm):
    raise ValueError("everywhere")


def leave_one_computing(comm):
    if comm.rank == 0:
        raise ValueError("while others compute")
    threading.Event().wait(60)


def pid_and_sum(comm, table):
    return os.getpid(), comm.allreduce(int(table.value.sum())), len(comm.cache)


def test_results_reach_the_caller_of_programs_that_caught_a_mismatch(world):
    assert world(3).run(meet_a_mismatch) == [(rank, "went on") for rank in range(3)]


def test_results_reach_the_caller_of_programs_that_caught_an_abort(world):
    def program(comm):
        if comm.rank == 1:
            comm.abort("on purpose")
        try:
            comm.barrier()
        except rp.RankFailed as error:
            return comm.rank, error.rank

    job = world(3)
    assert job.run(program) == [(rank, 1) for rank in range(3)]
    assert job.run(lambda comm: comm.allreduce(1)) == [3] * 3


def test_results_of_survivors_of_a_killed_rank_are_in_the_error():
    with rp.launch(workers=3) as job, pytest.raises(rp.RankFailed, match=r"rank 1 .*SIGKILL") as caught:
        job.run(lose_rank_1)
    assert caught.value.results == {0: (0, 1), 2: (2, 1)}


def test_results_of_other_ranks_are_in_the_cause_of_an_exception(world):
    def program(comm):
        if comm.rank == 1:
            raise KeyError("mine")
        try:
            comm.barrier()
        except rp.RankFailed:
            return comm.rank

    with pytest.raises(KeyError, match="mine") as caught:
        world(3).run(program)
    assert caught.value.__cause__.results == {0: 0, 2: 2}


def test_different_calls_are_reported_even_if_no_rank_waits_for_them(world):
    with pytest.raises(rp.CollectiveMismatch, match="returned from its program") as caught:
        world(2).run(lambda comm: comm.broadcast(1) if comm.rank == 0 else 7)
    assert caught.value.__cause__.results == {0: 1, 1: 7}


FAILURES = [meet_a_mismatch, lose_rank_1, raise_where_all_look, leave_one_computing]
FAILURES += [lambda comm: undefined]  # noqa: F821


# More cases are in test_nothing_is_left_of_jobs_that_have_outlived_failures.
@pytest.mark.parametrize(
    "program",
    [lose_rank_1, leave_one_computing, *exhaustively(meet_a_mismatch, raise_where_all_look, FAILURES[-1])],
    ids=lambda program: program.__name__,
)
def test_a_job_continues_after_a_failure_with_its_broadcast_values(program):
    with rp.launch(workers=2) as job, job.broadcast(np.arange(50_000)) as table:
        job.run(lambda comm: comm.cache.update(old=1))
        with suppress(rp.RipienoError, ValueError, NameError):
            job.run(program)

        rows = job.run(pid_and_sum, table)

        assert not job.over
        assert rows == [(pid, 2 * 1_249_975_000, 0) for pid in job.pids]


def test_a_single_worker_continues_after_a_failure():
    with rp.launch(workers=1) as job, job.broadcast(np.arange(50_000)) as table:
        job.run(lambda comm: comm.cache.update(old=1))
        with pytest.raises(ValueError, match="everywhere") as caught:
            job.run(raise_where_all_look)
        assert job.run(pid_and_sum, table) == [(os.getpid(), 1_249_975_000, 0)]
    assert caught.value.__cause__.rank == 0


def test_ranks_that_wait_keep_their_processes_after_a_failure():
    with rp.launch(workers=3) as job:
        pids = list(job.pids)
        for program in (meet_a_mismatch, raise_where_all_look):
            with suppress(ValueError):
                job.run(program)
        assert job.run(lambda comm: (os.getpid(), comm.allreduce(1))) == [(pid, 3) for pid in pids]


def test_a_rank_that_died_between_programs_fails_the_next_one_and_is_then_replaced():
    with rp.launch(workers=2) as job:
        os.kill(job.pids[1], signal.SIGKILL)
        assert gone_within(SLACK_S, job.pids[1:])
        with pytest.raises(rp.RankFailed, match=r"rank 1 .*SIGKILL"):
            job.run(lambda comm: comm.allreduce(1))
        assert job.run(lambda comm: comm.allreduce(1)) == [2, 2]


def test_a_rank_that_died_after_a_failure_is_replaced_before_the_next_program():
    with rp.launch(workers=2) as job:
        with pytest.raises(ValueError, match="everywhere"):
            job.run(raise_where_all_look)
        os.kill(job.pids[1], signal.SIGKILL)
        assert gone_within(SLACK_S, job.pids[1:])
        assert job.run(lambda comm: comm.allreduce(1)) == [2, 2]


def test_output_is_prefixed_after_a_new_start_too(capfd):
    with rp.launch(workers=2, prefix_output=True) as job:
        with pytest.raises(rp.RankFailed):
            job.run(lose_rank_1)
        job.run(lambda comm: print("hello", flush=True))

    assert sorted(capfd.readouterr().out.splitlines()) == ["[rank 0] hello", "[rank 1] hello"]


def test_nothing_is_left_of_jobs_that_have_outlived_failures():
    gc.collect()
    before, mappings = open_descriptors(), shared_mappings()
    with rp.launch(workers=2) as job:
        for program in FAILURES:
            with suppress(rp.RipienoError, ValueError, NameError):
                job.run(program)
        job.run(ranks)
        pids = job.pids
    assert gone_within(0, pids)
    gc.collect()
    assert open_descriptors() == before
    assert shared_mappings() == mappings


@pytest.mark.parametrize(
    "closing", [None, pytest.param(1, marks=pytest.mark.exhaustive)], ids=["on every rank", "on one rank"]
)
@pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
def test_a_program_may_close_its_communicator(workers, closing):
    def program(comm):
        if closing in (None, comm.rank):
            comm.close()
        return comm.rank

    with rp.launch(workers=workers) as job:
        for _ in range(2):
            assert job.run(program) == list(range(workers))
        assert job.run(lambda comm: comm.allreduce(1)) == [workers] * workers


def test_a_trace_contains_calls_before_and_after_a_failure(tmp_path):
    with rp.launch(workers=2, trace=tmp_path / "trace.json") as job:
        job.run(lambda comm: comm.barrier())
        with pytest.raises(ValueError, match="everywhere"):
            job.run(raise_where_all_look)
        job.run(lambda comm: comm.allreduce(np.ones(3)))

    names = {event["name"] for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]}
    assert {"barrier", "allreduce"} <= names


#: The communicator of a program


@pytest.mark.parametrize("workers", [1, 2])
def test_init_inside_a_program_is_its_communicator_in_threads_too(world, workers):
    def program(comm):
        with ThreadPoolExecutor(1) as pool:
            return rp.init() is comm, pool.submit(rp.init).result() is comm

    assert world(workers).run(program) == [(True, True)] * workers
    # A process without a launcher still has no communicator of a job.
    assert running.of_this_process() is None


def test_init_inside_a_program_of_a_program_matches_the_inner_one():
    def inner(comm):
        return rp.init() is comm

    def outer(comm):
        with rp.launch(workers=1) as job:
            return job.run(inner), rp.init() is comm

    with rp.launch(workers=1) as job:
        assert job.run(outer) == [([True], True)]


def test_init_in_a_thread_that_may_be_of_several_ranks_is_refused():
    def program(comm):
        both.wait(EVENT_TIMEOUT_S)
        with ThreadPoolExecutor(1) as pool, pytest.raises(rp.InputError, match="pass the program's comm"):
            pool.submit(rp.init).result()
        both.wait(EVENT_TIMEOUT_S)
        return rp.init() is comm

    def launched():
        with rp.launch(workers=1) as job:
            return job.run(program)

    both = threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        assert [each.result() for each in [pool.submit(launched) for _ in range(2)]] == [[True]] * 2


# Several threads


@pytest.mark.parametrize("workers", [1, 2])
def test_programs_of_several_threads_wait_for_their_turn(workers):
    begun, go_on = threading.Event(), threading.Event()

    def listen(event):
        begun.set()
        assert go_on.wait(EVENT_TIMEOUT_S)

    with rp.launch(workers=workers, on_event=listen) as job, ThreadPoolExecutor(3) as pool:
        first = pool.submit(job.run, lambda comm: comm.emit({}) if comm.rank == 0 else None)
        assert begun.wait(EVENT_TIMEOUT_S)
        others = [pool.submit(job.run, lambda comm, x: x + comm.allreduce(0), x) for x in range(2)]
        go_on.set()
        assert first.result() == [None] * workers
        assert [each.result() for each in others] == [[0] * workers, [1] * workers]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_program_run_by_an_event_callback_is_refused(workers):
    with rp.launch(workers=workers, on_event=lambda _: job.run(ranks)) as job:
        with pytest.raises(
            rp.InputError, match="already running a program; neither the program nor its event functions"
        ):
            job.run(lambda comm: comm.emit({}))
        assert len(job.run(ranks)) == workers


def test_a_program_of_a_single_worker_that_would_run_another_is_refused():
    with rp.launch(workers=1) as job, pytest.raises(rp.InputError, match="already running a program; neither"):
        job.run(lambda comm: job.run(ranks))


def test_waiting_threads_are_notified_when_the_job_is_closed():
    begun = threading.Event()
    job = rp.launch(workers=2, on_event=lambda _: begun.set())
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(job.run, lambda comm: (comm.emit({}), threading.Event().wait(60)))
        assert begun.wait(EVENT_TIMEOUT_S)
        second = pool.submit(job.run, ranks)
        job.close()
        for each in (first, second):
            with pytest.raises(rp.CommunicatorClosed):
                each.result()


def test_each_thread_receives_the_events_of_its_own_programs():
    received = {name: [] for name in range(3)}

    def fit(name):
        for _ in range(5):
            with job.report_to(received[name].append):
                job.run(lambda comm, name: comm.emit({"of": name}), name)

    with rp.launch(workers=2) as job, ThreadPoolExecutor(3) as pool:
        list(pool.map(fit, received))

    assert {name: {event["of"] for event in events} for name, events in received.items()} == {n: {n} for n in range(3)}
    assert all(len(events) == 10 for events in received.values())


def test_estimators_of_several_threads_share_a_job():
    from joblib import parallel_backend
    from sklearn.model_selection import GridSearchCV

    rows = np.random.default_rng(0).normal(size=(60, 2))
    with rp.launch(workers=2) as job, parallel_backend("threading", n_jobs=3):
        search = GridSearchCV(rp.KMeans(random_state=0, max_iter=2, engine=job), {"n_clusters": [1, 2, 3]}, cv=2)
        search.fit(rows)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


# Broadcast values


def kept_values(comm):
    return len(local())


@pytest.mark.parametrize("drop", ["released", "forgotten", "forgotten in another thread", "replaced"])
@pytest.mark.parametrize("workers", [2, *exhaustively(1)])
def test_ranks_release_unreferenced_broadcast_values(world, workers, drop):
    job = world(workers)
    gc.collect()
    handles = [job.broadcast(np.zeros(100_000)) for _ in range(3)]
    assert job.run(kept_values) == [3] * workers
    if drop == "released":
        for each in handles:
            each.release()
    elif drop == "replaced":
        handles[:] = [job.broadcast(0)]
    elif drop == "forgotten":
        handles.clear()
    else:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(handles.clear).result()
    gc.collect()

    assert job.run(kept_values) == [int(drop == "replaced")] * workers


def test_a_value_that_is_dropped_while_a_program_runs_exists_until_its_end():
    with rp.launch(workers=2, on_event=lambda _: handles.clear()) as job:
        handles = [job.broadcast(np.arange(10))]
        assert job.run(lambda comm, table: (comm.emit({}), int(table.value.sum()))[1], handles[0]) == [45, 45]
        assert job.run(kept_values) == [0, 0]


def test_releasing_a_value_restarts_no_ended_rank():
    with rp.launch(workers=2) as job:
        table = job.broadcast(1)
        with suppress(rp.RankFailed):
            job.run(lose_rank_1)
        pids = job.pids
        table.release()
        assert job.pids == pids and gone_within(0, pids)


#: Values that cannot be sent, and errors raised elsewhere


@pytest.mark.parametrize("workers", [1, 2])
def test_unpicklable_values_are_reported_and_the_job_continues(world, workers):
    job = world(workers)

    with pytest.raises(rp.SerializationError, match=r"ranks or its arguments cannot be sent.*lock"):
        job.run(ranks, threading.Lock())

    assert len(job.run(ranks)) == workers


def test_a_result_that_cannot_travel_names_its_rank():
    with rp.launch(workers=2) as job, pytest.raises(rp.SerializationError, match="result of rank 1, a lock"):
        job.run(lambda comm: threading.Lock() if comm.rank == 1 else None)


class Unreadable:
    """An object with a pickle that cannot be loaded."""

    def __reduce__(self):
        return int, ("x",)


def emit_unreadable(comm):
    comm.emit({"value": Unreadable()})
    comm.barrier()


@pytest.mark.parametrize(
    ("program", "expected", "message"),
    [
        (lambda comm: comm.broadcast(Unreadable() if comm.rank == 0 else None), ValueError, "invalid literal"),
        (
            lambda comm: Unreadable() if comm.rank == 1 else 1,
            rp.SerializationError,
            "result of rank 1 cannot be unpick",
        ),
        (emit_unreadable, rp.SerializationError, r"\(event\) of rank [01] cannot be unpickled.*ValueError: invalid"),
    ],
    ids=["object", "result", "event"],
)
def test_a_message_that_cannot_be_unpickled_fails_its_own_program_and_not_the_next(world, program, expected, message):
    job = world(2)
    with job.report_to(lambda event: None), pytest.raises(expected, match=message) as caught:
        job.run(program)
    assert isinstance(caught.value.__cause__, rp.RankFailed)
    assert job.run(lambda comm: comm.allreduce(1)) == [2, 2]


def test_a_program_that_workers_cannot_import_is_reported(tmp_path, monkeypatch):
    module = tmp_path / "only_here.py"
    module.write_text("def program(comm): return 1\n")
    with rp.launch(workers=2) as job:
        monkeypatch.syspath_prepend(tmp_path)
        import only_here

        module.unlink()
        with pytest.raises(ModuleNotFoundError, match="only_here"):
            job.run(only_here.program)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_exception_of_an_event_callback_reaches_the_caller_and_the_job_continues(workers):
    def listen(event):
        raise LookupError("listener")

    with rp.launch(workers=workers, on_event=listen) as job:
        with pytest.raises(LookupError, match="listener"):
            job.run(lambda comm: comm.emit({}))
        assert job.run(lambda comm: comm.allreduce(1)) == [workers] * workers


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"workers": 0}, "workers=0: expected a whole number >= 1"),
        ({"workers": 2, "threads": 0}, "threads=0"),
        ({"workers": 2, "engine": "carrier-pigeon"}, "engine='carrier-pigeon': expected one of local"),
        ({"workers": 2, "links": "string"}, "links"),
    ],
)
def test_wrong_options_are_named(options, sentence):
    with pytest.raises(rp.InputError, match=sentence):
        rp.launch(**options)


#: Remains


def shared_mappings() -> int:
    return Path("/proc/self/maps").read_text().count("memfd:")


def test_more_workers_than_the_memory_has_room_for_are_refused():
    room = r"workers=100000000(, spares=1)?: expected at most \d+ processes on this machine, which has \d+ usable cores"
    for options in ({}, {"spares": 1}):
        with pytest.raises(rp.InputError, match=room):
            rp.launch(workers=10**8, **options)
    with rp.launch(workers=2, threads=1) as job:
        with pytest.raises(rp.InputError, match=room):
            job.resize(10**8)
        assert job.run(lambda comm: comm.world_size) == [2, 2]


def test_jobs_leave_no_resources_behind():
    gc.collect()
    before, mappings = open_descriptors(), shared_mappings()
    for _ in range(2):
        with rp.launch(workers=3) as job:
            results = [job.run(lambda comm, x: x * 2, np.ones(100_000)) for _ in range(3)]
            pids = job.pids
        assert gone_within(0, pids)
        del results
    gc.collect()
    assert open_descriptors() == before
    assert shared_mappings() == mappings


def test_a_forgotten_job_ends_its_workers():
    job = rp.launch(workers=2)
    pids = job.pids
    del job
    gc.collect()
    assert gone_within(0, pids)


def test_a_job_outlives_the_thread_that_launched_it():
    launched = []
    thread = threading.Thread(target=lambda: launched.append(rp.launch(workers=2)))
    thread.start()
    thread.join()
    with launched[0] as job:
        assert len(job.run(ranks)) == 2


LAUNCHER = """
    import sys, time
    import ripieno as rp

    def program(comm):
        comm.emit({})
        {wait}

    def ready(event):
        print("ready", flush=True)

    if __name__ == "__main__":
        with rp.launch(workers=3, on_event=ready) as job:
            print(*job.pids, flush=True)
            job.run(program)
"""
WAITS = ["time.sleep(100)", "comm.recv((comm.rank + 1) % 3)"]


def start_launcher(folder: Path, wait: str) -> tuple[subprocess.Popen, list[int]]:
    """Return a launcher with busy workers, and their PIDs."""
    script = folder / "launcher.py"
    script.write_text(textwrap.dedent(LAUNCHER).replace("{wait}", wait))
    launcher = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    pids = [int(pid) for pid in launcher.stdout.readline().split()]
    assert [launcher.stdout.readline() for _ in pids] == ["ready\n"] * 3
    assert all(map(is_running, pids))
    return launcher, pids


@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c_ends_all_workers_without_noise(tmp_path, wait):
    launcher, pids = start_launcher(tmp_path, wait)

    # A terminal sends the signal to the whole process group.
    os.killpg(launcher.pid, signal.SIGINT)
    _, errors = launcher.communicate(timeout=20)

    assert launcher.returncode == -signal.SIGINT
    assert errors.count("Traceback") == 1 and "KeyboardInterrupt" in errors
    assert gone_within(0, pids)


IN_THREADS = """
    import os
    import threading
    import time

    import ripieno as rp

    def program(comm):
        comm.emit({})
        time.sleep(100)

    def tell(*words):
        # At once: a print of another thread may come between the words of one and the end of their line.
        os.write(1, " ".join(map(str, words)).encode() + b"\\n")

    def run():
        with rp.launch(workers=2, on_event=lambda event: tell("ready")) as job:
            tell(*job.pids)
            job.run(program)

    if __name__ == "__main__":
        threads = [threading.Thread(target=run, daemon=True) for _ in range(2)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
"""


def test_ctrl_c_ends_jobs_in_threads_with_an_error_that_they_were_closed(tmp_path):
    script = tmp_path / "launcher.py"
    script.write_text(textwrap.dedent(IN_THREADS))
    launcher = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    lines = [launcher.stdout.readline() for _ in range(6)]
    pids = [int(pid) for line in lines if line != "ready\n" for pid in line.split()]
    assert len(pids) == 4 and all(map(is_running, pids))

    os.killpg(launcher.pid, signal.SIGINT)
    _, errors = launcher.communicate(timeout=250)

    assert launcher.returncode == -signal.SIGINT
    raised = {
        line for line in errors.splitlines() if re.match(r"[\w.]+(Error|Exception|Closed|Failed|Interrupt)\b", line)
    }
    closed = "ripieno.errors.CommunicatorClosed: the job was closed: its process ends"
    assert "KeyboardInterrupt" in raised and raised <= {"KeyboardInterrupt", closed}
    assert gone_within(PROMPT_S, pids)


@pytest.mark.parametrize("wait", WAITS)
def test_workers_end_when_their_launcher_is_killed(tmp_path, wait):
    launcher, pids = start_launcher(tmp_path, wait)

    launcher.kill()
    launcher.communicate(timeout=20)

    assert gone_within(PROMPT_S, pids)


def test_functions_and_classes_of_the_main_script_reach_the_workers(tmp_path):
    script = tmp_path / "main.py"
    script.write_text(
        textwrap.dedent("""
        import ripieno as rp

        class Point:
            def __init__(self, x):
                self.x = x

        def program(comm, point):
            point = comm.broadcast(Point(point.x + 1))
            return comm.allgather(point)[1]

        if __name__ == "__main__":
            with rp.launch(workers=2) as job:
                results = job.run(program, Point(1))
            print([isinstance(each, Point) and each.x for each in results])
        """)
    )

    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=250, check=True)

    assert done.stdout == "[2, 2]\n"


PICKLING = """
import multiprocessing, pickle, sys
from concurrent.futures import ProcessPoolExecutor
import ripieno as rp

class Vector:
    def __init__(self, x):
        self.x = x

def double(point):
    return Vector(2 * point.x)

def program(comm, point, method):
    again = pickle.loads(pickle.dumps(point))
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as pool:
        doubled = pool.submit(double, again).result()
    return type(again) is type(doubled) is Vector, comm.allgather(doubled)[1]

def launched(method):
    with rp.launch(workers=2) as job:
        return [(same, isinstance(point, Vector), point.x) for same, point in job.run(program, Vector(1), method)]

if __name__ == "__main__":
"""


def output_of(folder, text, *arguments):
    (folder / "main.py").write_text(text)
    command = [sys.executable, folder / "main.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


@pytest.mark.parametrize("method", ["spawn", *exhaustively("fork")])
def test_objects_of_the_main_script_can_be_pickled_inside_a_rank(tmp_path, method):
    assert output_of(tmp_path, PICKLING + "    print(launched(sys.argv[1]))", method) == (
        "[(True, True, 2), (True, True, 2)]\n"
    )


@pytest.mark.parametrize("method", ["forkserver", *exhaustively("spawn")])
def test_a_child_of_multiprocessing_may_launch(tmp_path, method):
    end = """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(sys.argv[1])) as pool:
        print(pool.submit(launched, "fork").result())
"""
    assert output_of(tmp_path, PICKLING + end, method) == "[(True, True, 2), (True, True, 2)]\n"


def test_a_script_that_launches_without_a_guard_is_run_once(tmp_path):
    text = """
    import ripieno as rp

    def program(comm):
        return comm.allreduce(1)

    print("begun")
    with rp.launch(workers=2) as job:
        print(job.run(program))
    """
    assert output_of(tmp_path, textwrap.dedent(text)) == "begun\n[2, 2]\n"


def test_a_redefined_name_of_main_refers_to_the_new_definition(tmp_path):
    text = """
    import pickle
    import ripieno as rp

    with rp.launch(workers=2) as job:
        for number in range(2):
            class Numbered:
                x = number
            print(job.run(lambda comm: pickle.loads(pickle.dumps(Numbered)).x))
    """
    assert output_of(tmp_path, textwrap.dedent(text)) == "[0, 0]\n[1, 1]\n"


def waits_until_a_signal(comm):
    if comm.rank == 0:

        def handler(signum, frame):
            raise ValueError("raised by the handler of a signal")

        signal.signal(signal.SIGUSR1, handler)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        comm.recv(1)
    else:
        # Never set: rank 0 waits until the signal arrives, this rank until the job ends.
        threading.Event().wait(20)


def test_an_exception_of_a_signal_handler_in_a_collective_reaches_the_caller(world):
    with pytest.raises(ValueError, match="raised by the handler of a signal"):
        world(2).run(waits_until_a_signal)


class Signalled(Exception):
    """Raised by the handler of a signal."""


@pytest.fixture
def raising_signal() -> Iterator[int]:
    """Provide a signal with a handler that raises, and threads that run until they wait."""

    def raise_signalled(number: int, frame: FrameType | None) -> None:
        raise Signalled

    before, interval_s = signal.signal(signal.SIGUSR1, raise_signalled), sys.getswitchinterval()
    sys.setswitchinterval(60.0)
    yield signal.SIGUSR1
    sys.setswitchinterval(interval_s)
    signal.signal(signal.SIGUSR1, before)


def test_a_signal_that_another_thread_gets_just_before_a_wait_ends_it(raising_signal):
    waits = threading.Event()

    def get_signal() -> None:
        # This thread continues once the main thread has nothing to do but the wait.
        waits.wait()
        signal.pthread_kill(threading.get_ident(), raising_signal)

    thread = threading.Thread(target=get_signal)
    with selectors.DefaultSelector() as selector, interruptible(selector) as ready:
        thread.start()
        begin = time.monotonic()
        waits.set()
        with pytest.raises(Signalled):
            ready(30.0)
        assert time.monotonic() - begin < under_load(10.0)
    thread.join()


def test_signals_that_raise_nothing_are_passed_on_and_leave_the_wait_to_its_caller():
    wakeups, written = os.pipe2(os.O_NONBLOCK)
    handler, outer = signal.signal(signal.SIGUSR1, lambda *_: None), signal.set_wakeup_fd(written)
    try:
        with selectors.DefaultSelector() as selector, interruptible(selector) as ready:
            os.kill(os.getpid(), signal.SIGUSR1)
            assert ready(30.0) == []
            assert os.read(wakeups, 10) == bytes([signal.SIGUSR1])
            assert ready(0.0) == []
        assert signal.set_wakeup_fd(outer) == written
    finally:
        signal.set_wakeup_fd(outer)
        signal.signal(signal.SIGUSR1, handler)
        os.close(wakeups)
        os.close(written)


def returning_early(comm, others):
    if comm.rank != 1:
        others(comm)


@pytest.mark.parametrize(
    "others",
    [
        pytest.param(lambda comm: comm.barrier(), id="one barrier"),
        pytest.param(lambda comm: comm.allreduce(np.ones(3)), id="allreduce"),
        pytest.param(lambda comm: comm.recv(1), id="recv"),
    ],
)
def test_a_rank_that_returns_while_others_wait_for_it_is_reported(world, others):
    with pytest.raises(rp.CollectiveMismatch, match="rank 1 has returned from its program"):
        world(2).run(returning_early, others)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"addres": "x"}, "addres='x': engine local has no such option; it has bind_host, call_timeout_s"),
        ({"rendezvous_timeout_s": "1"}, "rendezvous_timeout_s='1': expected a positive number of seconds"),
        ({"heartbeat_timeout_s": 0}, "heartbeat_timeout_s=0: expected a positive number of seconds"),
        ({"heartbeat_timeout_s": True}, "heartbeat_timeout_s=True: expected a positive number of seconds"),
        ({"rendezvous_timeout_s": float("inf")}, "rendezvous_timeout_s=inf: expected a positive number of seconds"),
        ({"ports": (5000,)}, r"ports=\(5000,\): expected the first and the last port"),
        ({"ports": (5010, 5000)}, r"ports=\(5010, 5000\): expected the first and the last port"),
        ({"racks": 7}, "racks=7: expected a file or a dict of racks"),
        ({"links": 7}, "links=7: expected"),
        ({"bind_host": 7}, "bind_host=7: expected a name or an address"),
        ({"on_event": 7}, "on_event: a int: expected a function"),
        ({"trace": 7}, "trace=7: expected the path of a file"),
        ({"replicas": "x"}, "replicas='x': expected a divisor of the number of workers, [12]"),
    ],
)
def test_unknown_options_start_nothing(workers, options, message):
    with pytest.raises(rp.InputError, match=message):
        rp.launch(workers=workers, **options)


@pytest.mark.parametrize("workers", [1, 2])
def test_invalid_programs_events_and_values_are_reported(world, workers):
    with pytest.raises(rp.InputError, match="program: a int: expected a function of a communicator"):
        world(workers).run(7)
    with pytest.raises(rp.InputError, match="emit: a int: expected a dict"):
        world(workers).run(lambda comm: comm.emit(7))
    with pytest.raises(rp.SerializationError, match=r"broadcast: a lock cannot be sent: .*cannot pickle"):
        world(workers).broadcast(threading.Lock())
    assert world(workers).run(lambda comm: comm.allreduce(1)) == [workers] * workers


def test_the_traceback_of_a_rank_begins_in_the_program(world):
    with pytest.raises(ValueError, match="everywhere") as caught:
        world(2).run(raise_where_all_look)
    frames = [line for line in caught.value.__cause__.traceback.splitlines() if line.startswith("  File ")]
    assert len(frames) == 1 and "raise_where_all_look" in frames[0]


def test_a_job_that_another_thread_closes_is_over_at_once():
    job = rp.launch(workers=2, on_event=lambda _: threading.Thread(target=job.close).start())
    with pytest.raises(rp.CommunicatorClosed, match="closed while it ran a program"):
        job.run(lambda comm: (comm.emit({}), threading.Event().wait(1000)) if comm.rank == 0 else comm.recv(0))

    assert gone_within(PROMPT_S + SLACK_S, job.pids) and job.over


def test_a_job_may_be_closed_by_an_event_callback():
    job = rp.launch(workers=2, on_event=lambda _: job.close())
    with pytest.raises(rp.CommunicatorClosed, match="closed while it ran a program"):
        job.run(lambda comm: comm.emit({}))
