"""The dashboard: telemetry of ranks, its evaluation, and access control."""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import ripieno as rp
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from ripieno.dashboard import Dashboard, shared_dashboard
from ripieno.dashboard.board import LINE_COUNT, Board
from ripieno.dashboard.history import MetricHistory
from ripieno.dashboard.iterations import Iterations
from ripieno.dashboard.link import address, link
from ripieno.dashboard.metrics import text_of
from ripieno.dashboard.picture import picture
from ripieno.dashboard.state import BoardUpdates
from ripieno.errors import InputError
from ripieno.launch.job.watch import telemetry_interval_s
from stand_in_engine import StandIn
from watching import comes_true, open_descriptors


def requested(link: str, path: str = "state") -> bytes:
    with urllib.request.urlopen(link + path, timeout=20) as response:
        return response.read()


def state_of(dashboard: Dashboard) -> dict:
    return json.loads(requested(dashboard.link))


def telemetry(at_s: float, **changes) -> dict:
    base = {"sender_id": "a", "at_s": at_s, "busy_s": at_s, "cpu_s": at_s / 2, "memory_bytes": 1000, "events": []}
    base |= {"lines": [], "broadcasts": [], "call_count": 0, "bytes_sent": 0, "bytes_received": 0}
    return base | {"called_s": 0.0, "waited_s": 0.0, "waited_for_s": {}, "sent_to": {}, "usage": []} | changes


def iterate(comm, count, late=()):
    """Iterate with some late ranks."""
    values = np.ones(5000)
    for number in range(count):
        time.sleep(0.05 if comm.rank in late else 0.005)
        comm.allreduce(values)
        if comm.rank == 0:
            comm.emit({"event": "iteration", "iteration": number + 1, "inertia": 1.0 / (number + 1)})
    logging.getLogger("mine").warning("rank %d is done", comm.rank)
    return comm.rank


#: Telemetry of ranks


@pytest.fixture(scope="module")
def watched():
    """Provide the telemetry of a job of three ranks with a late rank 1, and its dashboard."""
    with rp.launch(workers=3, dashboard=True) as job:
        job.announce("Demo", 30)
        assert job.run(iterate, 20, late=(1,)) == [0, 1, 2]
        dashboard = job.dashboard
        yield state_of(dashboard), dashboard
    assert state_of(dashboard)["job"]["state"] == "over"
    dashboard.close()


def test_ranks_report_the_ranks_that_they_wait_for(watched):
    state, _ = watched

    pairs = {(rank, peer): seconds for rank, peer, seconds in state["waiting"]["pairs"]}
    # The ranks that wait for rank 1 directly depend on the algorithm; the others wait for these.
    assert sum(seconds for (_, peer), seconds in pairs.items() if peer == 1) > 0.5
    assert state["waiting"]["caused"][0][0] == 1 and state["waiting"]["distinct"]


def test_time_is_divided_into_computing_communicating_and_waiting(watched):
    state, _ = watched

    waits = {}
    for rank, *_, busy_s, called_s, waited_s, sent, received, _ in state["ranks"]:
        assert 0 <= waited_s <= called_s <= busy_s
        assert busy_s > 0.9 and sent > 0 and received > 0
        waits[rank] = waited_s
    # On a busy machine every rank waits; the others wait for the late rank.
    assert min(waits, key=waits.__getitem__) == 1


def test_bytes_are_reported_by_algorithm_and_by_pair(watched):
    state, _ = watched

    (collective, _, calls, sent), *_ = state["usage"]
    assert collective == "allreduce" and calls >= 3 * 20
    assert sum(size for _, _, size in state["links"]["pairs"]) == pytest.approx(sent, rel=0.01)
    assert state["links"]["within"] > 0 == state["links"]["between"]


def test_iterations_and_log_lines_arrive_with_telemetry(watched):
    state, _ = watched

    assert (state["iterations"]["number"], state["iterations"]["max_iter"]) == (20, 30)
    assert state["iterations"]["objective"] == "inertia" and state["iterations"]["values"]["inertia"][-1] == 0.05
    lines = [(kind, rank, text) for _, kind, rank, _, text in state["lines"]]
    assert {("warning", rank, f"rank {rank} is done") for rank in range(3)} <= set(lines)


