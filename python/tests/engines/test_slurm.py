"""Ranks started by srun in a real Slurm of two nodes, with every command of the page on Slurm."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import launched
import pytest
import ripieno as rp
import slurm_cluster
from launcher_environments import TOKEN
from ripieno.launch.engines import slurm as engine
from ripieno.launch.engines import started
from slurm_cluster import CommandResult, SlurmCluster
from varied import exhaustively
from watching import comes_true

# Maximum time that a user waits for the end of a job after a rank has failed: 2 s for detection, 1 s for Slurm to end
# the ranks, and the rest for a busy machine.
FAILURE_S = 10.0


@pytest.fixture
def folder(tmp_path, monkeypatch, slurm: SlurmCluster) -> Path:
    """Return the working directory of a job with the script; also the home and the temporary folder."""
    (tmp_path / "train.py").write_text(launched.SCRIPT)
    for name, variable in (("home", "HOME"), ("tmp", "TMPDIR")):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / name))
    monkeypatch.chdir(tmp_path)
    for name, value in launched.VARIABLES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("RIPIENO_TOKEN", raising=False)
    return tmp_path


def left(folder: Path) -> list[Path]:
    # The secret of the user that names rendezvous folders stays.
    return [path for name in ("home", "tmp") for path in (folder / name).iterdir() if path.name != ".cache"]


def run(slurm: SlurmCluster, command: str, **variables: str) -> CommandResult:
    return slurm.run("sh", "-c", command, **variables)


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("command", ["ripieno run train.py", "python train.py"])
def test_tasks_of_srun_are_ranks_without_any_settings(slurm, folder, nodes, command):
    done = run(slurm, f"srun -N {nodes} -n {2 * nodes} -K {command}")

    assert sorted(done.out.splitlines()) == launched.expected(2 * nodes), done.err
    assert (done.code, left(folder)) == (0, [])


def test_with_a_token_ranks_connect_to_the_node_of_rank_0(slurm, folder):
    done = run(slurm, "srun -N 2 -n 3 -K ripieno run train.py", RIPIENO_TOKEN=TOKEN, HOME=str(folder / "none"))

    assert sorted(done.out.splitlines()) == launched.expected(3), done.err


def test_a_port_that_is_taken_is_named(slurm, folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run(
            slurm,
            # With -K Slurm may cut the last output of a rank.
            "srun -N 2 -n 2 ripieno run train.py",
            RIPIENO_TOKEN=TOKEN,
            MASTER_PORT=port,
            RIPIENO_RENDEZVOUS_TIMEOUT_S="2",
        )

    assert done.code != 0
    assert "RendezvousError" in done.err and port in done.err and "MASTER_PORT" in done.err


def test_steps_at_the_same_time_do_not_mix(slurm, folder):
    with ThreadPoolExecutor(2) as both:
        ends = list(both.map(lambda _: run(slurm, "srun -N 1 -n 2 -K ripieno run train.py"), range(2)))

    for done in ends:
        assert sorted(done.out.splitlines()) == launched.expected(2), done.err


@pytest.mark.parametrize(
    ("kill_others", "mode", "code"), [("-K", "raise", 1), ("-K", "kill", 137), ("", "raise", 1), ("", "exit", 7)]
)
def test_a_rank_that_fails_ends_all_and_is_named_once(slurm, folder, kill_others, mode, code):
    done = run(slurm, f"srun -N 2 -n 4 {kill_others} ripieno run train.py {mode}")
    waited_s = time.time() - launched.failed_at(done.err)

    assert (done.code, done.err.count("Traceback")) == (code, int(mode == "raise")), done.err
    assert done.err.count("ripieno: rank 0 ends: rank 1 on ") == 1 and done.err.count("ripieno: rank") == 1
    assert ("KeyError: 'culprit'" in done.err) == (mode == "raise")
    assert waited_s < FAILURE_S
    assert left(folder) == []


def test_a_rank_that_is_killed_before_they_connect_ends_all(slurm, folder):
    done = run(slurm, "srun -N 2 -n 4 -K ripieno run train.py kill early")

    assert time.time() - launched.failed_at(done.err) < FAILURE_S
    # The highest exit code of all tasks: killed, or ended by Slurm.
    assert done.code in (137, 143) and "task 1: Killed" in done.err
    assert left(folder) == []


def test_another_number_of_workers_than_srun_has_started_is_refused_once(slurm, folder):
    # Without -K both tasks end by themselves; with -K Slurm would end the slower one.
    done = run(slurm, "srun -N 1 -n 2 ripieno run -n 4 train.py")

    assert done.code == 2
    assert done.err.count("4 ranks are requested, but Slurm has started 2") == 1


def test_a_batch_script_and_a_single_task_are_no_ranks(slurm, folder):
    (folder / "job.sh").write_text("#!/bin/sh\nripieno run -n 3 --no-prefix train.py\n")
    batch = run(slurm, "sbatch --wait -n 2 -o out.txt job.sh")
    single = run(slurm, "srun -n 1 ripieno run -n 2 --no-prefix train.py")

    assert sorted((folder / "out.txt").read_text().splitlines()) == launched.expected(3), batch.err
    assert sorted(single.out.splitlines()) == launched.expected(2), single.err


def test_nothing_listens_beyond_loopback(slurm, folder):
    (folder / "listen.py").write_text(launched.LISTENERS)
    done = run(slurm, "srun -N 1 -n 2 -K ripieno run listen.py")

    assert done.out.split() == ["127.0.0.1"] * 2, done.err


def test_by_default_one_worker_per_cpu_starts_and_no_more_fit(slurm):
    with rp.launch(engine="slurm") as job:
        assert job.workers == len(slurm_cluster.NODES) * slurm_cluster.CPUS
        started = time.monotonic()
        with pytest.raises(
            rp.TooFewSlots, match=r"slurm has too few free slots for 1 ranks: 0 free, 4 in all; .*sinfo"
        ):
            rp.launch(engine="slurm", workers=1, immediate_s=1)
        assert time.monotonic() - started < FAILURE_S


@pytest.fixture
def held(slurm: SlurmCluster) -> Iterator[Path]:
    """Provide a file that delays the nodes' cleanup while it exists."""
    slurm.held.touch()
    yield slurm.held
    slurm.held.unlink(missing_ok=True)
    assert comes_true(slurm.is_idle, FAILURE_S)


