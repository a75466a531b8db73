"""The benchmarks run, small, so that they cannot rot; what they measure here says nothing about speed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

BENCHES = Path(__file__).resolve().parents[2] / "benches"
sys.path.insert(0, str(BENCHES))

import rack  # noqa: E402

needs_cargo = pytest.mark.skipif(shutil.which("cargo") is None, reason="native programs need a Rust toolchain")
cannot_emulate = rack.why_not()
needs_rack = pytest.mark.skipif(cannot_emulate is not None, reason=cannot_emulate or "")


def figures_of(name: str, tmp_path: Path) -> list[dict]:
    """Run a benchmark as its user does, and read what it wrote."""
    target = tmp_path / "figures.json"
    command = [sys.executable, str(BENCHES / "run.py"), name, "--quick", "--json", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    (report,) = json.loads(target.read_text())["reports"]
    return report["figures"]


@needs_cargo
def test_allreduce_is_timed_between_native_programs_and_between_python_programs(tmp_path):
    figures = figures_of("allreduce", tmp_path)

    assert {figure["case"].split(", ")[1] for figure in figures} == {"native", "Python"}
    assert all(figure["ours"]["seconds"] and figure["limit_s"] > 0 for figure in figures)


def test_kmeans_is_timed_beside_scikit_learn_at_equal_inertia(tmp_path):
    figures = figures_of("kmeans", tmp_path)

    assert [figure["row"] for figure in figures] == ["kernel", "KMeans, 2 workers"]
    assert all("scikit-learn" in figure["peers"] for figure in figures)


@needs_cargo
@needs_rack
def test_a_chain_broadcast_is_timed_on_an_emulated_rack(tmp_path):
    (figure,) = figures_of("chain", tmp_path)

    assert figure["ours"]["seconds"][0] > 0.9 * figure["limit_s"], "a cable carries no more than its rate"


@needs_rack
def test_a_rack_holds_its_cables_to_their_rate_and_counts_what_they_carry():
    with rack.Rack(hosts=2, rate="80mbit") as emulated:
        before = emulated.sent_bytes()
        elapsed_s = time_of_transfer(emulated, 1_000_000)
        sent = [after - first for after, first in zip(emulated.sent_bytes(), before, strict=True)]

    assert elapsed_s > 0.09, "1 MB at 10 MB/s"
    assert 1_000_000 < sent[0] < 1_200_000
    assert sent[1] < 200_000, "only acknowledgements go back"


@needs_rack
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_of_a_rack_is_left_when_its_owner_is_killed(ending):
    program = (
        "import rack, sys, time\n"
        "with rack.Rack(hosts=2) as emulated:\n"
        "    import subprocess\n"
        "    subprocess.Popen(emulated.command(emulated.hosts[0], ['sleep', '60']))\n"
        "    print('up', flush=True)\n"
        "    time.sleep(60)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], cwd=BENCHES, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None and owner.stdout.readline() == "up\n"
    owner.send_signal(ending)
    owner.wait(timeout=20)
    owner.stdout.close()

    # A kill leaves no time to tidy up; the next rack does it.
    with rack.Rack(hosts=1):
        assert not namespaces_of(owner.pid)


@needs_rack
def test_a_rack_that_fails_halfway_is_taken_down():
    with pytest.raises(RuntimeError, match="halfway"), rack.Rack(hosts=2) as emulated:
        assert namespaces_of(os.getpid())
        raise RuntimeError("halfway")

    assert not namespaces_of(os.getpid())
    assert emulated.hosts[1].address == "10.77.0.2"


def test_rates_are_read_as_tc_reads_them():
    assert [rack.bits_per_s(text) for text in ("100mbit", "1gbit", "64kbit")] == [10**8, 10**9, 64_000]
    with pytest.raises(ValueError, match="rate='fast'"):
        rack.bits_per_s("fast")


def namespaces_of(owner: int) -> list[str]:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if line.startswith(f"{rack.PREFIX}-{owner}-")]


def time_of_transfer(emulated: rack.Rack, size_bytes: int) -> float:
    """Seconds from a connection to the last byte, from the first host to the second."""
    source, target = emulated.hosts
    listen = (
        "import socket\n"
        f"with socket.create_server(('{target.address}', 5000)) as server:\n"
        "    print('listening', flush=True)\n"
        "    connection = server.accept()[0]\n"
        "    while connection.recv(65536): pass\n"
    )
    send = (
        "import socket\n"
        f"with socket.create_connection(('{target.address}', 5000)) as connection:\n"
        f"    connection.sendall(bytes({size_bytes}))\n"
    )
    listening = [sys.executable, "-c", listen]
    with subprocess.Popen(emulated.command(target, listening), stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout is not None and receiver.stdout.readline() == "listening\n"
        begin = time.monotonic()
        subprocess.run(emulated.command(source, [sys.executable, "-c", send]), check=True)
        receiver.wait(timeout=20)
    return time.monotonic() - begin