def broadcast_until(comm, length, stop_file):
    with comm.broadcast_variable(np.ones(length) if comm.rank == 0 else None, per_host=False) as variable:
        assert variable.value.sum() == length
        assert comes_true(stop_file.exists, 30.0)


def test_variables_are_reported_with_received_and_sent_bytes(tmp_path):
    seen = []
    with rp.launch(workers=2, dashboard=True) as job, ThreadPoolExecutor(1) as pool:
        ran = pool.submit(job.run, broadcast_until, 100_000, tmp_path / "stop")
        root = job.dashboard.board.ranks[0]
        assert comes_true(lambda: seen.extend(root.broadcasts) or (seen and seen[-1][3] == seen[-1][4]), 30.0)
        (tmp_path / "stop").touch()
        ran.result()
    job.dashboard.close()

    # On the other rank it is in progress only for a moment.
    *_, (root_rank, strategy, received, sent, size) = seen
    assert (root_rank, strategy, received, sent) == (0, "csb", 0, size) and size >= 800_000


def test_metrics_of_a_job_pass_the_strict_parser(watched):
    _, dashboard = watched

    families = {
        each.name: each for each in text_string_to_metric_families(requested(dashboard.link, "metrics").decode())
    }

    calls = {sample.labels["rank"]: sample.value for sample in families["ripieno_calls"].samples}
    assert set(calls) == {"0", "1", "2"} and min(calls.values()) >= 20
    assert not any({"rank", "peer"} <= set(sample.labels) for each in families.values() for sample in each.samples)
    assert families["ripieno_measure"].samples[0].value == 0.05


def test_the_trace_has_a_track_for_each_rank(watched):
    _, dashboard = watched

    events = json.loads(requested(dashboard.link, "trace.json"))["traceEvents"]

    shares = [event for event in events if event["ph"] == "C" and event["name"] == "time, %"]
    assert {event["pid"] for event in shares} == {0, 1, 2}
    assert all(sum(event["args"].values()) == pytest.approx(100, abs=0.3) for event in shares)


def test_a_single_rank_is_shown_too():
    with rp.launch(workers=1, dashboard=True) as job:
        job.run(iterate, 150)
        state = state_of(job.dashboard)
    assert len(state["ranks"]) == 1 and state["iterations"]["number"] == 150
    assert [line[4] for line in state["lines"]].count("rank 0 is done") == 1


def test_a_failed_rank_is_shown_and_the_job_continues():
    def dies(comm):
        if (comm.rank, comm.world_size) == (1, 3):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.6)
        comm.barrier()
        return comm.world_size

    with rp.launch(workers=3, on_failure="shrink", dashboard=True) as job, pytest.warns(RuntimeWarning):
        assert job.run(dies) == [2, 2]
        state = state_of(job.dashboard)
    lines = [text for *_, text in state["lines"]]
    assert any(text.startswith("rank 1 is lost: killed by SIGKILL") for text in lines)
    assert any("restarts on 2 ranks" in text for text in lines)
    assert state["job"]["workers"] == 2


@pytest.mark.parametrize(("end", "states"), [("raise", ["ready", "failed"]), ("exit", ["lost", "lost"])])
@pytest.mark.parametrize("engine", ["local", StandIn()])
def test_ranks_after_a_failed_program_have_the_states_of_the_job(engine, end, states):
    def fails(comm):
        if comm.rank == 1:
            if end == "exit":
                os._exit(3)
            raise ValueError("bad row")
        comm.barrier()

    with rp.launch(2, engine, threads=1, dashboard=True) as job:
        with pytest.raises((ValueError, rp.RankFailed)):
            job.run(fails)
        assert [str(each.state) for each in job.ranks] == states
        assert [state if not lost else "lost" for _, _, state, lost, *_ in state_of(job.dashboard)["ranks"]] == states
        job.run(lambda comm: comm.barrier())
        assert [each[2] for each in state_of(job.dashboard)["ranks"]] == ["ready"] * 2


def test_ranks_of_an_engine_are_shown():
    with rp.launch(engine=StandIn(), workers=2, threads=1, dashboard=True) as job:
        assert job.run(iterate, 150) == [0, 1]
        state = state_of(job.dashboard)
    assert state["job"]["place"] == "stand-in" and state["iterations"]["number"] == 150
    assert all(each[8] > 0.7 and each[11] > 0 for each in state["ranks"])


