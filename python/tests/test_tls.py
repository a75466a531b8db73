"""Encrypted connections: jobs of every kind use them, the traffic is unreadable, and both ends must enable them."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import ripieno as rp
from ripieno.cli import main
from ripieno.lab import Lab, kernel, missing_requirement
from ripieno.launch.encryption import TLS_VARIABLE
from ripieno.launch.engine import member_server, remote, survey
from ripieno.launch.process.channel import ConnectionClosed
from ripieno.launch.script import environment
from stand_in_engine import StandIn
from varied import exhaustively
from watching import EVENT_TIMEOUT_S

HOST = "127.0.0.1"
TOKEN = bytes(range(32))
# Several TLS records, the last one partial.
LARGE = 300_001

cannot_emulate = missing_requirement()
needs_lab = pytest.mark.skipif(cannot_emulate is not None, reason=cannot_emulate or "")


def total(comm, values):
    described = comm.broadcast(values if comm.rank == 0 else None)
    return float(comm.allreduce(described + comm.rank).sum()), comm.allgather(comm.rank)


def test_workers_of_this_machine_use_encryption_over_tcp():
    with rp.launch(workers=3, links="tcp", tls=True) as job:
        for size in (1, LARGE):
            assert job.run(total, np.ones(size)) == [(6.0 * size, [0, 1, 2])] * 3


def test_ranks_in_an_engine_and_their_launcher_use_encryption():
    with StandIn().launch(2, links="tcp", tls=True) as job:
        for size in (1, LARGE):
            assert job.run(total, np.ones(size)) == [(3.0 * size, [0, 1])] * 2
        assert [each.size for each in job.run(lambda comm: np.full(LARGE, comm.rank))] == [LARGE] * 2


def test_the_exception_of_a_rank_in_an_engine_returns_through_the_tunnel():
    def program(comm):
        comm.barrier()
        if comm.rank == 1:
            raise KeyError("mine")
        comm.barrier()

    with StandIn().launch(2, links="tcp", tls=True) as job:
        with pytest.raises(KeyError, match="mine"):
            job.run(program)
        assert job.run(lambda comm: comm.allreduce(1)) == [2, 2]


def test_tasks_of_a_survey_try_each_other_encrypted():
    sites, unreached = survey.take(StandIn(), 2, tls=True)
    assert (sorted(site.rank for site in sites), unreached) == ([0, 1], [])


@pytest.fixture
def listening() -> Iterator[member_server.MemberServer]:
    found = member_server.MemberServer(HOST, TOKEN, tls=True)
    yield found
    found.close()


def test_a_member_that_does_not_encrypt_is_refused_by_a_server_that_does(listening):
    with pytest.raises(ConnectionRefusedError, match=r"it encrypts connections like this one \(tls\)"):
        remote.connect(HOST, listening.port, TOKEN, EVENT_TIMEOUT_S)
    with pytest.raises(remote.NotAuthentic):
        remote.connect(HOST, listening.port, TOKEN[::-1], EVENT_TIMEOUT_S, tls=True)


def test_bytes_sent_before_a_tunnel_closes_arrive(listening):
    join = member_server.Join(0, "host", 1, "", {})
    words = np.arange(LARGE)
    channel = remote.connect(HOST, listening.port, TOKEN, EVENT_TIMEOUT_S, tls=True)
    channel.send("join", join)
    channel.send("words", words)

    closing = threading.Thread(target=channel.close)
    closing.start()

    assert select.select([listening], [], [], EVENT_TIMEOUT_S)[0]
    [(joined, received)] = listening.joined()
    kind, value = received.receive(EVENT_TIMEOUT_S)
    with pytest.raises(ConnectionClosed):
        received.receive(EVENT_TIMEOUT_S)
    received.close()
    closing.join()
    assert (joined, kind) == (join, "words")
    assert np.array_equal(value, words)


def ranks_of(tmp_path, source: str, *, tls: tuple[str, str], **variables: str) -> list[tuple[int, str, str]]:
    """Run two processes with a shared rendezvous directory, and return their exit codes and output."""
    rendezvous = tmp_path / "rendezvous"
    rendezvous.mkdir(exist_ok=True)
    inherited = {name: value for name, value in os.environ.items() if name not in environment.VARIABLES}
    common = {
        **inherited,
        "WORLD_SIZE": "2",
        "RIPIENO_TOKEN": TOKEN.hex(),
        "RIPIENO_RENDEZVOUS_TIMEOUT_S": "30",
        **variables,
    }
    where = {} if "MASTER_PORT" in variables else {"RIPIENO_DIRECTORY": str(rendezvous)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", textwrap.dedent(source)]
    ranks = [
        subprocess.Popen(command, env={**common, **where, "RANK": str(rank), TLS_VARIABLE: tls[rank]}, **pipes)
        for rank in range(2)
    ]
    text = [rank.communicate(timeout=250) for rank in ranks]
    return [(rank.returncode, *words) for rank, words in zip(ranks, text, strict=True)]


SUM = """
    import ripieno as rp

    print(rp.init(links="tcp").allreduce(1))
