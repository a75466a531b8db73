"""Binding of ranks and pinning of threads: the six patterns, on simulated machines and on this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import ripieno as rp
from ripieno import host
from ripieno.host import Core
from ripieno.launch import binding
from ripieno.launch.binding import Binding, RankCpus, cpus_of_ranks
from ripieno.launch.script import environment
from stand_in_engine import StandIn

#: Two sockets of two cores with two hardware threads each.
SMT = [Core(0, 0, (0, 4)), Core(0, 1, (1, 5)), Core(1, 0, (2, 6)), Core(1, 1, (3, 7))]
HERE = sorted(os.sched_getaffinity(0))
needs_two_cores = pytest.mark.skipif(len(HERE) < 2, reason="there is one core")


def placed(bind: str, threads: str, ranks: int, count: int) -> list[tuple[list[int], tuple[int, ...]]]:
    found = cpus_of_ranks(Binding(bind, threads), [count] * ranks, SMT)
    return [(sorted(place.cpus), place.pins) for place in found]


def test_the_six_patterns_have_the_letters_of_the_paper():
    letters = {(bind, threads): Binding(bind, threads).letter for bind, threads in binding.PATTERNS}
    assert "".join(letters["core", each] for each in ("inherit", "pin")) == "QT"
    assert "".join(letters["socket", each] for each in ("inherit", "pin")) == "RV"
    assert "".join(letters["none", each] for each in ("inherit", "pin")) == "US"


def test_a_rank_bound_to_cores_has_one_core_per_thread():
    assert placed("core", "inherit", 2, 2) == [([0, 1, 4, 5], ()), ([2, 3, 6, 7], ())]
    assert placed("core", "pin", 4, 1) == [([0, 4], (0,)), ([1, 5], (1,)), ([2, 6], (2,)), ([3, 7], (3,))]


def test_with_more_threads_than_cores_hardware_threads_count():
    assert placed("core", "pin", 2, 3) == [([0, 1, 4], (0, 4, 1)), ([2, 5, 6], (5, 2, 6))]


def test_ranks_bound_to_sockets_share_a_socket_and_pin_threads_to_separate_cores():
    assert placed("socket", "inherit", 3, 2) == [([0, 1, 4, 5], ()), ([0, 1, 4, 5], ()), ([2, 3, 6, 7], ())]
    assert placed("socket", "pin", 4, 1) == [
        ([0, 1, 4, 5], (0,)),
        ([0, 1, 4, 5], (1,)),
        ([2, 3, 6, 7], (2,)),
        ([2, 3, 6, 7], (3,)),
    ]


def test_unbound_threads_use_any_core_or_are_pinned_to_separate_cores():
    assert placed("none", "inherit", 9, 9) == [(list(range(8)), ())] * 9
    assert placed("none", "pin", 2, 2) == [(list(range(8)), (0, 1)), (list(range(8)), (2, 3))]


@pytest.mark.parametrize(
    ("bind", "threads", "where"),
    [("core", "inherit", "this host"), ("none", "pin", "this host"), ("socket", "pin", "socket 0 of this host")],
)
def test_too_few_cores_are_an_error_with_the_numbers(bind, threads, where):
    cores = 8 if where == "this host" else 4
    share = "3 + 3 + 3" if cores == 8 else "3 + 3"
    ranks = share.count("3")
    expected = f"{ranks} ranks of {where} with {share} threads need {3 * ranks} cores, and may use {cores}: "
    with pytest.raises(rp.InputError) as caught:
        placed(bind, threads, 3, 3)
    assert expected in str(caught.value)


def test_cores_are_read_from_the_system_or_assigned_to_one_socket(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "_CPUS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 3})
    for cpu, socket, core in ((0, 1, 7), (1, 0, 7), (3, 1, 7)):
        folder = tmp_path / f"cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{socket}\n")
        (folder / "core_id").write_text(f"{core}\n")
    assert host.cores() == [Core(0, 7, (1,)), Core(1, 7, (0, 3))]

    monkeypatch.setattr(host, "_CPUS", tmp_path / "missing")
    assert host.cores() == [Core(0, 0, (0,)), Core(0, 1, (1,)), Core(0, 3, (3,))]


@pytest.mark.parametrize("version", [1, 2])
def test_usable_cores_are_limited_by_the_smallest_quota(tmp_path, monkeypatch, version):
    own = "/outer/inner"
    root = tmp_path if version == 2 else tmp_path / "cpu,cpuacct"
    (root / own[1:]).mkdir(parents=True)
    for folder, cores in ((root / "outer", 3.0), (root / own[1:], 6.5)):
        if version == 2:
            (folder / "cpu.max").write_text(f"{int(cores * 100_000)} 100000\n")
        else:
            (folder / "cpu.cfs_quota_us").write_text(f"{int(cores * 100_000)}\n")
            (folder / "cpu.cfs_period_us").write_text("100000\n")
    lines = tmp_path / "cgroup"
    lines.write_text(f"0::{own}\n" if version == 2 else f"4:cpu,cpuacct:{own}\n1:name=systemd:/\n")
    monkeypatch.setattr(host, "_CGROUP", tmp_path)
    monkeypatch.setattr(host, "_OWN_CGROUPS", lines)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    assert (host.cpu_quota(), host.usable_cores()) == (3.0, 3)

    (root / "outer" / ("cpu.max" if version == 2 else "cpu.cfs_quota_us")).write_text(
        "50000 100000\n" if version == 2 else "50000\n"
    )
    assert host.usable_cores() == 1, "half a core is one thread"
    monkeypatch.setattr(host, "_CGROUP", tmp_path / "none")
    assert (host.cpu_quota(), host.usable_cores()) == (None, 16)


def where_it_computes(comm):
    """Return the cores of this rank, and the cores to which its kernels and teams pin their threads."""
    import ripieno._native as native

    with comm.team() as team:
        # A barrier makes each thread run exactly one of the calls.
        members = team.run(lambda _: team.wait() or sorted(os.sched_getaffinity(0)))
    return sorted(os.sched_getaffinity(0)), native.pinned_cores(), sorted(map(tuple, members))


@needs_two_cores
@pytest.mark.parametrize(("bind", "affinity"), binding.PATTERNS, ids=binding.PATTERNS.values())
def test_workers_run_on_the_cores_of_the_pattern(bind, affinity):
    expected = cpus_of_ranks(Binding(bind, affinity), [1, 1], host.cores())
    with rp.launch(workers=2, threads=1, bind=bind, thread_affinity=affinity) as job:
        found = job.run(where_it_computes)
    for (cpus, pins, members), place in zip(found, expected, strict=True):
        assert RankCpus(frozenset(cpus), tuple(pins)) == place
        assert members == ([(pins[0],)] if pins else [tuple(cpus)])


@needs_two_cores
def test_a_single_bound_worker_is_a_separate_process():
    with rp.launch(workers=1, threads=2, bind="core", thread_affinity="pin") as job:
        ((cpus, pins, members),) = job.run(where_it_computes)
        assert job.run(lambda comm: os.getpid()) != [os.getpid()]
    assert len(pins) == 2 and set(pins) <= set(cpus)
    assert members == sorted((pin,) for pin in pins)
    assert sorted(os.sched_getaffinity(0)) == HERE


@needs_two_cores
def test_cores_are_divided_by_the_current_number_of_workers():
    with rp.launch(workers=2, threads=1, bind="core") as job:
        with pytest.raises(rp.InputError, match=f"need {len(HERE) + 1} cores, and may use {len(HERE)}"):
            job.resize(len(HERE) + 1)
        job.resize(1)
        assert job.run(where_it_computes)[0][0] == sorted(cpus_of_ranks(Binding("core"), [1], host.cores())[0].cpus)
        job.resize(2)
        expected = cpus_of_ranks(Binding("core"), [1, 1], host.cores())
        assert [found[0] for found in job.run(where_it_computes)] == [sorted(place.cpus) for place in expected]


def test_impossible_bindings_are_reported_before_anything_starts():
    count = len(HERE) + 1
    with pytest.raises(
        rp.InputError, match=f"need {count} cores, and may use {len(HERE)}: take fewer ranks or threads"
    ):
        rp.launch(workers=count, threads=1, bind="core")
    with pytest.raises(rp.InputError, match="bind='die': expected one of core, socket, none"):
        rp.launch(workers=1, bind="die")
    with pytest.raises(rp.InputError, match="thread_affinity='float': expected one of inherit, pin"):
        rp.launch(workers=1, thread_affinity="float")
    with pytest.raises(rp.InputError, match="set RIPIENO_BIND=core, RIPIENO_THREAD_AFFINITY=inherit"):
        rp.launch(workers=1, engine=StandIn(), bind="core")


SCRIPT = """
    import json, os, sys
    comm = None
    if "init" in sys.argv:
        import ripieno as rp
        comm = rp.init()
    import ripieno._native as native
    found = sorted(os.sched_getaffinity(0)), native.pinned_cores(), "RIPIENO_BIND" in os.environ
    with open(sys.argv[1] + os.environ["RANK"], "w") as file:
        json.dump(found, file)
    if comm is not None:
        comm.barrier()
