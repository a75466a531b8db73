"""Jobs in an engine: the member server, its members and the launching process, independent of the engine."""

from __future__ import annotations

import dataclasses
import gc
import os
import resource
import select
import signal
import site
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from types import SimpleNamespace

import numpy as np
import pytest
import ripieno as rp
from ripieno.flight.trace import Trace
from ripieno.launch import member
from ripieno.launch.engine import member_server, remote
from ripieno.launch.engine.contract import EngineJob, _own_folders
from ripieno.launch.job import programs
from ripieno.launch.job.inline import single_rank
from ripieno.launch.job.programs import EventOptions, ProgramCall, RunRequest
from ripieno.launch.job.stand_ins import RankValue
from ripieno.launch.process import running
from ripieno.launch.process.channel import ConnectionClosed
from ripieno.wire import packing
from stand_in_engine import StandIn
from varied import exhaustively
from watching import (
    EVENT_TIMEOUT_S,
    PROMPT_S,
    SLACK_S,
    comes_true,
    comes_true_within,
    gone_within,
    is_prompt,
    open_descriptors,
    under_load,
)

TOKEN = bytes(range(32))
HOST = "127.0.0.1"


def total(comm, values):
    comm.cache["runs"] = comm.cache.get("runs", 0) + 1
    comm.emit({"event": "seen", "size": values.size})
    return comm.allreduce(values + comm.rank), comm.cache["runs"], values.flags.writeable


def test_the_same_ranks_run_several_programs():
    events = []
    with StandIn().launch(3, on_event=events.append) as job:
        for run, size in enumerate((10, 100_000, 7), 1):
            results = job.run(total, np.ones(size))
            for sums, runs, writable in results:
                assert np.array_equal(sums, np.full(size, 6.0))
                assert runs == run
                assert not writable
            assert sorted(event["rank"] for event in events[-3:]) == [0, 1, 2]
        large = job.run(lambda comm: np.full(1_000_000, comm.rank))
        assert [int(each.sum()) for each in large] == [0, 1_000_000, 2_000_000]


def test_ranks_import_modules_from_the_folders_of_this_process(monkeypatch):
    installed = [sysconfig.get_path("stdlib"), *site.getsitepackages(), site.getusersitepackages()]
    own = [f"{sys.prefix}/projects", f"{sys.prefix}-projects"]
    monkeypatch.setattr(sys, "path", [*installed, *own])

    assert _own_folders() == tuple(own)


def test_the_time_limit_of_calls_excludes_the_relay_of_a_program(monkeypatch):
    seen = []
    with single_rank(threads=1) as comm:
        comm._call_timeout_s = 5.0
        monkeypatch.setattr(comm, "broadcast", lambda out: seen.append(comm._call_timeout_s))
        message = ("relay", packing.blob(packing.pack_for_process("program")))
        messages = member._Messages(SimpleNamespace(send=None), SimpleNamespace(comm=comm), None, None)
        messages._received.put(message)
        kind, load = messages.receive_packed()
        assert (kind, load()) == ("run", "program")
        assert seen == [float("inf")] and comm._call_timeout_s == 5.0


def test_the_process_runs_a_program_from_its_unpickling_on():
    seen = []

    def receive_packed():
        seen.append(running.of_this_process())
        return "close", lambda: seen.append(running.of_this_process())

    with single_rank(threads=1) as comm:
        assert not programs._serve_one(SimpleNamespace(receive_packed=receive_packed), SimpleNamespace(comm=comm))
        assert seen == [None, comm]


def test_a_world_of_one_rank():
    with StandIn().launch(1) as job:
        assert job.run(lambda comm, rows: (comm.world_size, rows.sum()), np.ones(1 << 18)) == [(1, 1 << 18)]


@pytest.mark.parametrize(
    ("culprit", "others"),
    [
        (1, "pass"),
        (2, "comm.recv(1 if comm.rank != 1 else 2)"),
        *exhaustively(
            (0, "comm.barrier()"),
            (1, "comm.barrier()"),
            (2, "comm.barrier()"),
            (0, "comm.recv(1 if comm.rank != 1 else 2)"),
            (1, "comm.recv(1 if comm.rank != 1 else 2)"),
            (0, "pass"),
            (2, "pass"),
        ),
    ],
)
def test_the_caller_gets_the_culprits_own_exception(culprit, others):
    def program(comm):
        comm.barrier()
        if comm.rank == culprit:
            raise KeyError("mine")
        exec(others)

    engine = StandIn()
    with engine.launch(3) as job:
        with pytest.raises(KeyError, match="mine") as caught:
            started = time.monotonic()
            job.run(program)
        assert is_prompt(time.monotonic() - started)
        assert job.run(lambda comm: comm.allreduce(1)) == [3] * 3
    assert caught.value.__cause__.rank == culprit
    assert caught.value.__cause__.host == socket.gethostname()
    assert not engine.run.processes
    with pytest.raises(rp.CommunicatorClosed, match="this job is over: it was closed; launch another one"):
        job.run(program)


