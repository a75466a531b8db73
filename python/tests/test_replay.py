"""Replay: a recorded job's collectives are simulated on another cluster, with its recorded computing times."""

from __future__ import annotations

import json

import numpy as np
import pytest
import ripieno as rp
from ripieno.cli import main
from ripieno.simulation import Cluster, replay, simulate


def event(rank, name, start_us, end_us, *, sequence, size=800, communicator=0, algorithm="ring", outcome="done"):
    arguments = {"sequence": sequence, "communicator": communicator, "algorithm": algorithm, "bytes": size}
    arguments["outcome"] = outcome
    return {"ph": "X", "name": name, "ts": start_us, "dur": end_us - start_us, "tid": rank, "args": arguments}


def trace_of(*events, ranks=2):
    names = [{"ph": "M", "name": "thread_name", "tid": tid, "args": {"name": f"rank {tid}"}} for tid in range(ranks)]
    more = {"ph": "M", "name": "thread_name", "tid": ranks, "args": {"name": "rank 0, concurrent calls 1"}}
    wait = {"ph": "X", "name": "waiting for rank 1", "ts": 0, "dur": 5, "tid": 0, "args": {"peer": 1}}
    return {"traceEvents": [*names, more, wait, *events]}


def test_a_collective_lasts_from_the_last_arrival_to_the_last_departure():
    calls, ranks = replay.calls_of(
        trace_of(
            event(0, "allreduce", 0, 1000, sequence=0),
            event(1, "allreduce", 400, 900, sequence=0),
            event(1, "barrier", 1500, 2000, sequence=1, size=1, algorithm="tree"),
            event(0, "barrier", 1700, 2100, sequence=1, size=1, algorithm="tree"),
        )
    )

    assert ranks == 2
    assert [(call.collective, call.nbytes) for call in calls] == [("allreduce", 800), ("barrier", 1)]
    assert [call.computing_s for call in calls] == pytest.approx([400e-6, 700e-6])
    assert [call.seconds for call in calls] == pytest.approx([600e-6, 400e-6])


def test_calls_in_flight_together_count_their_time_once():
    calls, ranks = replay.calls_of(
        trace_of(
            event(0, "allreduce", 0, 1000, sequence=0),
            event(1, "allreduce", 0, 1000, sequence=0),
            event(2, "allreduce", 100, 1300, sequence=1),
            event(1, "allreduce", 100, 1200, sequence=1),
        )
    )

    assert ranks == 2
    assert [call.seconds for call in calls] == pytest.approx([1000e-6, 300e-6])
    assert all(call.is_played for call in calls)


def test_blocks_keep_their_size_and_unknown_calls_are_not_simulated():
    calls, _ = replay.calls_of(
        trace_of(
            event(0, "allgather", 0, 10, sequence=0, size=64),
            event(1, "allgather", 0, 10, sequence=0, size=64),
            event(0, "neighbour-exchange", 20, 30, sequence=1),
            event(1, "neighbour-exchange", 20, 30, sequence=1),
            event(0, "sparse-reduce", 40, 50, sequence=2),
            event(1, "sparse-reduce", 40, 50, sequence=2),
            event(0, "allreduce", 60, 70, sequence=0, communicator=1),
            event(0, "allreduce", 80, 90, sequence=3, outcome="failed"),
        )
    )

    described = [(call.collective, call.nbytes, call.is_played) for call in calls]
    assert described == [
        ("allgather", 32, True),
        ("neighbour-exchange", 800, False),
        ("sparse-reduce", 800, False),
        ("allreduce", 800, False),
    ]


def test_every_replayed_call_takes_the_time_of_its_plans():
    cluster = Cluster(nodes=16, rate_bits_per_s=1e9)
    call = replay.RecordedCall("allreduce", "tree", 1 << 20, True, 1.0, 2.0)
    other = replay.RecordedCall("sparse-reduce", "butterfly", 80, False, 0.5, 0.25)

    found = replay.replay([call, other, call], 4, cluster, compute=0.5)
    kept = replay.replay([call], 4, cluster, as_recorded=True)

    chosen = simulate("allreduce", cluster, nbytes=1 << 20)
    tree = simulate("allreduce", cluster, nbytes=1 << 20, algorithm="tree")
    assert chosen.algorithm != "tree" and chosen.seconds is not None and tree.seconds is not None
    assert found.recorded_s == pytest.approx(2.5 + 4.25)
    assert found.seconds == pytest.approx(1.25 + 2 * chosen.seconds + 0.25)
    assert kept.seconds == pytest.approx(1.0 + tree.seconds)
    assert [(row.collective, row.calls) for row in found.rows] == [("sparse-reduce", 1), ("allreduce", 2)]


def test_the_trace_of_a_job_is_simulated(tmp_path, capsys):
    def program(comm):
        for _ in range(3):
            comm.allreduce(np.ones(5000, np.float32))

    path = tmp_path / "trace.json"
    with rp.launch(workers=2, threads=1, trace=path) as job:
        job.run(program)

    assert main(["simulate", "--trace", str(path), "--hosts", "64", "--rate", "1gbit", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    row = next(row for row in found["collectives"] if (row["collective"], row["nbytes"]) == ("allreduce", 20_000))
    assert (found["recorded_ranks"], found["ranks"], row["calls"]) == (2, 64, 3)
    of_one_call = simulate("allreduce", Cluster(nodes=64, rate_bits_per_s=1e9), nbytes=20_000)
    assert row["simulated_s"] == pytest.approx(3 * of_one_call.seconds)
    assert main(["simulate", f"--trace={path}", "--hosts", "64"]) == 0
    assert "a job of 2 ranks on 64 nodes" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "{}", '{"traceEvents": []}', "[3]"])
def test_invalid_trace_is_reported(tmp_path, text, capsys):
    path = tmp_path / "trace.json"
    path.write_text(text)

    assert main(["simulate", "--trace", str(path), "--hosts", "4"]) == 2
    assert "expected a trace" in capsys.readouterr().err
    path.unlink()
    assert main(["simulate", "--trace", str(path), "--hosts", "4"]) == 2
    assert "does not exist" in capsys.readouterr().err