def test_without_a_dashboard_nothing_is_published(world):
    def threads(comm):
        import threading

        return [thread.name for thread in threading.enumerate()]

    assert world(2).dashboard is None
    assert all("ripieno-telemetry" not in names for names in world(2).run(threads))


def test_the_report_interval_grows_with_the_number_of_ranks():
    assert telemetry_interval_s(1) == 0.5
    assert telemetry_interval_s(6400) == pytest.approx(100 * telemetry_interval_s(64))


# Boards


def test_a_long_history_has_bounded_memory_and_complete_sums():
    history = MetricHistory(bin_count=8, width_s=1.0)

    for second in range(100):
        sums = {"computing": 0.25, "waiting": 0.5, "communicating": 0.25, "cpu": 0.1}
        history.add(1, second, second + 1, sums, 10.0)

    assert history.width_s == 16.0 and history.rank_count == 2
    known = history.share("waiting")[1][:6]
    np.testing.assert_allclose(known, 0.5, atol=1e-6)
    assert history.memory().shape == (2, 8)


def test_a_telemetry_interval_is_spread_over_its_bins():
    history = MetricHistory(bin_count=8, width_s=1.0)

    history.add(0, 0.5, 2.5, {"computing": 2.0, "waiting": 0.0, "communicating": 0.0, "cpu": 0.0}, 1.0)

    np.testing.assert_allclose(history._sums[0, 0, :4], [0.5, 1.0, 0.5, 0.0])


def test_counters_continue_when_ranks_are_renumbered_or_replaced():
    board = Board()
    board.set_ranks(["here", "here"])
    board.record_telemetry(0, telemetry(1.0, bytes_sent=100))
    board.record_telemetry(1, telemetry(1.0, sender_id="b", bytes_sent=7))
    board.record_telemetry(0, telemetry(2.0, bytes_sent=150))
    # Rank 1 becomes rank 0, but keeps its own sums.
    board.set_ranks(["here"])
    board.record_telemetry(0, telemetry(3.0, sender_id="b", bytes_sent=10))
    # Another communicator starts counting from zero.
    board.record_telemetry(0, telemetry(4.0, sender_id="b", bytes_sent=2))

    assert board.ranks[0].sums["bytes_sent"] == 150 + 3 + 2
    assert board.ranks[1].sums["bytes_sent"] == 7


def test_a_page_gets_changes_only():
    board = Board()
    board.line("info", "x", "first")
    page = BoardUpdates(board)
    assert [line[4] for line in page.as_json()["lines"]] == ["first"]

    for number in range(LINE_COUNT + 5):
        board.line("info", "x", str(number))

    assert len(page.as_json()["lines"]) == LINE_COUNT
    assert page.as_json()["lines"] == []


def test_an_empty_board_has_a_state_metrics_and_a_picture():
    board = Board()

    assert json.loads(json.dumps(BoardUpdates(board).as_json()))["ranks"] == []
    assert list(text_string_to_metric_families(text_of(board)))
    assert picture(board)["traceEvents"] == []


def test_metrics_of_odd_names_and_numbers_pass_the_strict_parser():
    board = Board()
    board.update_job(place='a "host"\n\\')
    board.set_ranks(['h"\n'])
    board.record_telemetry(0, telemetry(1.0, waited_for_s={0: 0.5}, usage=[("allreduce", "ring", 3, 5)]))
    board.event({"event": "iteration", "iteration": 1, "inertia": float("nan"), "odd\n": float("inf")})

    families = {each.name: each for each in text_string_to_metric_families(text_of(board))}

    assert families["ripieno"].samples[0].labels["place"] == 'a "host"\n\\'
    assert {sample.labels["name"] for sample in families["ripieno_measure"].samples} == {"inertia", "odd\n"}


def test_iterations_are_thinned_and_predict_the_end_of_the_fit():
    iterations = Iterations()
    iterations.begin("KMeans", 2000)
    for number in range(1, 1001):
        iterations.take({"event": "iteration", "iteration": number, "inertia": 1.0 / number}, 0.5 * number)

    state = iterations.as_json(500.0)

    assert 200 <= len(state["numbers"]) <= 400 and state["seconds"] == 0.5
    assert iterations.eta_s(500.0) == pytest.approx(500.0)