def sums(workers: int) -> list[int]:
    # Wait at most one second for other jobs.
    with rp.launch(engine="slurm", workers=workers, immediate_s=1) as job:
        return job.run(lambda comm: comm.allreduce(1))


def test_a_job_waits_for_nodes_that_clean_up_after_the_previous_job(held):
    let_go = threading.Timer(3.0, held.unlink)
    let_go.start()
    assert [sums(3), sums(3)] == [[3] * 3] * 2
    let_go.join()


def test_nodes_that_become_free_after_the_count_are_counted_again(slurm, monkeypatch):
    idle = [0]

    def has_just_completed() -> bool:
        idle[0] = 4
        return False

    monkeypatch.setattr(engine.SlurmEngine, "_cpus", lambda self: (idle[0], 4))
    monkeypatch.setattr(engine, "_is_completing", has_just_completed)
    assert sums(3) == [3] * 3


def test_a_job_waits_as_long_as_the_caller_allows(slurm, monkeypatch):
    monkeypatch.setattr(engine, "MANAGER_S", 0.01)
    monkeypatch.setattr(engine, "_is_completing", lambda: False)
    monkeypatch.setattr(engine.SlurmEngine, "_cpus", lambda self: (0, 4))
    began_s = time.monotonic()
    with pytest.raises(rp.TooFewSlots, match="0 free, 4 in all"):
        engine.SlurmEngine(immediate_s=1).start(3, None)
    assert time.monotonic() - began_s >= 1.0


def test_a_job_does_not_wait_if_other_nodes_have_free_slots(held):
    assert [sums(1), sums(1)] == [[1]] * 2
    assert held.exists()


@pytest.mark.parametrize(("how", "thread"), launched.ENDS)
def test_ranks_that_only_compute_end_with_the_process_that_launched_them(slurm, how, thread):
    options = repr({"engine": "slurm"})
    assert launched.ranks_that_outlive_their_launcher(options, how, thread, FAILURE_S) == []
    assert comes_true(slurm.is_idle, FAILURE_S)


def test_slots_are_counted_in_the_partition_that_srun_selects(slurm, monkeypatch):
    monkeypatch.setenv("SLURM_PARTITION", "small")
    with pytest.raises(rp.TooFewSlots, match="for 4 ranks: 2 free, 2 in all"):
        rp.launch(engine="slurm", workers=4)
    monkeypatch.delenv("SLURM_PARTITION")
    with pytest.raises(rp.TooFewSlots, match="for 1 ranks: 0 free, 0 in all"):
        rp.launch(engine="slurm", cpus_per_worker=99)


def test_messages_of_srun_itself_are_no_failure_of_a_rank(slurm):
    def parsed(line):
        return started.failure_in(line, engine._FAILURE)

    assert parsed("srun: error: n2: task 3: Killed\n") == (3, "Killed")
    assert parsed("srun: error: n2: tasks 1,3: Exited with exit code 1\n") == (None, "Exited with exit code 1")
    assert parsed("srun: error: Unable to confirm allocation for job 7: Resource temporarily unavailable\n") is None


def test_a_refusal_of_srun_is_reported(slurm):
    with pytest.raises(
        rp.EngineError, match=r"slurm has ended the ranks: srun: .*Unable to allocate resources: Invalid node name"
    ):
        rp.launch(engine="slurm", workers=2, arguments=["--nodelist=nowhere"])
    with pytest.raises(rp.EngineError, match="Slurm has no partition nowhere"):
        rp.launch(engine="slurm", workers=2, partition="nowhere")


def test_a_rank_has_the_cpus_that_were_requested(slurm):
    with rp.launch(engine="slurm", workers=2, cpus_per_worker=2) as job:
        found = job.run(lambda comm: (comm.threads, os.environ["SLURMD_NODENAME"], os.environ["OMP_NUM_THREADS"]))
        assert job.run(lambda comm: "RIPIENO_INVITATION" in os.environ) == [False, False]

    assert sorted(found) == [(2, node, "2") for node in slurm_cluster.NODES]


COMMAND_COUNT = len(list(launched.commands("engines/slurm.md")))


@pytest.mark.parametrize("number", [0, *exhaustively(*range(1, COMMAND_COUNT))])
def test_a_command_of_the_page_runs(slurm, folder, number):
    launched.prepare(folder, "engines/slurm.md")
    command = list(launched.commands("engines/slurm.md"))[number]

    done = run(slurm, command)

    assert done.code == 0, done.err
