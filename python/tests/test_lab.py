"""Emulated clusters: rates, counters, names, failed network links, runs, and complete removal."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ripieno.cli import main
from ripieno.errors import InputError, LabError
from ripieno.lab import ClusterSpec, Counters, Lab, cluster_spec, kernel, missing_requirement, registry, wiring
from ripieno.launch import limits
from watching import comes_true, under_load

cannot_emulate = missing_requirement()
needs_lab = pytest.mark.skipif(cannot_emulate is not None, reason=cannot_emulate or "")

COMMAND = [sys.executable, "-c", "import sys; from ripieno.cli import main; sys.exit(main())", "lab"]
PAYLOAD_MBIT = 100 * cluster_spec.wire_share()
PORT = 5000
# A busy machine needs several attempts to fill a network link.
ATTEMPT_COUNT = 5
# Longer than any program of these tests.
TIMEOUT_S = 60.0

# The first data arrives at an unknown rate: neither its bytes nor its time count.
RECEIVE = """
import socket, sys, time
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as server:
    print("listening", flush=True)
    connection = server.accept()[0]
    first, begin, received = len(connection.recv(1 << 16)), time.monotonic(), 0
    while data := connection.recv(1 << 16):
        received, end = received + len(data), time.monotonic()
    assert first + received == int(sys.argv[3])
    print(received, begin, end, flush=True)
"""
SEND = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection:
    connection.sendall(bytes(int(sys.argv[3])))
"""
ECHO = """
import socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as server:
    print("listening", flush=True)
    connection = server.accept()[0]
    while data := connection.recv(100):
        connection.sendall(data)
"""
# Each input line is a time limit: the program sends a byte and prints whether it returned in that time.
CLIENT = """
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
for line in sys.stdin:
    connection.settimeout(float(line))
    connection.sendall(b"x")
    try:
        print(len(connection.recv(1)), flush=True)
    except TimeoutError:
        print("timeout", flush=True)
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Provide two racks of two hosts, with uplinks as slow as one host's network link."""
    with Lab(racks=2, hosts=2, rate="100mbit", uplink="100mbit") as lab:
        yield lab


@pytest.fixture
def name() -> str:
    """Provide a lab name that no other run of these tests uses."""
    return f"test{os.getpid()}"


@pytest.fixture
def short_wait(monkeypatch) -> None:
    """Shorten the time that ranks have to report after a failure."""
    monkeypatch.setattr(limits, "OTHER_REPORTS_S", 0.1)


@contextmanager
def program(
    lab: Lab, host: int, source: str, *arguments: object, first_line: str = ""
) -> Iterator[subprocess.Popen[str]]:
    """Run a Python program in a host, from its first output until the block ends."""
    words = [sys.executable, "-c", source, *map(str, arguments)]
    with started(lab.command(lab.hosts[host], words), stdin=subprocess.PIPE) as child:
        if first_line:
            assert line(child) == first_line
        yield child