def test_a_decreasing_error_predicts_the_end():
    iterations = Iterations()
    iterations.begin("PageRank", 1000)
    for number in range(1, 11):
        iterations.take({"event": "iteration", "iteration": number, "error": 0.5**number, "goal": 0.5**20}, number)

    assert iterations.eta_s(10.0) == pytest.approx(10.0)


#: Links and access


def test_the_link_has_a_loopback_address_a_template_or_a_proxy():
    assert link("127.0.0.1", 80, "t", {}) == "http://127.0.0.1:80/t/"
    assert link("0.0.0.0", 80, "t", {}) == "http://127.0.0.1:80/t/"
    assert link("::1", 80, "t", {}) == "http://[::1]:80/t/"
    hub = {"JUPYTERHUB_SERVICE_PREFIX": "/user/ann/"}
    assert link("127.0.0.1", 80, "t", hub) == "/user/ann/proxy/80/t/"
    template = {"RIPIENO_DASHBOARD_LINK": "https://x/{WHO}/{port}/{token}/", "WHO": "ann", **hub}
    assert link("127.0.0.1", 80, "t", template) == "https://x/ann/80/t/"
    assert link("127.0.0.1", 80, "t", {"RIPIENO_DASHBOARD_LINK": "https://x/{port}"}) == "https://x/80/t/"
    with pytest.raises(InputError, match="'unknown' is not known"):
        link("127.0.0.1", 80, "t", {"RIPIENO_DASHBOARD_LINK": "{unknown}"})


def test_the_address_is_a_host_a_port_or_both():
    def of(text):
        return address({"RIPIENO_DASHBOARD_ADDRESS": text})

    assert of("") == ("127.0.0.1", 0) and of("8787") == ("127.0.0.1", 8787) and of("0.0.0.0") == ("0.0.0.0", 0)
    assert of("host:80") == ("host", 80) and of("[::1]:80") == ("::1", 80) and of(":80") == ("127.0.0.1", 80)
    with pytest.raises(InputError, match="RIPIENO_DASHBOARD_ADDRESS=host:99999"):
        of("host:99999")