"""


def lines_of(tmp_path: Path, rank: int) -> list:
    return json.loads((tmp_path / f"found{rank}").read_text())


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "ripieno", *map(str, words)]


@needs_two_cores
def test_ranks_of_a_script_are_bound_before_its_first_line(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    options = ("--bind", "core", "--thread-affinity", "pin", "--threads", 1)
    done = subprocess.run(
        command("run", "-n", 2, *options, script, tmp_path / "found"), capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stderr
    expected = cpus_of_ranks(Binding("core", "pin"), [1, 1], host.cores())
    assert [lines_of(tmp_path, rank) for rank in (0, 1)] == [
        [sorted(each.cpus), [*each.pins], False] for each in expected
    ]


def test_a_script_with_too_many_ranks_is_not_started(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("raise SystemExit(3)")
    words = command("run", "-n", len(HERE) + 1, "--threads", 1, "--bind", "core", script)
    done = subprocess.run(words, capture_output=True, text=True, timeout=250)
    assert done.returncode != 3 and f"may use {len(HERE)}: take fewer ranks" in done.stderr
    assert "Traceback" not in done.stderr


@needs_two_cores
def test_ranks_of_other_launchers_divide_the_cores_that_they_share(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    here = {name: value for name, value in os.environ.items() if name not in environment.VARIABLES}
    more = {"WORLD_SIZE": "2", "RIPIENO_DIRECTORY": str(tmp_path), "RIPIENO_THREADS": "1", "RIPIENO_BIND": "core"}
    words = [sys.executable, str(script), str(tmp_path / "found"), "init"]
    ranks = [subprocess.Popen(words, env={**here, **more, "RANK": str(rank)}) for rank in (0, 1)]
    assert [rank.wait(60) for rank in ranks] == [0, 0]
    expected = cpus_of_ranks(Binding("core"), [1, 1], host.cores())
    assert [lines_of(tmp_path, rank) for rank in (0, 1)] == [[sorted(each.cpus), [], False] for each in expected]


@needs_two_cores
def test_a_borrowed_thread_gets_its_cores_back():
    import ripieno._native as native

    with binding.restored_affinity():
        os.sched_setaffinity(0, {HERE[0]})
        native.pin_threads(HERE[:1])
    assert (sorted(os.sched_getaffinity(0)), native.pinned_cores()) == (HERE, [])


@needs_two_cores
def test_ranks_of_an_engine_bind_their_threads(monkeypatch):
    monkeypatch.setenv("RIPIENO_BIND", "core")
    with rp.launch(workers=2, threads=1, engine=StandIn()) as job:
        found = job.run(lambda comm: sorted(os.sched_getaffinity(0)))
    assert found == [sorted(each.cpus) for each in cpus_of_ranks(Binding("core"), [1, 1], host.cores())]


@needs_two_cores
def test_ranks_of_an_engine_that_cannot_be_bound_raise(monkeypatch):
    monkeypatch.setenv("RIPIENO_BIND", "core")
    with pytest.raises(rp.InputError, match=f"need {2 * len(HERE)} cores, and may use {len(HERE)}"):
        rp.launch(workers=2, threads=len(HERE), engine=StandIn())


def test_kernel_counters_of_threads_are_reported(tmp_path, monkeypatch):
    (tmp_path / "7").mkdir()
    (tmp_path / "7/schedstat").write_text("2500000000 500000000 9\n")
    (tmp_path / "7/status").write_text("Name:\tx: y\nvoluntary_ctxt_switches:\t3\nnonvoluntary_ctxt_switches:\t4\n")
    (tmp_path / "7/sched").write_text("x (7, #threads: 1)\n---\nse.nr_migrations    :      5\nse.slice : 1.5\n")
    (tmp_path / "7/stat").write_text("7 (a) b) S 1 1 1 0 -1 4194304 60 0 70 0 0 0\n")
    monkeypatch.setattr(host, "_THREADS", tmp_path)
    assert host.thread_usage(7) == host.ThreadUsage(2.5, 0.5, 3, 4, 5, 60, 70)
    assert host.thread_usage(8) == host.ThreadUsage(*[None] * 7)


def test_statistics_cover_every_thread_of_the_kernels():
    points = np.random.default_rng(0).random((200_000, 4), np.float32)
    with rp.launch(workers=1, threads=len(HERE)) as job:

        def program(comm):
            rp.KMeans(100, init=points[:100], max_iter=3, tol=0).fit(points, comm=comm)
            return comm.stats()["threads"]

        (threads,) = job.run(program)
    assert {each["index"] for each in threads} >= set(range(len(HERE)))
    busy = [each for each in threads if each["index"] < len(HERE)]
    assert all(each["kernels"] > 0 and each["computing_s"] > 0 and each["waiting_s"] >= 0 for each in busy)
    # Ended threads have no data, and one may have computed only briefly.
    living = [each for each in busy if each["voluntary_switches"] is not None]
    assert {each["index"] for each in living} == set(range(len(HERE)))
    assert all(each["voluntary_switches"] >= 0 and each["minor_faults"] >= 0 for each in living)
