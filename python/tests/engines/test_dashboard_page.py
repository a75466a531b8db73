"""The page of the dashboard in a real browser of a phone's width, also for jobs in engines."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack

import cloudpickle
import pytest
import ripieno as rp
from conformance import ENGINES
from page_viewers import watching_page
from varied import exhaustively
from watching import open_descriptors

# Workers of engines get this module by value, because they cannot import it.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

CHROMIUM = shutil.which("chromium")
# No update checks, and no stored files.
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--enable-logging=stderr"),
)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (apt-get install chromium)")


def iterate(comm, count: int) -> None:
    import time

    import numpy as np

    for number in range(count):
        time.sleep(0.05 if comm.rank == 1 else 0.0)
        comm.allreduce(np.ones(5000))
        if comm.rank == 0:
            comm.emit({"event": "iteration", "iteration": number + 1, "inertia": 1.0 / (number + 1)})


def rendered(link: str, scheme: str) -> subprocess.CompletedProcess[str]:
    """Return a browser's rendering of the page on stdout, and its warnings and errors on stderr."""
    with tempfile.TemporaryDirectory() as folder:
        # With #once the page polls only once, so that the browser terminates.
        of_page = [f"--user-data-dir={folder}", "--window-size=390,2000", "--virtual-time-budget=3000"]
        of_page += [f"--blink-settings=preferredColorScheme={int(scheme == 'light')}"]
        command = [CHROMIUM, *OPTIONS, *of_page, "--dump-dom", f"{link}#once"]
        return subprocess.run(command, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_shows_the_job(scheme: str):
    with rp.launch(workers=3, dashboard=True) as job:
        job.announce("Demo", 30)
        job.run(iterate, 20)
        done = rendered(job.dashboard.link, scheme)
    # The page would stay open in engines that share this process.
    job.dashboard.close()

    for text in (
        '<h1 id="title">Demo</h1>',
        "20 / 30",
        "allreduce",
        "Rank 1 made the others wait",
        "3 ranks have joined",
    ):
        assert text in done.stdout
    assert "CONSOLE" not in done.stderr


@pytest.mark.exhaustive
def test_fifty_viewers_see_the_job_during_a_flood_without_the_token(capsys):
    with ExitStack() as stack:
        with rp.launch(workers=3, dashboard=True) as job:
            job.announce("Demo", 30)
            link = job.dashboard.link
            viewers = stack.enter_context(watching_page(link, viewer_count=49, flood_count=4))
            descriptors = []
            for _ in range(10):
                job.run(iterate, 20)
                descriptors.append(len(open_descriptors()))
            begin_s = time.perf_counter()
            done = rendered(link, "light")
            render_s = time.perf_counter() - begin_s
            with rp.launch(workers=2) as other:
                assert other.run(lambda comm: comm.allreduce(1.0)) == [2.0, 2.0]
        updates, refused = zip(*viewers.counts(), strict=True)
        job.dashboard.close()

    with capsys.disabled():
        print(
            f"\n49 viewers and 4 floods: {min(updates)} .. {max(updates)} updates, {sum(refused)} refused connections, "
            f"browser {render_s:.1f} s, at most {max(descriptors)} descriptors"
        )
    assert min(updates) > 1
    for text in ('<h1 id="title">Demo</h1>', "20 / 30", "allreduce", "3 ranks have joined"):
        assert text in done.stdout
    assert "CONSOLE" not in done.stderr


@pytest.mark.parametrize("engine", ["dask_client", *exhaustively("ray_nodes", "slurm", "spark_local", "spark_yarn")])
def test_the_page_shows_a_job_in_an_engine(engine: str, request: pytest.FixtureRequest):
    options = ENGINES[engine](request.getfixturevalue(engine))
    with rp.launch(workers=2, threads=1, dashboard=True, **options) as job:
        job.announce("Demo", 30)
        job.run(iterate, 20)
        done = rendered(job.dashboard.link, "light")
    job.dashboard.close()

    for text in ("20 / 30", "allreduce", "Rank 1 made the others wait", "2 ranks have joined"):
        assert text in done.stdout
    assert "CONSOLE" not in done.stderr
