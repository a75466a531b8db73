"""The page of the dashboard in a real browser of a phone's width, also for jobs in engines."""

from __future__ import annotations

import json
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
from varied import exhaustively
from watching import open_descriptors

# Engines need not find this file.
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


def looked_at(link: str, scheme: str) -> subprocess.CompletedProcess[str]:
    """Return a browser's rendering of the page on stdout, and its complaints on stderr."""
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
        done = looked_at(job.dashboard.link, scheme)
    # The page would stay open in engines that share this process.
    job.dashboard.close()

    for text in ('<h1 id="title">Demo</h1>', "20 / 30", "allreduce", "Rank 1 made the others wait", "3 ranks have met"):
        assert text in done.stdout
    assert "CONSOLE" not in done.stderr


# Processes without the token that hold as many connections as they get.
FLOOD = """
import socket, sys
held = []
while True:
    try:
        held.append(socket.create_connection(("127.0.0.1", int(sys.argv[1])), 0.2))
    except OSError:
        pass
    held = held[-400:]
"""
# Pages without a browser: they receive events, or poll if there are too many pages, until the job is over. The output
# is the number of updates and of refused connections of each.
VIEWERS = """
import json, sys, time, urllib.error, urllib.request
from concurrent.futures import ThreadPoolExecutor

link, count = sys.argv[1], int(sys.argv[2])

def view(number):
    updates, refused, is_over, path = 0, 0, False, "events"
    while not is_over:
        try:
            with urllib.request.urlopen(link + path, timeout=10) as response:
                for line in response:
                    if line.strip():
                        is_over = json.loads(line.removeprefix(b"data: ")).get("job", {}).get("state") == "over"
                        updates += 1
                    if is_over:
                        break
            time.sleep(2 if path == "state" and not is_over else 0)
        except urllib.error.HTTPError:
            path = "state"
        except OSError:
            refused += 1
    return updates, refused

with ThreadPoolExecutor(count) as pool:
    print(json.dumps(list(pool.map(view, range(count)))))
"""


@pytest.mark.exhaustive
def test_fifty_viewers_see_the_job_during_a_flood_without_the_token(capsys):
    def python(code: str, *words: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", code, *map(str, words)]
        return stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))

    with ExitStack() as stack:
        with rp.launch(workers=3, dashboard=True) as job:
            job.announce("Demo", 30)
            link = job.dashboard.link
            floods = [python(FLOOD, link.split(":")[2].split("/")[0]) for _ in range(4)]
            viewers = python(VIEWERS, link, 49)
            stack.callback(lambda: [each.kill() for each in (*floods, viewers)])
            descriptors = []
            for _ in range(10):
                job.run(iterate, 20)
                descriptors.append(len(open_descriptors()))
            begin_s = time.perf_counter()
            done = looked_at(link, "light")
            looked_s = time.perf_counter() - begin_s
            with rp.launch(workers=2) as other:
                assert other.run(lambda comm: comm.allreduce(1.0)) == [2.0, 2.0]
        seen = json.loads(viewers.communicate(timeout=60)[0])
        job.dashboard.close()

    with capsys.disabled():
        updates, refused = zip(*seen, strict=True)
        print(
            f"\n49 viewers and 4 floods: {min(updates)} .. {max(updates)} updates, {sum(refused)} refused connections, "
            f"browser {looked_s:.1f} s, at most {max(descriptors)} descriptors"
        )
    assert min(updates) > 1
    for text in ('<h1 id="title">Demo</h1>', "20 / 30", "allreduce", "3 ranks have met"):
        assert text in done.stdout
    assert "CONSOLE" not in done.stderr


@pytest.mark.parametrize("engine", ["dask_client", *exhaustively("ray_nodes", "slurm", "spark_local", "spark_yarn")])
def test_the_page_shows_a_job_in_an_engine(engine: str, request: pytest.FixtureRequest):
    options = ENGINES[engine](request.getfixturevalue(engine))
    with rp.launch(workers=2, threads=1, dashboard=True, **options) as job:
        job.announce("Demo", 30)
        job.run(iterate, 20)
        done = looked_at(job.dashboard.link, "light")
    job.dashboard.close()

    for text in ("20 / 30", "allreduce", "Rank 1 made the others wait", "2 ranks have met"):
        assert text in done.stdout
    assert "CONSOLE" not in done.stderr