@pytest.mark.parametrize(("culprit", "end"), [(0, "os.kill(os.getpid(), signal.SIGKILL)"), (2, "os._exit(3)")])
def test_a_rank_that_dies_is_named(culprit, end):
    def program(comm):
        comm.barrier()
        if comm.rank == culprit:
            exec(end, {"os": os, "signal": signal})
        comm.barrier()

    with StandIn().launch(3) as job, pytest.raises(rp.RankFailed, match="closed the connection") as caught:
        started = time.monotonic()
        job.run(program)
    assert is_prompt(time.monotonic() - started)
    assert caught.value.rank == culprit


def test_the_engines_reason_of_an_end_is_reported():
    engine = StandIn()

    def program(comm):
        comm.emit({"event": "ready"})
        comm.recv((comm.rank + 1) % 2)

    def fail_rank_1(event):
        engine.run.failed(1, "out of memory")
        engine.run.processes[1].kill()

    with (
        engine.launch(2, on_event=fail_rank_1) as job,
        pytest.raises(rp.RankFailed, match="stand-in reports: out of memory"),
    ):
        job.run(program)


@pytest.mark.parametrize("ended", [[0, 2], [0]], ids=["process ended", "host silent"])
def test_a_rank_named_by_the_engine_overrides_the_first_closed_connection(ended):
    engine = StandIn()

    def end(event):
        for rank in ended:
            engine.run.processes[rank].kill()
            engine.run.processes[rank].wait()
        engine.run.failed(2, "its node is lost")

    def program(comm):
        if comm.rank == 1:
            comm.emit({"event": "ready"})
        threading.Event().wait()

    with engine.launch(3, on_event=end) as job, pytest.raises(rp.RankFailed, match="its node is lost") as caught:
        engine.run.grace_s = 0.1
        job.run(program)
    assert caught.value.rank == 2


@pytest.mark.parametrize("workers", [3, *exhaustively(2)])
def test_a_job_closed_by_another_thread_at_the_end_of_a_run_leaves_no_process(workers):
    engine = StandIn()

    class SlowJob(EngineJob):
        def _run(self, *work):
            result = super()._run(*work)
            done.set()
            assert closing.wait(EVENT_TIMEOUT_S)
            return result

    done, closing = threading.Event(), threading.Event()
    job = SlowJob(engine, workers, threads=1, on_event=None, trace=None)
    pids = [process.pid for process in engine.run.processes]

    def close():
        done.wait(EVENT_TIMEOUT_S)
        closing.set()
        job.close()

    thread = threading.Thread(target=close)
    thread.start()
    assert job.run(lambda comm: comm.rank) == list(range(workers))
    thread.join()
    assert gone_within(SLACK_S, pids)


def test_no_socket_listens_beyond_loopback(world):
    def listening_at(comm):
        own = {os.readlink(each.path) for each in os.scandir("/proc/self/fd")}
        found = []
        for table, loopback in (("tcp", "0100007F"), ("tcp6", "0" * 24 + "01000000")):
            with open(f"/proc/net/{table}") as lines:
                rows = [line.split() for line in list(lines)[1:]]
            found += [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own]
            found = [each for each in found if not each.startswith(loopback)]
        return found

    assert world(2).run(listening_at) == [[], []]
    with StandIn().launch(2) as job:
        assert job.run(listening_at) == [[], []]


class Hanging(StandIn):
    """An engine whose rank 1 hangs immediately after joining."""

    def start(self, workers, invitation):
        run = super().start(workers, invitation)
        self.hanging = run.processes[1]
        return run

    def job(self, *args, **options):
        return HangingJob(self, *args, **options)


class HangingJob(EngineJob):
    def _accept_members(self, *args):
        members = super()._accept_members(*args)
        self.engine.hanging.send_signal(signal.SIGSTOP)
        self.engine.run.grace_s = 0.1
        return members


