"""The flight recorder: contents of errors, files and traces, and the ranks reported as late."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import ripieno as rp
from ripieno import flight
from ripieno.errors import InputError
from ripieno.flight.clocks import offsets
from ripieno.flight.trace import Trace, chrome_trace, read, traced, write
from ripieno.flight.waiting import Waiting

FIELDS = {
    "number", "communicator", "sequence", "collective", "algorithm", "dtype", "op", "bytes", "peer_count", "start_s",
    "end_s", "waiting_s", "moving_s", "waited_for", "outcome", "text",
}  # fmt: skip


def ripieno(*arguments: object, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ripieno.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)


def slices(trace: dict, name: str | None = None) -> list[dict]:
    found = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    return [event for event in found if name is None or event["name"] == name]


def record(sequence=0, start_s=0.0, end_s=1.0, collective="barrier", **changes):
    base = dict.fromkeys(FIELDS)
    base |= {"number": sequence, "communicator": 0, "sequence": sequence, "collective": collective, "bytes": 1}
    base |= {"algorithm": "dissemination", "outcome": "done", "waiting_s": 0.0, "moving_s": end_s - start_s}
    return base | {"start_s": start_s, "end_s": end_s} | changes


def dump(rank, records, *, clock="a", host="h", waits=()):
    whose = {"job": "job", "rank": rank, "world_size": 2, "host": host, "clock": clock}
    return {**whose, "records": list(records), "waits": list(waits)}


# Records


def remember(comm):
    comm.allreduce(np.ones(5000))
    comm.broadcast(None, out=np.ones(3, np.float32))
    return comm.flight(2), comm.flight(1)


def test_every_collective_leaves_a_record(world):
    for kept, latest in world(2).run(remember):
        allreduce, broadcast = kept
        assert set(allreduce) == FIELDS
        assert (allreduce["collective"], allreduce["op"], allreduce["dtype"]) == ("allreduce", "sum", "float64")
        assert (allreduce["bytes"], allreduce["peer_count"], allreduce["outcome"]) == (40_000, 1, "done")
        assert broadcast["bytes"] == 12 and latest == [broadcast]
        assert broadcast["sequence"] == allreduce["sequence"] + 1
        took_s = allreduce["end_s"] - allreduce["start_s"]
        assert took_s == pytest.approx(allreduce["waiting_s"] + allreduce["moving_s"], abs=1e-6)


# Errors


def fail_one_after_another(comm):
    comm.allreduce(np.ones(3))
    if comm.rank == 1:
        raise ValueError("no more")
    try:
        comm.allreduce(np.ones(3))
    except rp.RankFailed as error:
        carried, notes = error.flight, error.__notes__
        assert carried[-1]["outcome"] == "failed" and carried[-1]["waited_for"] in (1, None)
        assert notes[-1] == f"rank {comm.rank}: {carried[-1]['text']}"
        assert notes[-1].startswith(f"rank {comm.rank}: in allreduce #1 (")
        assert str(error).startswith("rank 1 on ") and "allreduce #1" not in str(error).partition("\n")[0]
        raise


def test_an_error_carries_the_records_of_its_rank_and_the_caller_gets_all():
    with rp.launch(workers=2, threads=1) as job, pytest.raises(ValueError, match="no more") as raised:
        job.run(fail_one_after_another)
    text = "\n".join(raised.value.__notes__)
    assert "rank 1: allreduce #0 (" in text and "rank 0: in allreduce #1 (" in text


def fail_in_flight(comm):
    handle = comm.allreduce_async(np.ones(3 + comm.rank))
    with pytest.raises(rp.CollectiveMismatch) as raised:
        handle.wait()
    error = raised.value
    assert error.flight[-1]["collective"] == "allreduce" and error.flight[-1]["outcome"] == "failed"
    described = list(error.__notes__)
    assert described[-1] == f"rank {comm.rank}: {error.flight[-1]['text']}"
    with pytest.raises(rp.CollectiveMismatch) as again:
        handle.wait()
    assert again.value.__notes__ == described, "once is enough"
    raise error


def test_an_error_of_a_handle_carries_the_records_too():
    with rp.launch(workers=2, threads=1) as job, pytest.raises(rp.CollectiveMismatch) as raised:
        job.run(fail_in_flight)
    assert len({note.partition(":")[0] for note in raised.value.__notes__}) == 2


def fail_beside_a_call_that_waits(comm, error_file):
    if comm.rank == 1:
        comm.allgather_async(["an object"])
        raise ValueError("no more")
    try:
        comm.recv(1)
    except rp.RipienoError as error:
        error_file.write_text(type(error).__name__)
        raise


def test_a_failing_rank_notifies_the_others_before_it_collects_its_records(tmp_path):
    # A query waits for the calls in flight. This call would only end when both ranks are notified of the deadlock.
    with rp.launch(workers=2, threads=1) as job, pytest.raises(ValueError, match="no more") as raised:
        job.run(fail_beside_a_call_that_waits, tmp_path / "error_file")
    assert (tmp_path / "error_file").read_text() == "RankFailed"
    assert any(note.startswith("rank 1: ") for note in raised.value.__notes__)


def test_wrong_arguments_leave_no_record_and_carry_none():
    with rp.launch(workers=1) as job:
        before = job.run(lambda comm: len(comm.flight()))
        with pytest.raises(InputError) as raised:
            job.run(lambda comm: comm.allreduce(np.ones(3), algorithm="unknown"))
        assert not hasattr(raised.value, "flight")
    assert before == [0]


# Files and traces


def test_a_trace_of_a_script_has_a_track_per_rank_with_waits_inside_collectives(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np, ripieno as rp\n"
        "comm = rp.init()\n"
        "for _ in range(5):\n"
        "    comm.allreduce(np.ones(1000))\n"
        "if comm.rank == 2:\n"
        "    comm.recv(0)\n"
        "if comm.rank == 0:\n"
        "    comm.send('go on', 2)\n"
        "comm.barrier()\n"
    )
    done = ripieno("run", "-n", 3, "--trace", tmp_path / "out.json", script)
    assert done.returncode == 0, done.stderr

    trace = json.loads((tmp_path / "out.json").read_text())
    names = {event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"}
    assert names == {"rank 0", "rank 1", "rank 2"}
    for rank in range(3):
        of_rank = [event for event in slices(trace) if event["tid"] == rank]
        outer = [event for event in of_rank if not event["name"].startswith("waiting")]
        assert [event["name"] for event in outer if event["name"] == "allreduce"] == ["allreduce"] * 5
        # In sequence, and each wait inside its collective.
        assert all(a["ts"] + a["dur"] <= b["ts"] for a, b in pairwise(outer))
        for wait in (event for event in of_rank if event not in outer):
            inside = [a for a in outer if a["ts"] <= wait["ts"] and wait["ts"] + wait["dur"] <= a["ts"] + a["dur"]]
            assert len(inside) == 1
    # No rank leaves before the last has arrived, as one clock for all shows.
    for sequence in range(5):
        of_all_ranks = [event for event in slices(trace, "allreduce") if event["args"]["sequence"] == sequence]
        assert len(of_all_ranks) == 3
        assert max(event["ts"] for event in of_all_ranks) <= min(event["ts"] + event["dur"] for event in of_all_ranks)


def test_a_job_that_fails_leaves_its_trace_too(tmp_path):
    path = tmp_path / "out.json"
    with pytest.raises(ValueError, match="no more"), rp.launch(workers=2, threads=1, trace=path) as job:
        job.run(fail_one_after_another)
    collectives = slices(json.loads(path.read_text()), "allreduce")
    outcomes = {event["args"]["outcome"] for event in collectives}
    assert outcomes == {"done", "failed"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.json"]


def test_a_trace_that_is_lost_does_not_hide_why_the_program_failed(tmp_path):
    def fail(comm=None):
        (tmp_path / "removed").rmdir()
        raise ValueError("no more")

    path = tmp_path / "removed" / "out.json"
    (tmp_path / "removed").mkdir()
    lost, failed = pytest.warns(UserWarning, match="is lost"), pytest.raises(ValueError, match="no more")
    with lost, failed, rp.launch(workers=1, trace=path) as job:
        job.run(fail)
    (tmp_path / "removed").mkdir()
    lost, failed = pytest.warns(UserWarning, match="is lost"), pytest.raises(ValueError, match="no more")
    with lost, failed, rp.launch(workers=1, trace=path) as job:
        job.run(lambda comm: comm.barrier())
        fail()
    (tmp_path / "removed").mkdir()
    with pytest.warns(UserWarning, match="is lost"), pytest.raises(ValueError, match="no more"), traced(path):
        with rp.launch(workers=1) as job:
            job.run(lambda comm: comm.barrier())
        fail()


def test_a_lost_trace_keeps_the_result_of_the_program(tmp_path):
    (tmp_path / "removed").mkdir()
    lost = pytest.warns(UserWarning, match="out.json is lost: .*; the result is kept")
    with lost, rp.launch(workers=1, trace=tmp_path / "removed" / "out.json") as job:
        found = job.run(lambda comm: comm.allreduce(2.0))
        (tmp_path / "removed").rmdir()
    assert found == [2.0]


def test_ranks_write_files_to_the_folder_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv(flight.VARIABLE, str(tmp_path / "new" / "folder"))
    with rp.launch(workers=2, threads=1) as job:
        job.run(lambda comm: comm.allreduce(comm.rank))
    done = ripieno("trace", tmp_path / "new" / "folder", "--out", tmp_path / "out.json")
    assert done.returncode == 0, done.stderr
    assert {event["tid"] for event in slices(json.loads((tmp_path / "out.json").read_text()))} == {0, 1}
    assert [len(each["records"]) for each in read([tmp_path / "new" / "folder"])] == [2, 2]


def test_a_trace_that_cannot_be_written_is_reported_before_any_work(tmp_path):
    with pytest.raises(InputError, match="not a folder"):
        rp.launch(workers=2, trace=tmp_path / "nowhere" / "out.json")
    with pytest.raises(InputError, match="is a folder"):
        Trace(tmp_path)
    with pytest.raises(InputError, match=flight.VARIABLE):
        read([tmp_path])


def test_concurrent_collectives_have_separate_tracks(tmp_path):
    records = [record(0, 0.0, 5.0), record(1, 1.0, 2.0), record(2, 3.0, 4.0), record(3, 5.0, 6.0)]
    write([dump(0, records, waits=[(1, 7, 2, 1.25, 1.5)])], tmp_path / "out.json")

    trace = json.loads((tmp_path / "out.json").read_text())
    tracks = {event["args"]["sequence"]: event["tid"] for event in slices(trace, "barrier")}
    assert tracks == {0: 0, 1: 2, 2: 2, 3: 0}
    (wait,) = slices(trace, "waiting for rank 7 and 1 more")
    assert (wait["tid"], wait["ts"], wait["dur"]) == (2, 1.25e6, 0.25e6)


def test_calls_without_times_are_not_in_a_trace():
    trace = chrome_trace([dump(0, [record(0) | {"start_s": None, "end_s": None}, record(1, 2.0, 3.0)])])
    assert [event["args"]["sequence"] for event in slices(trace)] == [1]


# Clocks


def test_clocks_of_hosts_are_aligned_within_the_error():
    truth_s, clocks = 100.0, {"a": 0.0, "b": 100.0}
    generator = np.random.default_rng(3)
    records = {"a": [], "b": []}
    for sequence in range(50):
        starts = {clock: sequence + generator.uniform(0, 0.1) for clock in clocks}
        for clock, offset_s in clocks.items():
            end = max(starts.values()) + generator.uniform(1e-3, 0.1)
            records[clock].append(record(sequence, starts[clock] + offset_s, end + offset_s))
    files = [dump(0, records["a"]), dump(1, records["b"], clock="b", host="g")]

    found = offsets(files)
    assert found["a"].seconds == found["a"].error_s == 0
    assert found["b"].error_s < 0.05 and abs(found["b"].seconds - truth_s) <= found["b"].error_s
    assert {event["pid"] for event in slices(chrome_trace(files))} == {0, 1}
    assert max(event["ts"] for event in slices(chrome_trace(files))) < 51e6


def test_clocks_of_ranks_without_a_common_call_are_not_changed():
    apart = [dump(0, [record(0)]), dump(1, [record(1, 7.0, 8.0)], clock="b")]
    assert offsets(apart)["b"].error_s is None and offsets(apart)["b"].seconds == 0


#: Causes of waits


def delay_rank_2(comm):
    """Rank 2 computes while the others wait for it."""
    comm.barrier()
    start = comm.stats()["seconds_waited_for"]
    if comm.rank == 2:
        np.linalg.eigvals(np.random.default_rng(0).random((300, 300)))
    comm.allreduce(np.ones(3))
    after = comm.stats()["seconds_waited_for"]
    return [now - then for now, then in zip(after, start, strict=True)], comm.stats(all_ranks=True)


def test_the_late_rank_is_named(world):
    results = world(3).run(delay_rank_2)
    for own, waiting in results:
        assert len(own) == 3
        assert waiting.seconds.shape == (3, 3) and not waiting.seconds.diagonal().any()
        assert str(waiting) == str(results[0][1])
    assert Waiting(np.array([own for own, _ in results])).caused_s.argmax() == 2


def late_in_group(comm):
    """Rank 2, which is rank 1 of its group, computes while rank 0 waits for it."""
    group = comm.split(comm.rank % 2)
    if comm.rank == 2:
        np.linalg.eigvals(np.random.default_rng(0).random((300, 300)))
    group.barrier()
    of_world, of_group = comm.stats()["seconds_waited_for"], group.stats()["seconds_waited_for"]
    assert of_group == of_world[comm.rank % 2 :: 2]
    waiting = group.stats(all_ranks=True)
    assert waiting.seconds.shape == (2, 2) and waiting.seconds[group.rank].tolist() == of_group
    return of_group


def test_a_group_names_the_rank_that_it_waited_for(world):
    of_rank_0, *_ = world(4).run(late_in_group)
    assert of_rank_0[0] == 0 < of_rank_0[1]


def test_waits_are_attributed_through_ranks_that_waited():
    chain = np.zeros((4, 4))
    chain[2, 1] = chain[3, 2] = chain[0, 3] = 1.0
    assert Waiting(chain).caused_s.tolist() == [0, 3, 0, 0]
    assert Waiting(chain).verdict == "rank 1 made the others wait 3.0 s"


def test_ranks_with_equal_waiting_are_not_named_as_causes():
    assert "no rank stands out" in Waiting(np.array([[0, 1.0], [1, 0]])).verdict
    assert Waiting(np.zeros((2, 2))).verdict == "no rank has waited"


@pytest.mark.parametrize("rank_count", range(1, 12))
def test_every_wait_has_a_cause(rank_count):
    seconds = np.random.default_rng(rank_count).random((rank_count, rank_count))
    np.fill_diagonal(seconds, 0)
    assert Waiting(seconds).caused_s.sum() == pytest.approx(seconds.sum())


def test_the_table_has_a_row_per_rank():
    assert len(str(Waiting(np.zeros((3, 3)))).splitlines()) == 1 + 3 + 1 + 1
