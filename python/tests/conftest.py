"""Shared test setup: test order, log of test times, and worlds of workers."""

from __future__ import annotations

import gc
import json
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import ripieno as rp
from matplotlib.figure import Figure
from ripieno import _native
from ripieno.launch.process import forked
from varied import exhaustively

ROOT = Path(__file__).resolve().parents[2]
#: Seconds of computing of each file, as recorded by `make times RECORD=1`.
RECORDED_S: dict[str, float] = json.loads((Path(__file__).parent / "times.json").read_text())["python"]
#: Name of the log of this run in target/times, if requested.
LOG = os.environ.get("RIPIENO_TEST_TIMES")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

# Workers import the modules of their programs, and these import the following ones.
forked.preloaded += ["pytest", "sklearn.base"]

_measured_s = 0.0
_wall_s: dict[str, float] = {}
_log: list[dict[str, Any]] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Longest tests first: a long test that starts last would delay the end of the run.
    items.sort(key=lambda item: -RECORDED_S.get(item.path.name, 0.0))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect the tests without garbage collection, and exclude them from later ones, which tests request."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_finish() -> None:
    global _measured_s
    _measured_s = _processor_s()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Iterator[None]:
    """Attach the processor time since the last test to the last report of a test."""
    report = yield
    if LOG is not None and report.when == "teardown":
        global _measured_s
        now_s = _processor_s()
        group = item.get_closest_marker("xdist_group")
        report.measured = {
            "test": item.nodeid,
            "group": group.args[0] if group is not None else item.path.name,
            "cpu_s": round(max(0.0, now_s - _measured_s), 3),
        }
        _measured_s = now_s
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _wall_s[report.nodeid] = _wall_s.get(report.nodeid, 0.0) + report.duration
    # xdist transfers attributes of a report to the process that writes the log.
    if hasattr(report, "measured") and "PYTEST_XDIST_WORKER" not in os.environ:
        _log.append({**report.measured, "wall_s": round(_wall_s[report.nodeid], 3)})


def pytest_sessionfinish(session: pytest.Session) -> None:
    # Extension modules report objects that exist at the exit.
    gc.unfreeze()
    if _log:
        path = ROOT / f"target/times/{LOG}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(sorted(_log, key=lambda each: -each["cpu_s"]), indent=0))


def _processor_s() -> float:
    """Processor time of this process, of its descendants, and of children that have ended."""
    own = os.times()
    ticks, left = 0, [str(os.getpid())]
    while left:
        for children in Path("/proc", left.pop(), "task").glob("*/children"):
            try:
                found = children.read_text().split()
            except OSError:
                continue
            for child in found:
                try:
                    fields = Path("/proc", child, "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                ticks += sum(map(int, fields[11:15]))
                left.append(child)
    return own.user + own.system + own.children_user + own.children_system + ticks / TICKS_PER_S


@pytest.fixture(scope="session")
def world() -> Iterator[Callable[[int], rp.Job]]:
    """Provide a job with a given number of workers, started on first use and restarted after a test has ended it."""
    jobs: dict[int, rp.Job] = {}

    def of(workers: int) -> rp.Job:
        if workers not in jobs or jobs[workers].over:
            jobs[workers] = rp.launch(workers=workers, threads=1)
        return jobs[workers]

    yield of
    for job in jobs.values():
        job.close()


@pytest.fixture(scope="module")
def estimator_modules() -> Iterator[None]:
    """Import the modules of estimator tests before workers start. For test modules that kill many workers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(forked.PRELOAD_VARIABLE, "networkx,sklearn.datasets")
        yield


@pytest.fixture
def without_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the charts of reports empty: a command takes most of its time to draw them."""
    monkeypatch.setattr(Figure, "savefig", lambda figure, out, **options: out.write('<svg viewBox="0 0 1 1"></svg>'))


@pytest.fixture(params=[3, *exhaustively(1, 2)], ids=lambda workers: f"{workers} workers")
def everywhere(request: pytest.FixtureRequest, world: Callable[[int], rp.Job]) -> Callable[..., list]:
    """Run a program on a given number of ranks."""
    return world(request.param).run


@pytest.fixture
def threads() -> Callable[..., list]:
    """Run a program on ranks that are threads of this process, in a separate world."""

    def run(workers: int, program: Callable[..., Any], *args: Any) -> list:
        addresses: list[str] = [""] * workers
        barrier = threading.Barrier(workers)

        def rank_program(rank: int) -> Any:
            def exchange(address: str) -> list[str]:
                addresses[rank] = address
                barrier.wait()
                return addresses

            native = _native.Communicator.connect(rank, workers, exchange, token=b"test")
            # Wait for all ranks: a rank that has not arrived would get the errors of the others' first call here.
            barrier.wait(60.0)
            with rp.Communicator(native) as comm:
                return program(comm, *args)

        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(rank_program, range(workers)))

    return run