def test_a_rank_that_hangs_before_all_have_connected_is_reported():
    # Long enough for all to join on a busy machine; the timeout restarts once they have.
    with pytest.raises(rp.RipienoError, match=r"not joined the others within 8 s: .*1 on|rank 1"):
        Hanging().launch(2, rendezvous_timeout_s=8)


def test_more_tasks_than_ranks_are_reported():
    class OneTooMany(StandIn):
        def start(self, workers, invitation):
            run = super().start(0, invitation)
            run.add(invitation, workers)
            return run

    with pytest.raises(rp.EngineError, match=r"rank 2 on .* has joined a job of 2 ranks"):
        OneTooMany().launch(2)


def test_an_address_of_another_machine_is_reported():
    class WrongAddress(StandIn):
        def host(self):
            return "192.0.2.1"

    with pytest.raises(rp.EngineError, match=r"reach this process at 192.0.2.1, where it cannot listen"):
        WrongAddress().launch(2)


def test_ranks_that_an_engine_ends_without_a_report_end_the_job():
    engine = StandIn()
    reports = [lambda event: engine.run.failed(None, "cancelled by the administrator")]
    wait = "comm.emit({'event': 'ready'}); import threading; threading.Event().wait()"

    def program(comm):
        exec(wait, {"comm": comm})

    before = engine.run
    with engine.launch(2, on_event=lambda event: reports[0](event)) as job:
        processes = list(engine.run.processes)
        for process in processes:
            # The ranks will not receive the request to leave.
            process.wait = lambda timeout=None, wait=process.wait: wait(timeout and 0.1)
        with pytest.raises(rp.EngineError, match="stand-in has ended the ranks: cancelled by the administrator"):
            job.run(program)
    assert engine.run is not before
    assert gone_within(SLACK_S, [process.pid for process in processes])


def test_ranks_that_never_join_are_reported():
    with pytest.raises(rp.EngineError, match=r"[0-3] of 5 ranks have joined within 2 s, missing are .*3, 4: check"):
        StandIn(absent=2).launch(5, rendezvous_timeout_s=2)


def test_programs_and_results_that_cannot_be_pickled_are_reported():
    with StandIn().launch(2) as job:
        with pytest.raises(rp.SerializationError, match="cannot be sent to workers"):
            job.run(total, threading.Lock())
        # No program had started.
        assert job.run(lambda comm: comm.rank) == [0, 1]
        with pytest.raises(rp.SerializationError, match=r"the result of rank \d, a lock, cannot be sent"):
            job.run(lambda comm: threading.Lock())