def test_requests_without_the_token_get_nothing():
    dashboard = Dashboard()
    root, token, _ = dashboard.link.rsplit("/", 2)
    for path in ("", "/", "/state", f"/{token[:-1]}/state", f"/{token}x/metrics", "//state"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            requested(root, path)
        assert refused.value.code == 403 and token not in refused.value.read().decode()
    with pytest.raises(urllib.error.HTTPError) as missing:
        requested(dashboard.link, "../../etc/passwd")
    assert missing.value.code in (403, 404)
    # Without its trailing slash, the links of the page would be wrong.
    assert b"Ripieno" in requested(dashboard.link[:-1], "")
    dashboard.close()


def test_responses_forbid_caching_and_external_content():
    dashboard = Dashboard()
    with urllib.request.urlopen(dashboard.link + "events", timeout=20) as response:
        headers, first = response.headers, response.readline()
    assert headers["X-Accel-Buffering"] == "no" and headers["Content-Type"] == "text/event-stream"
    assert headers["Cache-Control"] == "no-store" and first.startswith(b"data: {")
    for name in ("", "page.js", "draw.js", "page.css", "style.css"):
        text = requested(dashboard.link, name).decode()
        assert "http://" not in text and "https://" not in text and "//cdn" not in text
        assert 'src="/' not in text and 'href="/' not in text
    dashboard.close()


def test_an_address_in_use_is_reported(monkeypatch):
    first = Dashboard()
    port = first.link.split(":")[2].split("/")[0]
    monkeypatch.setenv("RIPIENO_DASHBOARD_ADDRESS", port)
    with pytest.raises(InputError, match=f"127.0.0.1:{port}: Address already in use"):
        Dashboard()
    first.close()


FLOOD = """
import socket, sys
sends_requests, port = sys.argv[1] == "request", int(sys.argv[2])
held = []
while True:
    try:
        connection = socket.create_connection(("127.0.0.1", port), 0.2)
        if sends_requests:
            connection.sendall(b"GET /wrong/state HTTP/1.1\\r\\n\\r\\n")
        held.append(connection)
    except OSError:
        pass
    held = held[-200:]
    print(flush=True)
"""


def test_a_flood_without_the_token_leaves_descriptors_for_the_job_and_the_page():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    dashboard = Dashboard()
    try:
        port = dashboard.link.split(":")[2].split("/")[0]
        words = [[sys.executable, "-c", FLOOD, kind, port] for kind in ("silent", "request")]
        floods = [subprocess.Popen(each, stdout=subprocess.PIPE) for each in words]
        try:
            for flood in floods:
                assert all(flood.stdout.readline() for _ in range(70))
            assert len(open_descriptors()) < 128
            assert comes_true(lambda: json.loads(state_or_nothing(dashboard.link))["ranks"] == [], 20.0)
            with rp.launch(workers=2) as job:
                assert job.run(lambda comm: comm.allreduce(1.0)) == [2.0, 2.0]
        finally:
            for flood in floods:
                flood.kill()
                flood.communicate()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        dashboard.close()


def state_or_nothing(link: str) -> bytes:
    """Return the state, or null for the ranks if the request fails."""
    try:
        with urllib.request.urlopen(link + "state", timeout=3) as response:
            return response.read()
    except OSError:
        return b'{"ranks": null}'


def test_fifty_pages_are_shown_at_once():
    dashboard = Dashboard()
    with ThreadPoolExecutor(50) as pool:
        assert all(pool.map(lambda _: b"Ripieno" in requested(dashboard.link, ""), range(50)))
    dashboard.close()


def test_an_open_page_gets_the_last_state():
    dashboard = Dashboard()
    with urllib.request.urlopen(dashboard.link + "events", timeout=20) as response:
        assert response.readline().startswith(b"data: {")
        dashboard.end()
        dashboard.close()
        last = [line for line in response if line.startswith(b"data: ")][-1]
    assert json.loads(last.removeprefix(b"data: "))["job"]["state"] == "over"


def test_dashboard_is_true_or_false():
    with pytest.raises(InputError, match="dashboard='yes'"):
        rp.launch(workers=1, dashboard="yes")


def test_one_dashboard_shows_all_jobs_of_a_command(capsys):
    with shared_dashboard():
        for _ in range(2):
            with rp.launch(workers=1) as job:
                job.run(iterate, 1)
                shown = job.dashboard
                assert state_of(shown)["job"]["state"] == "ready"
    assert capsys.readouterr().err.count("dashboard: http") == 1
    with pytest.raises(urllib.error.URLError):
        state_of(shown)


# Commands


def test_a_command_prints_the_link_and_its_fit_is_shown(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((500, 4)))
    command = [sys.executable, "-m", "ripieno.cli", "kmeans", "x.npy", "-k", "3", "--dashboard", "-v", "-n", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=90)

    assert done.returncode == 0, done.stderr
    assert done.stderr.count("dashboard: http://127.0.0.1:") == 1
    assert "ripieno.launch: LocalJob: 2 ranks have joined in processes of" in done.stderr


def test_scripts_are_shown_with_their_output(tmp_path):
    script = tmp_path / "script.py"
    shown = tmp_path / "shown"
    script.write_text(
        "import sys, threading, ripieno as rp\nfrom pathlib import Path\ncomm = rp.init()\n"
        "for _ in range(40):\n    comm.allreduce(1.0)\nprint('all done', flush=True)\n"
        "while not Path(sys.argv[1]).exists():\n    threading.Event().wait(0.05)\n"
    )
    command = [sys.executable, "-m", "ripieno.cli", "run", "-n", "2", "--dashboard", str(script), str(shown)]

    def is_complete():
        state.update(json.loads(requested(found)))
        return state["usage"] and "all done" in [line[4] for line in state["lines"]]

    state = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        found = next(line for line in running.stderr if line.startswith("dashboard: ")).split()[1]
        complete = comes_true(is_complete, 60.0)
        shown.touch()
        assert running.wait(60) == 0
    assert complete, state
    assert [each[0] for each in state["ranks"]] == [0, 1] and state["usage"][0][0] == "allreduce"