@contextmanager
def started(words: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a command until the block ends, or until a timeout."""
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, **options) as child:
        timer = threading.Timer(TIMEOUT_S, child.kill)
        timer.start()
        try:
            yield child
        finally:
            timer.cancel()
            child.kill()


def transfer_mbit(lab: Lab, pairs: list[tuple[int, int]], size_bytes: int) -> float:
    """Return the summed payload rate of simultaneous transfers."""
    with ExitStack() as stack:
        receivers = []
        for _, target in pairs:
            arguments = (lab.hosts[target].address, PORT, size_bytes)
            receivers.append(stack.enter_context(program(lab, target, RECEIVE, *arguments, first_line="listening")))
        for source, target in pairs:
            stack.enter_context(program(lab, source, SEND, lab.hosts[target].address, PORT, size_bytes))
        results = [line(receiver).split() for receiver in receivers]
    received, begins, ends = zip(*([float(word) for word in result] for result in results), strict=True)
    return 8e-6 * sum(received) / (max(ends) - min(begins))


def best_mbit(lab: Lab, pairs: list[tuple[int, int]], size_bytes: int, sufficient_mbit: float) -> float:
    """Return the first sufficient rate, or the best of several."""
    rates = []
    for _ in range(ATTEMPT_COUNT):
        rates.append(transfer_mbit(lab, pairs, size_bytes))
        if rates[-1] >= sufficient_mbit:
            break
    return max(rates)


def line(child: subprocess.Popen[str]) -> str:
    """Return the next line of a program's output."""
    assert child.stdout is not None
    return child.stdout.readline().rstrip("\n")


def reply(child: subprocess.Popen[str], timeout_s: float) -> str:
    """Let `CLIENT` send a byte, and return its output."""
    assert child.stdin is not None
    child.stdin.write(f"{timeout_s}\n")
    child.stdin.flush()
    return line(child)


@pytest.fixture
def cli(capsys) -> Callable[..., CommandOutput]:
    """Run ``ripieno lab words`` in this process."""

    def run(*words: str) -> CommandOutput:
        try:
            code = main(["lab", *words])
        except SystemExit as end:
            code = end.code
        return CommandOutput(code, *capsys.readouterr())

    return run


class CommandOutput(NamedTuple):
    """The output of a command."""

    code: int
    out: str
    err: str


class PipeReader:
    """The reading end of a named pipe: data written to it, and whether a writer still has it open."""

    def __init__(self, path: Path) -> None:
        self._end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._waiting = select.poll()
        self._waiting.register(self._end, select.POLLIN)

    def __enter__(self) -> PipeReader:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._end)

    def read(self, byte_count: int, within_s: float) -> bytes:
        """Return this number of bytes, or those received before the timeout or the last writer's end."""
        data, deadline = b"", time.monotonic() + within_s
        while len(data) < byte_count and self._waiting.poll(max(0.0, deadline - time.monotonic()) * 1000):
            more = os.read(self._end, byte_count - len(data))
            if not more:
                break
            data += more
        return data

    def closes(self, within_s: float) -> bool:
        """Return whether the last writer ends in time and without further data."""
        return bool(self._waiting.poll(within_s * 1000)) and os.read(self._end, 1) == b""


def remains(name: str) -> list[str]:
    """Return all remains of a lab: namespaces, processes inside, mounts, links of this machine, files."""
    namespaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout.split()
    links = json.loads(subprocess.run(["ip", "-json", "link"], capture_output=True, check=True).stdout)
    return [
        *(each for each in namespaces if each.startswith(registry.prefix(name))),
        *(text for text in Path("/proc/self/mountinfo").read_text().splitlines() if name in text),
        *(f"process {pid}" for pid in pids_of(name)),
        *(link["ifname"] for link in links if link["ifname"] not in LINKS_BEFORE),
        *map(str, registry.FOLDER.glob(f"{name}*")),
    ]