"""


@pytest.mark.parametrize(
    ("store", "tls"),
    [
        (True, ("1", "1")),
        (True, ("1", "0")),
        (False, ("0", "1")),
        *exhaustively((False, ("1", "1")), (False, ("1", "0")), (True, ("0", "1"))),
    ],
)
def test_ranks_of_a_launcher_connect_if_all_encrypt_or_none(tmp_path, store, tls):
    variables = {}
    if store:
        with socket.socket() as reserved:
            reserved.bind((HOST, 0))
            variables = {"MASTER_ADDR": HOST, "MASTER_PORT": str(reserved.getsockname()[1])}

    done = ranks_of(tmp_path, SUM, tls=tls, **variables)

    if tls == ("1", "1"):
        assert [(code, out) for code, out, _ in done] == [(0, "2\n")] * 2, done
    else:
        for code, _, described in done:
            assert code == 1
            assert "RendezvousError" in described and "encrypt" in described and "(tls" in described, described


def test_an_invalid_setting_of_encryption_is_reported(monkeypatch):
    monkeypatch.setenv(TLS_VARIABLE, "yes")
    with pytest.raises(rp.InputError, match="RIPIENO_TLS='yes': expected 1"):
        rp.launch(workers=1)
    with pytest.raises(rp.InputError, match="tls='yes': expected True, False or None"):
        rp.launch(workers=1, tls="yes")


MARK = b"no observer of the network reads this"
# Plain-text markers of rendezvous, authentication, links and control connections.
PLAIN = (MARK, b"RIPIENO\x01", b"identity", b"a failure with a text")

EXCHANGE_MARKS = f"""
import numpy as np
import ripieno as rp

comm = rp.init()
mark = np.frombuffer({MARK!r} * 1000, np.uint8)
assert comm.broadcast(mark if comm.rank == 0 else None).tobytes() == mark.tobytes()
assert comm.allgather({MARK!r}.decode()) == [{MARK!r}.decode()] * 2
comm.barrier()
if comm.rank == 1:
    raise ValueError("a failure with a text")
comm.barrier()
"""


@contextmanager
def captured(namespace: str) -> Iterator[list[bytes]]:
    """Capture all packets of a network namespace, available after the block."""
    packets: list[bytes] = []
    with kernel.inside(namespace):
        every = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    with every:
        every.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
        yield packets
        every.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                packets.append(every.recv(1 << 17))


@needs_lab
@pytest.mark.parametrize("option", [["--no-tls"], *exhaustively(["--tls"]), []])
def test_a_capture_of_encrypted_ranks_shows_no_plain_text(option, capfd):
    with Lab(racks=1, hosts=2, rate="1gbit") as lab:
        words = ["--name", lab.name, *option, sys.executable, "-c", EXCHANGE_MARKS]
        with captured(f"{lab._prefix}{lab.hosts[1].name}") as packets, pytest.raises(SystemExit) as end:
            main(["lab", "run", *words])

    assert end.value.code == 1, capfd.readouterr().err
    received = b"".join(packets)
    assert len(received) > 1000 * len(MARK), "the broadcast came by this host's network link"
    shown = [text for text in PLAIN if text in received]
    assert shown == (list(PLAIN) if option == ["--no-tls"] else [])
