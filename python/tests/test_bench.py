"""`ripieno bench`: correct results, checked requests, and reported failures of peers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ripieno import _native
from ripieno.bench import cases, comparison, limits, processes, results, session, toolchain
from ripieno.bench.baselines import Baseline, Deployment
from ripieno.bench.cases import BenchCase
from ripieno.bench.choice import Cell
from ripieno.bench.figures import Measurements, Samples
from ripieno.bench.programs import timing
from ripieno.cli import main
from ripieno.errors import InputError
from ripieno.units import size_text
from varied import exhaustively

COMMAND = [sys.executable, "-m", "ripieno.cli"]


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, "bench", *words], capture_output=True, text=True, timeout=250, check=False)


def request_of(**words: object) -> session.BenchRequest:
    default = {"collectives": "barrier", "ranks": None, "sizes": "8B", "algorithm": None, "links": "auto"}
    default |= {"against": None, "repetitions": 1, "from_python": False, "gloo_python": None, "rate": None}
    return session.BenchRequest.parse(**{**default, "budget_s": 0.001, "timeout_s": 60.0, **words})


#: Requests


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("8B:64MiB", [8 * 8**i for i in range(8)] + [64 << 20]),
        ("1KiB", [1024]),
        ("1MB,8", [8, 1_000_000]),
        ("8B:8B", [8]),
    ],
)
def test_sizes_are_ranges_or_lists(text, sizes):
    assert cases.sizes_of(text) == sizes


@pytest.mark.parametrize("text", ["", "8X", "10B", "0", "64KiB:8B", "8:16:32", "big"])
def test_an_impossible_size_is_reported(text):
    with pytest.raises(InputError, match="expected"):
        cases.sizes_of(text)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["allreduc"], "'allreduc': expected all, or some of broadcast"),
        (["allreduce", "--ranks", "1"], "ranks '1': expected numbers of at least 2"),
        (["allreduce", "--algorithm", "shrub"], "'shrub': expected all, or for allreduce one of"),
        (["allreduce", "--against", "nccl"], "'nccl': expected some of openmpi, mpich, intelmpi, gloo"),
        (["allreduce", "--rate", "fast"], "--rate fast: expected a number"),
        (["allreduce", "--rate", "100mbit"], "--rate: ranks of one host have no network link"),
        *exhaustively(
            (["allgather", "--ranks", "3", "--algorithm", "neighbour-exchange", "--sizes", "8B"], "an even number")
        ),
    ],
)
def test_an_unknown_request_is_reported_with_the_accepted_ones(words, message, capsys):
    assert main(["bench", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_number_of_ranks_is_refused_under_a_launcher():
    with pytest.raises(InputError, match="--ranks: the launcher has started them"):
        session.joined(request_of(ranks="2"), only_choice=False)


#: Results


def test_every_collective_is_timed_against_the_limit_and_the_peers(tmp_path):
    target = tmp_path / "figures.json"

    done = bench("all", "--sizes", "8B", "--repetitions", "1", "--against", "openmpi,mpich", "--json", str(target))

    assert done.returncode == 0, done.stdout + done.stderr
    written = json.loads(target.read_text())
    assert [figure["case"].split(",")[0] for figure in written["figures"]] == list(timing.COLLECTIVES)
    assert all(figure["ours"]["seconds"][0] > 0 and figure["limit_s"] >= 0 for figure in written["figures"])
    missing = sum("is not installed: apt-get install" in remark for remark in written["remarks"])
    peers = {peer for figure in written["figures"] for peer in figure["peers"]}
    assert missing == ("MPICH" not in peers) + ("Open MPI (CMA)" not in peers)


def test_a_page_shows_time_and_bandwidth_with_the_limit_as_a_line(tmp_path):
    page, limit, report = tmp_path / "speed.html", limits.WireLimit(2, 1e9), Measurements("bench")
    for case in (BenchCase("allreduce", 8), BenchCase("allreduce", 1 << 20), BenchCase("barrier", 4)):
        times = [0.1, 0.2, 0.3]
        report.figures.append(comparison.figure_of(case, times, {"Peer & sons": times}, limit, case.collective))

    results.CollectiveFigures(report).write_plot(page)

    html = page.read_text()
    assert html.count("<svg") == 1, "a barrier has no size to draw against"
    assert ">limit<" in html and "Peer &amp; sons" in html and not re.search(r'(src|href)="http', html)


def test_ranks_of_a_launcher_are_measured_and_rank_0_prints():
    words = ["run", "-n", "3", "-m", "ripieno.cli", "bench", "allreduce,barrier", "--sizes", "8B", "--repetitions", "1"]

    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=250, check=False)

    assert done.returncode == 0, done.stderr
    assert "allreduce, 3 ranks, native" in done.stdout and "barrier, 3 ranks" in done.stdout
    assert not re.search(r"^\[rank [12]\]", done.stdout, re.MULTILINE)


def test_the_default_choice_is_compared_with_every_algorithm(tmp_path):
    target = tmp_path / "choice.json"

    done = bench("allreduce,barrier", "--choice", "--ranks", "2", "--sizes", "8B,4KiB", "--json", str(target))

    assert done.returncode == 0, done.stderr
    small, large, barrier = json.loads(target.read_text())["cells"]
    for cell in (small, large):
        # With two ranks some plans are equal, and one of them is timed.
        assert set(cell["stands_for"]) == set(_native.algorithms("allreduce"))
        assert set(cell["seconds"]) == set(cell["stands_for"].values())
    assert small["stands_for"][small["chosen"]] in small["seconds"] and barrier["collective"] == "barrier"
    assert "of 3 choices are more than 10% off the best" in done.stdout
    assert "always ring" in done.stdout and "Open MPI's table" in done.stdout


@pytest.mark.parametrize("how", [["--algorithm", "all"], *exhaustively(["--choice"])])
def test_an_algorithm_that_does_not_support_the_number_of_ranks_is_left_out(how, tmp_path):
    target = tmp_path / "found.json"

    done = bench("allgather", *how, "--ranks", "3", "--sizes", "8B", "--repetitions", "1", "--json", str(target))

    assert done.returncode == 0, done.stderr
    assert re.search(r"note: allgather=neighbour-exchange.* is left out", done.stdout)
    written = json.loads(target.read_text())
    names = set(_native.algorithms("allgather")) - {"neighbour-exchange"}
    if "cells" in written:
        assert set(written["cells"][0]["stands_for"]) == names
    else:
        timed = {figure["case"].split(",")[0] for figure in written["figures"]}
        assert timed == {"allgather", *(f"allgather={name}" for name in names)}, "the default, too"


def test_a_default_that_is_over_ten_percent_slower_than_the_best_is_a_bad_choice():
    cell = Cell("allreduce", 2, 8, "ring", "ring", {"flat": 2.0, "tree": 1.0}, {})

    assert cell.is_off and cell.best == "tree"
    assert not Cell("allreduce", 2, 8, "ring", "flat", {"flat": 1.05, "tree": 1.0}, {}).is_off


#: Correctness


@pytest.mark.parametrize("collective", [each for each in timing.COLLECTIVES if each != "barrier"])
def test_a_wrong_result_is_found(collective):
    vectors = timing.vectors_of(collective, 8, 2)
    timing.fill(collective, vectors, 1 if collective in ("broadcast", "scatter") else 0)

    rank = 1 if collective in ("broadcast", "scatter") else 0
    assert not timing.is_right(collective, vectors, rank, 2), "no call has been made yet"


def test_the_loop_makes_as_many_calls_as_fit_and_one_at_least():
    class SingleRank:
        rank, world_size = 0, 1
        barrier = staticmethod(lambda: None)
        slowest = staticmethod(lambda seconds: 0.01)

    calls = []
    assert len(list(timing.measure(SingleRank(), lambda: calls.append(1), 0.1, separate=True))) == 10
    assert list(timing.measure(SingleRank(), lambda: calls.append(1), 0.001, separate=True)) == [0.01]


def test_limits_follow_from_bytes():
    wire = limits.WireLimit(8, 1e8)

    assert wire.seconds(BenchCase("allreduce", 1 << 20)) == pytest.approx(0.1468, rel=1e-3)
    assert wire.seconds(BenchCase("allgather", 512 << 10)) == pytest.approx(0.2936, rel=1e-3)
    assert wire.seconds(BenchCase("barrier", 4)) is None
    memory = limits.MachineLimit(2)
    memory.measure([BenchCase("allreduce", 1 << 20)], 0.001)
    assert 0 < memory.seconds(BenchCase("broadcast", 1 << 20)) < memory.seconds(BenchCase("allreduce", 1 << 20))


def test_sizes_are_printed_in_round_units():
    assert [size_text(size) for size in (8, 1 << 10, 10**6, 64 << 20)] == ["8 B", "1 KiB", "1 MB", "64 MiB"]


def test_warm_up_calls_do_not_count():
    text = lambda words, timeout_s: "".join(f"{word} {number}\n" for number, word in enumerate(words[1:]))  # noqa: E731
    report = Measurements("test")

    comparison.compare(
        [Baseline("Ripieno", text, ours=True)], cases.cases_of(["barrier"], []), limits.UnknownLimit(), report,
        title=lambda case: case.name, repetitions=2, budget_s=0.01,
    )  # fmt: skip

    assert [figure.ours for figure in report.figures] == [Samples((1.0, 1.0))]


#: Peers


def test_a_peer_that_fails_late_is_left_out_of_the_figures():
    def fails_later(words, timeout_s):
        if runs:
            raise processes.ProgramFailed("no more")
        runs.append(words)
        return "".join(f"{word} 0.1\n" for word in words[1:])

    runs, report = [], Measurements("test")
    ours = Baseline("Ripieno", lambda words, timeout_s: "".join(f"{word} 0.5\n" for word in words[1:]), ours=True)

    failed = comparison.compare(
        [ours, Baseline("Peer", fails_later)], [BenchCase("allreduce", 8)], limits.UnknownLimit(), report,
        title=lambda case: case.name, repetitions=2, budget_s=0.01,
    )  # fmt: skip

    assert failed == ["Peer"] and report.figures[0].peers == {} and report.figures[0].best_peer is None


def test_a_peer_that_hangs_is_left_out_with_its_output():
    hangs = "import time; print('waiting', flush=True); time.sleep(60)"
    ours = Baseline("Ripieno", lambda words, timeout_s: "".join(f"{word} 0.5\n" for word in words[1:]), ours=True)
    peer = Baseline("Peer", lambda words, timeout_s: processes.run([sys.executable, "-c", hangs], timeout_s=timeout_s))
    report = Measurements("test")

    failed = comparison.compare(
        [ours, peer], [BenchCase("allreduce", 8)], limits.WireLimit(2, 1e6), report, title=lambda case: case.name,
        repetitions=2, budget_s=0.01, timeout_s=1.0,
    )  # fmt: skip

    assert failed == ["Peer"]
    assert report.figures[0].ours == Samples((0.5, 0.5)) and report.figures[0].peers == {}
    assert "did not end within 1 s; its output: waiting" in report.remarks[0]


def test_a_launcher_that_fails_is_reported_and_the_rest_is_measured(tmp_path, monkeypatch):
    for name, text in {
        "mpirun.openmpi": 'test "$1" = --version && echo "mpirun (Open MPI) 99" && exit; echo "no slots" >&2; exit 3',
        "mpicc.openmpi": 'while [ "$1" ]; do test "$1" != -o || : > "$2"; shift; done',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    done = bench("barrier", "--repetitions", "1", "--against", "openmpi")

    assert done.returncode == 1
    assert "barrier, 2 ranks" in done.stdout
    assert re.search(r"(?s)Open MPI \(CMA\) is left out: .*ended with 3; its output:\s+no slots", done.stdout)


def test_a_compiler_without_headers_is_reported_with_a_command_that_installs_them(tmp_path, monkeypatch):
    for name, text in {"mpirun.openmpi": 'echo "mpirun (Open MPI) 99"', "mpicc.openmpi": "exit 1"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    done = bench("barrier", "--repetitions", "1", "--against", "openmpi")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "barrier, 2 ranks" in done.stdout and "apt-get install libopenmpi-dev" in done.stdout


def test_a_rank_that_fails_ends_the_others_and_is_reported():
    program = "import os, sys, time; os.environ['RANK'] == '1' and sys.exit('injected'); time.sleep(60)"

    with pytest.raises(processes.ProgramFailed, match=r"(?s)rank 1 of .*ended with 1; its output: injected"):
        processes.run_ranks([[sys.executable, "-c", program]] * 2)


def test_a_program_that_does_not_exist_is_reported():
    with pytest.raises(processes.ProgramFailed, match="no-such-mpirun cannot start: No such file"):
        processes.run(["no-such-mpirun"])


def test_compiler_errors_are_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = tmp_path / "wrong.c"
    source.write_text("int main(void) { return nothing; }\n")

    with pytest.raises(processes.ProgramFailed, match="nothing"):
        toolchain.shared_object(source)


def test_a_peer_that_is_not_installed_is_reported_with_a_command_that_installs_it():
    result = session.started(request_of(against="gloo", gloo_python=str(Path("no", "python"))), only_choice=False)

    assert "apt-get install python3-torch" in result.report.remarks[0] and not result.failed


def test_the_newest_of_the_installed_peers_is_taken(tmp_path, monkeypatch):
    versions = {
        "bin": "mpirun (Open MPI) 4.1.4",
        "peers/openmpi/bin": "mpirun (Open MPI) 5.0.11",
        "peers/impi-rt/bin": "Intel(R) MPI Library for Linux* OS, Version 2021.19.0 Build 20260929",
        "peers/mpich/bin": "HYDRA build details:\n    Version:      5.0.2",
    }
    for folder, text in versions.items():
        (tmp_path / folder).mkdir(parents=True)
        for name in ("mpirun", "mpiexec.hydra", "mpicc"):
            (tmp_path / folder / name).write_text(f"#!/bin/sh\necho '{text}'\n")
            (tmp_path / folder / name).chmod(0o755)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/bin")

    open_mpi, mpich, intel = (each.__wrapped__() for each in (toolchain.open_mpi, toolchain.mpich, toolchain.intel_mpi))

    assert open_mpi.title == f"Open MPI 5.0.11 ({tmp_path}/peers/openmpi/bin/mpirun)"
    assert (mpich.name, mpich.version, intel.version) == ("MPICH", (5, 0, 2), (2021, 19, 0))
    # Programs for Intel MPI are made by MPICH and find the other libraries at run time.
    assert intel.compiler == mpich.compiler == f"{tmp_path}/peers/mpich/bin/mpicc"
    assert intel.environment["LD_LIBRARY_PATH"].split(":")[0] == f"{tmp_path}/peers/impi-rt/lib"


def test_the_placement_of_the_cores_is_reported(monkeypatch):
    lines = iter([145e-9, 26e-9, 2e-3])
    monkeypatch.setattr(_native, "line_s", lambda: next(lines))
    monkeypatch.setattr(limits.host, "usable_cores", lambda: 2)
    limit = limits.MachineLimit(2)

    assert limit.placement is None
    limit.measure([BenchCase("barrier", 4)], 0.001)
    assert limit.placement == "a cache line takes 145 ns from core to core: they share no cache"
    limit.measure([BenchCase("barrier", 4)], 0.001)
    assert "26 ns from core to core: they share a cache; at other times a cache line takes 145 ns" in limit.placement
    limit.measure([BenchCase("barrier", 4)], 0.001)
    assert limit.placement.endswith("is unknown: other programs use the cores")


def test_ranks_run_where_they_are_placed():
    seen = Deployment(2, command=lambda rank, words: [*words, str(rank)]).ranks(
        [sys.executable, "-c", "import sys; print(sys.argv[1])"], 30.0, {}
    )

    assert seen == "0"


def test_memory_can_be_added_and_copied_in_finite_time():
    add_s, copy_s = _native.memory_pass(2, 1 << 20, 0.002)

    assert 0 < copy_s < 1 and 0 < add_s < 1
    with pytest.raises(InputError, match="thread_count=0"):
        _native.memory_pass(0, 8, 0.001)
    with pytest.raises(InputError, match="collective"):
        _native.algorithms("nothing")
    assert np.isfinite(_native.line_s())