def test_jobs_leave_no_resources_behind():
    gc.collect()
    before, threads = open_descriptors(), threading.active_count()
    for fails in (False, True):
        engine = StandIn()
        with engine.launch(2) as job:
            pids = [process.pid for process in engine.run.processes]
            if fails:
                with pytest.raises(ZeroDivisionError):
                    job.run(lambda comm: 1 // comm.rank)
            else:
                job.run(lambda comm: comm.rank)
        assert gone_within(0, pids)
        del job
    gc.collect()
    assert comes_true(lambda: threading.active_count() == threads, SLACK_S)
    assert open_descriptors() == before


UNFINISHED = """
import sys, threading
sys.path[:0] = {path!r}
from stand_in_engine import StandIn
engine = StandIn()
job = engine.launch(2, on_event=lambda event: print(*[each.pid for each in engine.run.processes], flush=True))
def program(comm):
    if comm.rank == 0:
        comm.emit({{"event": "ready"}})
    comm.recv((comm.rank + 1) % 2)
job.run(program)
"""


def test_ranks_leave_when_the_launching_process_is_killed():
    script = UNFINISHED.format(path=sys.path)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as launcher:
        pids = [int(pid) for pid in launcher.stdout.readline().split()]
        assert len(pids) == 2
        launcher.kill()
    assert gone_within(PROMPT_S + SLACK_S, pids)


# The member server


@pytest.fixture
def listening():
    found = member_server.MemberServer(HOST, TOKEN)
    yield found
    found.close()


def invitation_to(listening, world_size=2, **changes):
    return dataclasses.replace(member_server.Invitation(HOST, listening.port, TOKEN, world_size, 1), **changes)


def members_of(listening, within_s=EVENT_TIMEOUT_S):
    """Return the members that join before the timeout."""
    watch = select.poll()
    watch.register(listening.fileno(), select.POLLIN)
    return list(listening.joined()) if watch.poll(within_s * 1000) else []


def test_unauthenticated_peers_are_refused_and_delay_no_member(listening):
    silent = [socket.create_connection((HOST, listening.port)) for _ in range(8)]
    with pytest.raises(remote.NotAuthentic):
        remote.connect(HOST, listening.port, TOKEN[::-1], EVENT_TIMEOUT_S)
    channel = remote.connect(HOST, listening.port, TOKEN, EVENT_TIMEOUT_S)
    channel.send("join", member_server.Join(0, "here", 1, "", member_server.versions()))
    [(join, _)] = members_of(listening)
    assert (join.rank, join.host) == (0, "here")
    for each in (*silent, channel):
        each.close()


def test_a_disconnected_launcher_is_noticed_even_with_unacknowledged_data():
    # Keepalive probes are not enough: the system sends none while data is unacknowledged.
    listening = member_server.MemberServer(HOST, TOKEN, heartbeat_s=2.0)
    channel = remote.connect(HOST, listening.port, TOKEN, EVENT_TIMEOUT_S, heartbeat_s=2.0)
    channel.send("join", member_server.Join(0, "here", 1, "", member_server.versions()))
    [(_, theirs)] = members_of(listening)
    for end in (channel, theirs):
        with socket.socket(fileno=os.dup(end.fileno())) as own:
            assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 6000
            assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 2
        end.close()
    listening.close()


@contextmanager
def descriptors(limit):
    """Limit the descriptors of this process temporarily."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_silent_unauthenticated_peers_are_evicted_for_members(listening):
    # An eighth of the descriptors.
    with descriptors(8 * 20), ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection((HOST, listening.port))) for _ in range(60)]
        join_server(listening)
        gone = [each for each in silent if select.select([each], [], [], 0)[0]]
        assert 40 <= len(gone) < 60, "only as many of the oldest as needed are evicted"


def test_many_connections_from_one_address_do_not_displace_another_address(listening):
    with descriptors(8 * 20), ExitStack() as open_ends:
        other = socket.create_connection((HOST, listening.port), source_address=("127.0.0.2", 0))
        same_address = [socket.create_connection((HOST, listening.port)) for _ in range(60)]
        for each in (other, *same_address):
            open_ends.enter_context(each)
        join_server(listening)
        gone = [each for each in same_address if select.select([each], [], [], 0)[0]]
        assert len(gone) >= 40
        assert not select.select([other], [], [], 0)[0]


#: Many silent clients, and then a member. The clients' descriptors do not belong to the server.
SILENT_CLIENTS = """
import resource, socket, sys
from ripieno.launch.engine import member_server, remote
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
where, token = (sys.argv[1], int(sys.argv[2])), bytes.fromhex(sys.argv[3])
silent = [socket.create_connection(where) for _ in range(700)]
channel = remote.connect(*where, token, 30.0)
channel.send("join", member_server.Join(0, "there", 1, "", member_server.versions()))
channel.receive()
"""


def test_unauthenticated_peers_cannot_use_up_the_descriptors_for_members(listening):
    with descriptors(max(map(int, os.listdir("/proc/self/fd"))) + 40):
        clients = subprocess.Popen([sys.executable, "-c", SILENT_CLIENTS, HOST, str(listening.port), TOKEN.hex()])
        [(join, channel)] = members_of(listening, 30.0)
    assert join.host == "there" and listening.shortage is None
    channel.send("joined")
    channel.close()
    assert clients.wait(30.0) == 0


def test_a_shortage_of_the_launching_process_is_reported():
    with (
        descriptors(max(map(int, os.listdir("/proc/self/fd"))) + 40),
        closing(member_server.MemberServer(HOST, TOKEN)) as listening,
    ):
        # Reading the load needs a descriptor.
        timeout_s = under_load(PROMPT_S)
        with ExitStack() as taken:

            def is_short():
                # Other threads of this process may release descriptors meanwhile.
                with suppress(OSError):
                    while True:
                        taken.enter_context(open(os.devnull))
                return listening.shortage is not None

            waiting = [taken.enter_context(socket.socket()) for _ in range(16)]
            assert not is_short()
            for client in waiting:
                client.connect((HOST, listening.port))
            assert comes_true_within(timeout_s, is_short)
            assert "raise it (ulimit -n)" in listening.shortage
        join_server(listening)


def test_an_unauthenticated_peer_starts_no_thread(listening):
    threads = native_threads()
    with ExitStack() as stack:
        for first_bytes in (b"", b"RIPIENO\x02", b"GET / HTTP/1.1\r\n\r\n"):
            for _ in range(100):
                peer = stack.enter_context(socket.create_connection((HOST, listening.port)))
                with suppress(ConnectionError):
                    peer.sendall(first_bytes)
        join_server(listening)
        assert comes_true(lambda: native_threads() <= threads, PROMPT_S)


def native_threads():
    return len(os.listdir("/proc/self/task"))


def join_server(listening):
    """Join a member server as a member."""
    channel = remote.connect(HOST, listening.port, TOKEN, EVENT_TIMEOUT_S)
    channel.send("join", member_server.Join(0, "here", 1, "", member_server.versions()))
    [(join, _)] = members_of(listening)
    assert join.host == "here"
    channel.close()


def test_unauthenticated_peers_do_not_outlive_the_server(listening):
    # The connection is authenticated, but has not identified itself.
    channel = remote.connect(HOST, listening.port, TOKEN, EVENT_TIMEOUT_S)
    assert comes_true(lambda: _member_threads() > 1, PROMPT_S)
    with socket.create_connection((HOST, listening.port)) as peer:
        listening.close()
        peer.settimeout(EVENT_TIMEOUT_S)
        # It may not have been accepted yet.
        with suppress(ConnectionResetError):
            assert peer.recv(100) == b""
    with pytest.raises(ConnectionClosed):
        channel.receive(EVENT_TIMEOUT_S)
    channel.close()
    assert comes_true(lambda: _member_threads() == 0, PROMPT_S)


def _member_threads():
    """Return the number of threads that receive or identify members."""
    return sum(each.name == "ripieno-members" for each in threading.enumerate())


def test_a_member_waits_while_the_launching_process_is_busy(monkeypatch):
    monkeypatch.setattr(remote, "MESSAGE_S", 0.2)
    mine, theirs = socket.socketpair()
    member_end, server_end = remote.RemoteChannel(mine, None), remote.RemoteChannel(theirs, 0.2)
    result = np.arange(4_000_000)
    sending = threading.Thread(target=member_end.send, args=("result", result))
    sending.start()
    # It has started, and its timeout is over.
    sending.join(0.5)
    kind, received = server_end.receive()
    sending.join()
    assert kind == "result"
    assert np.array_equal(received, result)
    with pytest.raises(ConnectionClosed, match=r"made no progress for 0.2 s"):
        server_end.send("run", result)
    member_end.close()
    server_end.close()


def test_a_server_without_the_token_is_detected(listening):
    with socket.create_server((HOST, 0)) as impostor:
        port = impostor.getsockname()[1]

        def impersonate():
            end, _ = impostor.accept()
            with end:
                end.recv(56 + 72, socket.MSG_WAITALL)
                end.sendall(bytes(32))
                end.recv(32, socket.MSG_WAITALL)
                end.sendall(bytes(40))

        thread = threading.Thread(target=impersonate)
        thread.start()
        with pytest.raises(remote.NotAuthentic, match="does not know this job's token"):
            remote.connect(HOST, port, TOKEN, EVENT_TIMEOUT_S)
        thread.join()


def test_a_late_task_gets_an_error(listening):
    listening.close()
    with pytest.raises(rp.RendezvousError, match="the job is over, or has begun without this attempt of the task"):
        member.serve(invitation_to(listening), 0)


def test_a_member_of_another_version_is_refused(monkeypatch):
    monkeypatch.setattr(
        sys.modules["ripieno.launch.engine.contract"],
        "versions",
        lambda: {**member_server.versions(), "ripieno": "9.9"},
    )
    message = (
        r"rank \d on .* has ripieno .*, the process that launches it has ripieno 9.9: install the same version there"
    )
    with pytest.raises(rp.EngineError, match=message):
        StandIn().launch(2)


class Restarting(StandIn):
    """An engine that restarts ranks: in the first attempt only rank 0 joins."""

    def start(self, workers, invitation):
        run = super().start(0, invitation)
        run.add(invitation, 0, attempt="first")
        for rank in range(workers):
            run.add(invitation, rank, attempt="second")
        return run


def test_attempts_never_mix():
    engine = Restarting()
    with engine.launch(3) as job:
        pids = job.run(lambda comm: os.getpid())
        assert pids == [process.pid for process in engine.run.processes[1:]]
    first, *second = engine.run.logs
    assert "hung up" in first or "closed" in first
    assert not any(second)


def test_ranks_may_connect_by_the_engine_before_they_join(listening):
    """As in Spark, the engine exchanges the strings of all ranks, and rank 0's string names the attempt."""
    gathered: dict[int, str] = {}
    complete = threading.Barrier(2)
    errors = []

    def task(rank):
        def exchange(text):
            gathered[rank] = text
            complete.wait(EVENT_TIMEOUT_S)
            return [gathered[0], gathered[1]]

        try:
            member.serve(invitation_to(listening), rank, exchange=exchange, local={"mine": rank + 10})
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=task, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    joined = []
    while len(joined) < 2:
        new = members_of(listening)
        assert new
        joined += new
    joined.sort(key=lambda each: each[0].rank)
    assert joined[0][0].attempt == joined[1][0].attempt != ""
    for _, channel in joined:
        channel.send("welcome")
        assert [channel.receive(EVENT_TIMEOUT_S)[0] for _ in range(2)] == ["query-address", "ready"]
        call = ProgramCall(lambda comm, mine: (mine, comm.allreduce(1)), (RankValue("mine"),))
        channel.send("run", RunRequest(call, EventOptions(False), False, None))
    assert [channel.receive(EVENT_TIMEOUT_S) for _, channel in joined] == [("result", (10, 2)), ("result", (11, 2))]
    for _, channel in joined:
        channel.send("close")
    for thread in threads:
        thread.join()
    for _, channel in joined:
        channel.close()
    assert not errors


def test_traces_and_replicas_are_for_local_workers(tmp_path):
    for options, message in (({"trace": Trace(tmp_path / "trace.json")}, "trace="), ({"replicas": 2}, "replicas=2")):
        with pytest.raises(rp.InputError, match=message):
            EngineJob(StandIn(), 2, **{"threads": 1, "on_event": None, "trace": None, **options})


def test_engines_are_checked():
    with pytest.raises(rp.InputError, match="engine='hadoop': expected one of local, spark, dask, ray"):
        rp.launch(engine="hadoop")
    with pytest.raises(rp.InputError, match="prefix_output=True"):
        rp.launch(engine="spark", prefix_output=True)


def test_a_launch_on_an_engine_without_slots_requests_one_rank():
    class Full(StandIn):
        def slots(self):
            return 0

        def start(self, workers, invitation):
            raise rp.TooFewSlots(self.NAME, workers, 0, 0, "add some")

    with pytest.raises(rp.TooFewSlots, match="too few free slots for 1 ranks: 0 free, 0 in all; add some"):
        rp.launch(engine=Full())


# Values that ranks keep


@pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
def test_a_broadcast_value_stays_until_it_is_released(world, workers):
    job = world(workers)
    table = np.arange(200_000)
    with job.broadcast({"table": table}) as value, job.broadcast("other") as other:
        for row in range(3):
            sums = job.run(lambda comm, row, *kept: kept[0].value["table"][row] + len(kept[1].value), row, value, other)
            assert sums == [row + 5] * workers
        assert value.value["table"] is table
    with pytest.raises(rp.RipienoError, match="was released"):
        job.run(lambda comm, value: value.value, value)
    value.release()
    assert not job._live_broadcasts


def test_a_broadcast_value_of_another_job_is_reported(world):
    wrong = pytest.raises(rp.SerializationError, match="a broadcast value of another job")
    with world(2).broadcast("mine") as value, rp.launch(workers=2, threads=1) as other, wrong:
        other.run(lambda comm, value: value.value, value)


def test_replacement_ranks_have_the_broadcast_values():
    with StandIn().launch(2) as job, job.broadcast(np.arange(100_000)) as value, job.broadcast("other"):
        before = job.run(lambda comm: os.getpid())
        job._restart_members()
        assert job.run(lambda comm, kept: kept.value[7], value) == [7, 7]
        assert not set(before) & set(job.run(lambda comm: os.getpid()))


def test_a_broadcast_value_reaches_the_ranks_of_an_engine_once():
    table = np.arange(200_000)
    with StandIn().launch(3) as job, job.broadcast(table) as value:

        def program(comm, kept):
            return comm.stats()["broadcast"]["calls"] if "broadcast" in comm.stats() else 0, kept.value[7]

        first, second = job.run(program, value), job.run(program, value)
        assert first == second
        assert [seven for _, seven in first] == [7, 7, 7]