def pids_of(name: str) -> list[int]:
    """Return the processes with the lab in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                text = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if name.encode() in text:
                found.append(int(entry.name))
    return found


LINKS_BEFORE = {link.name for link in Path("/sys/class/net").iterdir()} if Path("/sys/class/net").is_dir() else set()


def is_removed(name: str, except_for: list[str], within_s: float = 30.0) -> bool:
    """Return whether all other remains of a lab are removed before the timeout, without help of this process."""
    return comes_true(lambda: remains(name) == except_for, within_s)


def test_hosts_are_numbered_and_addressed_rack_by_rack():
    hosts = ClusterSpec(racks=3, hosts_per_rack=4).hosts

    assert [host.name for host in hosts] == [f"h{number:02}" for number in range(12)]
    assert (hosts[5].rack, hosts[5].address, hosts[5].number) == (1, "10.77.1.2", 5)
    assert len({cluster_spec.mac(host) for host in hosts}) == 12


@pytest.mark.parametrize(
    ("rate", "uplink", "racks", "packet_bytes"),
    [
        ("100mbit", "1gbit", 1, 12_500),
        ("10mbit", "1gbit", 1, 3_000),
        ("10gbit", "10gbit", 1, 65_536),
        # A slower uplink must not be blocked for longer than a network link.
        ("100mbit", "50mbit", 2, 6_250),
        ("100mbit", "50mbit", 1, 12_500),
    ],
)
def test_a_packet_takes_the_slowest_link_for_a_millisecond(rate, uplink, racks, packet_bytes):
    shape = ClusterSpec(racks, 4, rate, uplink)

    assert shape.packet_bytes == packet_bytes
    assert shape.burst_bytes == packet_bytes + 3_000
    assert shape.uplink_burst_bytes >= shape.burst_bytes


def test_rates_are_read_as_tc_reads_them():
    assert [cluster_spec.bits_per_s("rate", text) for text in ("100mbit", "1.5gbit", "640kbit")] == [
        10**8,
        15 * 10**8,
        640_000,
    ]


@pytest.mark.parametrize(
    ("shape", "names"),
    [
        ({"rate": "fast"}, "rate='fast'"),
        ({"rate": "1kbit"}, "rate='1kbit'"),
        ({"uplink": "1000gbit"}, "uplink='1000gbit'"),
        ({"racks": 0}, "racks=0"),
        ({"hosts": 251}, "hosts=251"),
        ({"racks": 100, "hosts": 100}, "at most 512 hosts"),
        ({"name": "a-b"}, "name='a-b'"),
    ],
)
def test_an_invalid_shape_is_refused_by_name_and_value(shape, names):
    with pytest.raises(InputError, match=names):
        Lab(**shape)


def test_rates_above_the_capacity_of_the_cpu_cause_a_warning():
    assert ClusterSpec(2, 16, "100mbit").warning() is None
    assert "20 Gbit/s" in (ClusterSpec(2, 10, "1gbit").warning() or "")


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ((os, "geteuid", lambda: 1000), "needs root: run this with sudo"),
        ((sys, "platform", "darwin"), "needs Linux"),
        ((kernel.shutil, "which", lambda tool, path: None), "iproute2: apt-get install iproute2"),
    ],
)
def test_missing_requirements_are_reported_before_anything_is_created(monkeypatch, name, missing, message):
    monkeypatch.setattr(*missing)

    with pytest.raises(LabError, match=message), Lab(name=name):
        pytest.fail("the lab was created")
    with pytest.raises(LabError, match=message):
        Lab.named(name)

    assert not registry.folder(name).exists()


@needs_lab
def test_a_kernel_without_token_buckets_is_reported_before_anything_is_created(monkeypatch, name):
    without = [*kernel._TRIALS[:2], ("sch_tbf", "CONFIG_NET_SCH_TBF", "tc", "qdisc add dev one root no_such_shaper")]
    monkeypatch.setattr(kernel, "_TRIALS", without)

    with pytest.raises(LabError, match="lacks sch_tbf: modprobe sch_tbf"), Lab(name=name):
        pytest.fail("the lab was created")

    assert not remains(name)


@needs_lab
def test_a_network_link_carries_its_rate_and_no_more(lab):
    rate = best_mbit(lab, [(0, 1)], 4_000_000, sufficient_mbit=0.97 * PAYLOAD_MBIT)

    assert 0.95 * PAYLOAD_MBIT < rate < 1.02 * PAYLOAD_MBIT


@needs_lab
def test_one_link_may_have_another_rate(lab):
    lab.set_rate("h1", f"{PAYLOAD_MBIT / 5:f}mbit")
    try:
        slow, other = (best_mbit(lab, [ends], 1_000_000, sufficient_mbit=0.0) for ends in ((0, 1), (2, 0)))
    finally:
        lab.set_rate("h1", lab.spec.rate)

    assert slow < 0.25 * PAYLOAD_MBIT < other


@needs_lab
def test_hosts_of_a_rack_share_its_uplink(lab):
    before = lab.counters()
    rate = best_mbit(lab, [(0, 2), (1, 3)], 2_000_000, sufficient_mbit=0.95 * PAYLOAD_MBIT)
    carried = {link: after - before[link] for link, after in lab.counters().items()}

    assert 0.9 * PAYLOAD_MBIT < rate < 1.02 * PAYLOAD_MBIT
    assert carried["rack0"].sent_bytes == carried["rack1"].received_bytes > 4_000_000
    assert carried["rack1"].sent_bytes == carried["h2"].sent_bytes + carried["h3"].sent_bytes


@needs_lab
def test_counters_are_exact(lab):
    count, size_bytes, header_bytes = 50, 1000, 14 + 20 + 8
    receive = (
        "import socket, sys\n"
        "end = socket.socket(type=socket.SOCK_DGRAM)\n"
        f"end.bind((sys.argv[1], {PORT}))\n"
        "print('listening', flush=True)\n"
        f"print(sum(len(end.recv(2000)) for _ in range({count})), flush=True)\n"
    )
    send = (
        "import socket, sys\n"
        "end = socket.socket(type=socket.SOCK_DGRAM)\n"
        f"for _ in range({count}): end.sendto(bytes({size_bytes}), (sys.argv[1], {PORT}))\n"
    )
    before = lab.counters()

    target = lab.hosts[2].address
    with program(lab, 2, receive, target, first_line="listening") as receiver, program(lab, 0, send, target):
        assert line(receiver) == str(count * size_bytes)
    carried = {link: after - before[link] for link, after in lab.counters().items()}

    total = count * (size_bytes + header_bytes)
    sent, received, unused = Counters(sent_bytes=total), Counters(received_bytes=total), Counters()
    assert carried == {"h0": sent, "h1": unused, "h2": received, "h3": unused, "rack0": sent, "rack1": received}


@needs_lab
def test_headers_of_every_frame_are_counted(lab):
    before = lab.counters()
    transfer_mbit(lab, [(0, 1)], 1_000_000)
    sent_bytes = (lab.counters()["h0"] - before["h0"]).sent_bytes

    # The rest is partly filled frames, and the start and end of the connection.
    assert 1_000_000 / cluster_spec.wire_share() < sent_bytes < 1.01 * 1_000_000 / cluster_spec.wire_share()


@needs_lab
def test_a_command_sees_its_host(lab, capfd):
    script = "hostname; echo $RACK $HOSTNAME; ls /sys/class/net; grep h3 /etc/hosts; ls -d /sys/fs/cgroup/*"

    assert subprocess.run(lab.command(lab.hosts[2], ["sh", "-c", script]), check=False).returncode == 0

    words = capfd.readouterr().out.split()
    assert words[:7] == ["h2", "rack1", "h2", "eth0", "lo", "10.77.1.2", "h3"]
    assert words[7:] == sorted(str(each) for each in Path("/sys/fs/cgroup").iterdir())
    assert os.uname().nodename != "h2", "this machine keeps its name"


@needs_lab
def test_a_remote_shell_runs_commands_like_ssh(lab, tmp_path, capfd):
    shell = tmp_path / "shell"
    shell.write_text(lab.remote_shell())
    shell.chmod(0o700)

    codes = [subprocess.run([shell, "-x", host, "hostname;", "exit 3"]).returncode for host in ("h1", "10.77.1.1")]

    assert codes == [3, 3]
    assert capfd.readouterr().out.split() == ["h1", "h2"]
    assert subprocess.run([shell, "h9", "true"], stderr=subprocess.DEVNULL).returncode == 1


@needs_lab
@pytest.mark.parametrize("link", ["h3", "rack1"])
def test_connections_continue_after_a_network_link_failed_and_recovered(lab, link):
    address = lab.hosts[3].address
    with program(lab, 3, ECHO, address, PORT, first_line="listening"), program(lab, 0, CLIENT, address, PORT) as client:
        assert reply(client, 10.0) == "1"

        lab.fail(link)
        assert lab.disconnected() == {link}
        # Long enough for failed retransmissions.
        assert reply(client, 0.5) == "timeout"

        lab.heal(link)
        assert reply(client, 30.0) == "1"

    assert not lab.disconnected()
    assert best_mbit(lab, [(1, 3)], 2_000_000, sufficient_mbit=0.9 * PAYLOAD_MBIT) < 1.1 * PAYLOAD_MBIT


@needs_lab
def test_a_killed_host_sends_nothing_to_its_peers(lab):
    address = lab.hosts[1].address
    with (
        program(lab, 1, ECHO, address, PORT, first_line="listening") as killed,
        program(lab, 0, CLIENT, address, PORT) as client,
    ):
        assert reply(client, 10.0) == "1"

        assert lab.fail("h1", kill=True) == 1
        assert killed.wait(timeout=10) == -signal.SIGKILL

        # A process that ends closes its connections; a host without power sends nothing.
        assert reply(client, 0.3) == "timeout"
        assert client.poll() is None
    lab.heal("h1")


@needs_lab
def test_ranks_of_a_run_connect_across_racks(lab, capfd):
    source = (
        "import os, ripieno as rp\n"
        "comm = rp.init()\n"
        "where = comm.allgather((os.environ['RACK'], os.environ['LOCAL_RANK'], os.environ['LOCAL_WORLD_SIZE']))\n"
        "print(comm.rank, comm.allreduce(comm.rank + 1), comm.hosts, comm.nodes, comm.racks, where)\n"
    )

    assert lab.run([sys.executable, "-c", source], ranks_per_host=2, timeout_s=60) == 0

    output = sorted(capfd.readouterr().out.splitlines())
    hosts = [host.name for host in lab.hosts for _ in range(2)]
    nodes, racks = [rank // 2 for rank in range(8)], [f"rack{rank // 4}" for rank in range(8)]
    places = [(f"rack{host.rack}", str(local), "2") for host in lab.hosts for local in range(2)]
    assert output == [f"[{hosts[rank]} rank {rank}] {rank} 36 {hosts} {nodes} {racks} {places}" for rank in range(8)]


@needs_lab
def test_a_run_on_some_hosts_has_only_these_and_a_single_rank_prints_no_prefix(lab, capfd):
    command = ["sh", "-c", "echo $(hostname) $RANK/$WORLD_SIZE $MASTER_ADDR $GREETING"]

    assert lab.run(command, on=["h3", "h1"], environment={"GREETING": "hello"}) == 0
    assert lab.run(command, first=1) == 0

    output = capfd.readouterr().out.splitlines()
    assert sorted(output[:2]) == ["[h1] h1 1/2 10.77.1.2 hello", "[h3] h3 0/2 10.77.1.2 hello"]
    assert output[2:] == ["h0 0/1 10.77.0.1"]


@needs_lab
@pytest.mark.parametrize(
    ("script", "code", "message"),
    [
        ("test $RANK != 2 || exit 7; sleep 60", 7, "rank 2 on h2 failed: its process exited with status 7"),
        ("test $RANK != 1 || kill -KILL $$; sleep 60", 137, "rank 1 on h1 failed: killed by SIGKILL"),
        ("exec no_such_program", 127, "no_such_program"),
    ],
)
def test_a_rank_that_fails_ends_the_others_and_its_exit_code_is_returned(lab, capfd, short_wait, script, code, message):
    begin = time.monotonic()

    assert lab.run(["sh", "-c", script]) == code

    assert time.monotonic() - begin < under_load(15.0)
    assert message in capfd.readouterr().err


@needs_lab
def test_the_exit_code_is_that_of_the_rank_that_failed_first(lab, capfd):
    # Rank 0 notices that rank 1 leaves, and ends with an exception before rank 1 ends.
    source = (
        "import os, select, sys, ripieno as rp\n"
        "comm = rp.init()\n"
        "other = os.pidfd_open(comm.broadcast(os.getpid()))\n"
        "if comm.rank == 0:\n"
        "    comm.allreduce(1)\n"
        "comm.close()\n"
        "select.select([other], [], [])\n"
        "sys.exit(7)\n"
    )

    assert lab.run([sys.executable, "-c", source], first=2, timeout_s=60) == 7

    output = capfd.readouterr().err
    assert "RankFailed: rank 1 on h1 failed: left the job" in output
    assert "ripieno: rank 1 on h1 failed: its process exited with status 7" in output


@needs_lab
def test_ranks_may_continue_when_one_fails(lab, capfd, short_wait):
    assert lab.run(["sh", "-c", "test $RANK != 0 || exit 4; sleep 0.5; echo done"], first=2, keep_going=True) == 4

    assert "[h1] done" in capfd.readouterr().out


@needs_lab
def test_a_run_that_exceeds_its_timeout_is_ended_with_all_its_processes(lab, capfd):
    mark = f"77{os.getpid()}"

    # The grandchild is in a separate session, and is orphaned when its parent ends.
    assert lab.run(["sh", "-c", f"setsid sleep {mark} & sleep {mark}"], timeout_s=0.5) == 124

    assert "after 0.5 s these ranks still ran: 0 on h0, 1 on h1, 2 on h2, 3 on h3" in capfd.readouterr().err
    assert not pids_of(mark)


@needs_lab
def test_a_run_ends_when_its_output_is_not_read(lab):
    with started([*COMMAND, "run", "--name", lab.name, "yes"]) as running:
        assert line(running).endswith(" y")
        assert running.stdout is not None
        running.stdout.close()

        assert running.wait(timeout=20) == 128 + signal.SIGPIPE


@needs_lab
def test_the_example_of_the_documentation_runs(capfd):
    page = Path(__file__).resolve().parents[2] / "docs" / "lab.md"
    (example,) = re.findall(r"^```py\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)

    assert subprocess.run([sys.executable, "-c", example], timeout=250).returncode == 0

    output = capfd.readouterr().out
    assert output.count("6 ['h0', 'h1', 'h2', 'h3'] ['rack0', 'rack0', 'rack1', 'rack1']") == 4
    assert re.search(r"^0 \d{4,}$", output, re.MULTILINE)


@needs_lab
def test_a_named_lab_exists_until_it_is_removed(cli, name):
    try:
        up = cli("up", "--racks", "2", "--hosts", "1", "--rate", "100mbit", "--uplink", "50mbit", "--name", name)
        assert up.code == 0, up.err
        assert "2 x 1 hosts, h0 to h1, links 100 Mbit/s, uplinks 50 Mbit/s" in up.out

        again = cli("up", "--name", name)
        assert (again.code, again.out) == (1, "")
        assert f"there is a lab '{name}' already: ripieno lab down --name {name}" in again.err

        send = "import socket, sys; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('h1', 9)); sys.exit(9)"
        ran = cli("run", "--name", name, "--first", "1", sys.executable, "-c", send)
        assert (ran.code, ran.err) == (9, "ripieno: rank 0 on h0 failed: its process exited with status 9\n")
        counters = json.loads(cli("counters", "--name", name, "--json").out)
        assert set(counters) == {"h0", "h1", "rack0", "rack1"} and counters["h0"]["sent_bytes"] > 0
        assert cli("counters", "--name", name, "--reset").code == 0
        assert Lab.named(name).counters() == dict.fromkeys(counters, Counters())

        assert cli("fail", "--name", name, "rack1").code == 0
        hosts = json.loads(cli("hosts", "--name", name, "--json").out)
        assert [host["disconnected"] for host in hosts] == [[], ["rack1"]]
        assert cli("hosts", "--name", name).out.splitlines()[2].split() == [
            "h1",
            "10.77.1.1",
            "rack1",
            "disconnected:",
            "rack1",
        ]
        assert cli("heal", "--name", name, "rack1").code == 0

        leave = [*COMMAND, "exec", "--name", name, "h1", "--", "sh", "-c", "exit $(hostname | tr -d h)4"]
        assert subprocess.run(leave).returncode == 14
        assert cli("exec", "--name", name, "h7", "true")[::2] == (2, "ripieno: host='h7': this lab has h0 … h1\n")

        words = [*COMMAND, "exec", "--name", name, "h0", "sh", "-c", "echo inside; exec sleep 60"]
        inside = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert line(inside) == "inside"
    finally:
        down = cli("down", "--name", name)
    assert down.out == f"{name}: down, 1 process killed\n", down.err
    with inside:
        assert inside.wait(timeout=10) == -signal.SIGKILL
    assert not remains(name)
    assert f"there is no lab '{name}'" in cli("down", "--name", name).err


@needs_lab
@pytest.mark.parametrize(("ending", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGKILL", -9)])
def test_no_process_of_a_run_outlives_its_command(lab, tmp_path, ending, code):
    os.mkfifo(tmp_path / "pipe")
    # Every live process holds the pipe: a command and another one in a separate session on each host.
    script = f"exec 3> {tmp_path}/pipe; setsid sh -c 'echo >&3; exec sleep 600' & echo >&3; wait"
    # Background processes of a shell ignore SIGINT, possibly including these tests.
    handle_sigint = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    command = [*COMMAND[:2], handle_sigint + COMMAND[2], *COMMAND[3:], "run", "--name", lab.name, "sh", "-c", script]
    with PipeReader(tmp_path / "pipe") as pipe, started(command) as running:
        assert pipe.read(8, within_s=30) == 8 * b"\n"

        running.send_signal(getattr(signal, ending))

        assert running.wait(timeout=10) == code
        assert pipe.closes(within_s=5)


@needs_lab
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_a_lab_is_removed_when_its_owner_ends(name, ending):
    source = (
        "import os, signal, subprocess, sys\n"
        "from ripieno.lab import Lab\n"
        f"with Lab(hosts=2, name={name!r}) as lab:\n"
        "    subprocess.Popen(lab.command(lab.hosts[0], ['sleep', '60']), stdout=subprocess.DEVNULL)\n"
        # The child holds the descriptors of the owner and outlives the owner.
        "    child = os.fork() or signal.pause()\n"
        "    print(child, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with started([sys.executable, "-c", source], stdin=subprocess.PIPE) as owner:
        child = int(line(owner))
        assert remains(name)
        owner.send_signal(ending)
        owner.wait(timeout=10)
        try:
            assert is_removed(name, except_for=[f"process {child}"])
        finally:
            os.kill(child, signal.SIGKILL)


@needs_lab
def test_a_lab_that_fails_halfway_leaves_nothing(monkeypatch, name):
    monkeypatch.setattr(wiring, "_shaper", lambda device, *_: f"qdisc add dev {device} root no_such_shaper")

    with pytest.raises(LabError, match="tc qdisc add dev up0 root no_such_shaper: "), Lab(hosts=2, name=name):
        pytest.fail("the lab was created")
    with pytest.raises(LabError, match="no_such_shaper"):
        Lab(hosts=2, name=name).up()

    assert not remains(name)


@needs_lab
def test_leftovers_of_a_killed_command_are_removed_by_the_next(monkeypatch, name):
    source = (
        "import os, signal\n"
        "from ripieno.lab import Lab, wiring\n"
        "wiring._port_shapers = lambda shape: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"Lab(hosts=2, name={name!r}).up()\n"
    )
    killed = [sys.executable, "-c", source]

    assert subprocess.run(killed).returncode == -signal.SIGKILL
    assert remains(name)
    with pytest.raises(LabError, match=f"is incomplete: ripieno lab down --name {name}"):
        Lab.named(name)
    with Lab(hosts=1, name=name) as lab:
        assert lab.run(["true"]) == 0
    assert not remains(name)

    assert subprocess.run(killed).returncode == -signal.SIGKILL
    # Keep the test away from labs of other users of this machine.
    monkeypatch.setattr(registry, "names", lambda: [name])
    with Lab(hosts=1, name=f"other{os.getpid()}"):
        assert not remains(name)


@needs_lab
def test_a_machine_without_network_namespaces_has_none_afterwards(name):
    # In a separate mount namespace /run is empty, without iproute2's files.
    clear = "umount --recursive --lazy /run/netns 2> /dev/null; mount -t tmpfs none /run"
    use = '"$@" up --hosts 2 && grep -q /run/netns /proc/self/mountinfo && "$@" run hostname && "$@" down'
    look = "echo left:; ls -A /run; grep -o /run/netns /proc/self/mountinfo"
    words = ["unshare", "--mount", "sh", "-c", f"{clear}; {use} && {look}", "sh", *COMMAND]

    done = subprocess.run(words, capture_output=True, text=True, timeout=250)

    assert done.stderr == ""
    assert "[h1] h1" in done.stdout
    assert done.stdout.endswith("left:\n"), done.stdout


@needs_lab
def test_the_lab_of_another_owner_is_not_removed(name):
    with Lab(hosts=1, name=name) as lab:
        assert registry.remove(name, owner_pid=1) == 0
        assert lab.run(["true"]) == 0


@needs_lab
def test_remains_without_a_record_are_removed(cli, name):
    subprocess.run(["ip", "netns", "add", f"{registry.prefix(name)}h0"], check=True)

    assert cli("down", "--name", name).out == f"{name}: down\n"

    assert not remains(name)


@needs_lab
def test_all_labs_except_those_in_use_are_removed(monkeypatch, cli, lab, name):
    Lab(hosts=1, name=name).up()
    monkeypatch.setattr(registry, "names", lambda: [lab.name, name])

    assert cli("down", "--all").out.splitlines() == [
        f"{lab.name}: not removed, because process {os.getpid()} is using it; --name {lab.name} takes it down",
        f"{name}: down",
    ]
    assert not remains(name) and remains(lab.name)
