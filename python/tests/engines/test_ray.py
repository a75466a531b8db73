"""Ranks as Ray actors: they compute and fail like local ones, and leave no resources in Ray."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ripieno as rp
from ripieno.errors import EngineError, InputError, RankFailed, TooFewSlots
from varied import exhaustively
from watching import comes_true, gone_within, under_load

# Maximum time that a user waits for an error.
PROMPT_S = 5.0
# Maximum time for Ray to detect an unreported event on a busy machine.
NOTICE_S = 30.0


def launch(workers: int, **options: Any) -> rp.Job:
    return rp.launch(workers=workers, engine="ray", **options)


def cpus_free() -> float:
    import ray

    return ray.available_resources().get("CPU", 0.0)


def total(comm, size):
    return comm.allreduce(np.full(size, comm.rank + 1.0))


def place(comm):
    import ray

    return ray.get_runtime_context().get_node_id(), os.getpid(), comm.threads, os.environ["OMP_NUM_THREADS"]


def raising(comm):
    comm.barrier()
    if comm.rank == 1:
        raise ValueError("on purpose")
    comm.barrier()


def killed(comm):
    comm.barrier()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.barrier()


def killed_by_ray(comm):
    import ray

    comm.barrier()
    if comm.rank == 1:
        ray.kill(ray.get_runtime_context().current_actor)
        # The signal comes from outside, at any time.
        threading.Event().wait(1000)
    comm.barrier()


def deaf(comm):
    """Rank 1 fails; the others compute and are not notified."""
    if comm.rank == 1:
        raise ValueError("on purpose")
    threading.Event().wait(1000)


def waiting(comm):
    comm.emit({})
    comm.barrier()
    threading.Event().wait(1000)


def works_as_before() -> None:
    """Check that every CPU is free, and that a job can use all of them."""
    assert cpus_free() == 4
    with launch(4) as job:
        assert [result[0] for result in job.run(total, 1)] == [10.0] * 4


def test_an_array_of_10_mb_is_reduced_across_two_nodes(ray_nodes):
    with launch(4, strategy="SPREAD") as job:
        results = job.run(total, 1_310_720)
        nodes = [node for node, *_ in job.run(place)]

    assert all((result == 10.0).all() for result in results)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ripieno")]
    assert sorted(nodes.count(node) for node in set(nodes)) == [2, 2]
    assert cpus_free() == 4


def test_a_job_runs_many_programs_in_the_same_processes(ray_nodes):
    with launch(2) as job:
        assert job.run(place) == job.run(place)


@pytest.mark.parametrize("strategy, node_count", [("STRICT_PACK", 1), ("STRICT_SPREAD", 2)])
def test_ranks_are_placed_as_requested(ray_nodes, strategy, node_count):
    with launch(2, strategy=strategy) as job:
        assert len({node for node, *_ in job.run(place)}) == node_count


def test_each_rank_has_as_many_threads_as_cpus(ray_nodes):
    with rp.launch(engine="ray", cpus_per_worker=2) as job:
        assert [threads for _, _, *threads in job.run(place)] == [[2, "2"], [2, "2"]]


def test_the_runtime_environment_is_the_ranks(ray_nodes):
    with launch(1, runtime_env={"env_vars": {"FROM_THE_CALLER": "yes"}}) as job:
        assert job.run(lambda comm: os.environ["FROM_THE_CALLER"]) == ["yes"]


def test_two_jobs_run_at_once(ray_nodes):
    with launch(2) as one, launch(2) as other:
        threads = [threading.Thread(target=job.run, args=(total, 1000)) for job in (one, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [len({place[1] for place in job.run(place)}) for job in (one, other)] == [2, 2]
        assert not one.over and not other.over

    assert cpus_free() == 4


def test_the_exception_of_the_failed_rank_is_raised(ray_nodes):
    with pytest.raises(ValueError, match="on purpose") as caught, launch(4) as job:
        job.run(raising)

    assert isinstance(caught.value.__cause__, RankFailed) and caught.value.__cause__.rank == 1
    assert cpus_free() == 4


@pytest.mark.parametrize(
    "program, cause", [(killed, "worker process has died"), (killed_by_ray, "killed by `ray.kill`")]
)
def test_a_killed_worker_ends_the_job_at_once(ray_nodes, program, cause):
    with launch(4) as job:
        begin = time.monotonic()
        with pytest.raises(RankFailed, match=cause) as caught:
            job.run(program)
        elapsed_s = time.monotonic() - begin

    assert caught.value.rank == 1
    assert elapsed_s < under_load(PROMPT_S)
    works_as_before()


def test_a_lost_node_ends_the_job(ray_nodes):
    with ray_nodes.another() as lose, launch(3, strategy="STRICT_SPREAD", on_event=lambda _: lose()) as job:
        begin = time.monotonic()
        with pytest.raises(RankFailed, match="its process ended"):
            job.run(waiting)
        assert time.monotonic() - begin < NOTICE_S

    assert comes_true(lambda: cpus_free() == 4, NOTICE_S)
    works_as_before()


def test_ranks_without_heartbeats_are_killed(ray_nodes):
    with launch(4) as job:
        pids = [pid for _, pid, *_ in job.run(place)]
        with pytest.raises(ValueError, match="on purpose"):
            job.run(deaf)

        assert gone_within(PROMPT_S, pids)
    works_as_before()


def test_too_few_cpus_are_an_error_that_states_how_many(ray_nodes):
    with launch(1):
        begin = time.monotonic()
        with pytest.raises(TooFewSlots, match="for 8 ranks: 3 free, 4 in all; a rank takes 1 CPU"):
            launch(8, placement_timeout_s=1.0)
        assert time.monotonic() - begin < under_load(PROMPT_S)

    assert cpus_free() == 4


def test_more_ranks_than_nodes_are_not_spread_strictly(ray_nodes):
    with pytest.raises(
        TooFewSlots, match=r"for 3 ranks: 2 free, 2 in all; .* 2 nodes are to be shared by STRICT_SPREAD"
    ):
        launch(3, strategy="STRICT_SPREAD", placement_timeout_s=0.5)

    assert cpus_free() == 4


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"strategy": "NEAR"}, InputError, "strategy='NEAR': expected one of PACK, "),
        ({"cpus_per_worker": 0}, InputError, "cpus_per_worker=0: "),
        ({"resources": {"CPU": 2}}, InputError, "use cpus_per_worker"),
        (
            {"resources": {"GPU": 1}, "placement_timeout_s": 0.1},
            TooFewSlots,
            "for 1 ranks: 0 free, 0 in all; a rank takes 1 CPU, 1 GPU",
        ),
        ({"address": "ray://127.0.0.1:10001"}, EngineError, "run this program on a node"),
        ({"address": "127.0.0.1:1"}, EngineError, "this process is in the Ray at 127.0.0.1:"),
        (
            {"runtime_env": {"working_dir": "/"}},
            InputError,
            "Ray rejects this: .*only supported at the job level",
        ),
    ],
)
def test_impossible_options_are_reported(ray_nodes, options, error, message):
    with pytest.raises(error, match=message):
        launch(1, **options)


@pytest.mark.parametrize(
    "package, message",
    [
        ("raise ModuleNotFoundError(\"No module named 'ripieno'\")", "cannot import ripieno .*: install ripieno"),
        ("__version__ = '0.0.1'", "has ripieno 0.0.1, the caller has"),
    ],
    ids=["absent", "other version"],
)
def test_workers_without_this_ripieno_raise(ray_nodes, tmp_path, package, message):
    (tmp_path / "ripieno").mkdir()
    (tmp_path / "ripieno" / "__init__.py").write_text(package)

    with pytest.raises(RankFailed, match=message):
        launch(1, runtime_env={"env_vars": {"PYTHONPATH": str(tmp_path)}})

    assert cpus_free() == 4


LAUNCHER = """
import os, sys, threading
import ripieno as rp
with rp.launch(2, engine="ray", address=sys.argv[1]) as job:
    print(*job.run(lambda comm: os.getpid()), flush=True)
    threading.Event().wait()
"""


def test_a_job_whose_launcher_is_killed_leaves_nothing(ray_nodes):
    command = [sys.executable, "-c", LAUNCHER, ray_nodes.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher:
        pids = [int(word) for word in launcher.stdout.readline().split()]
        launcher.kill()

    assert len(pids) == 2
    assert gone_within(NOTICE_S, pids)
    assert comes_true(lambda: cpus_free() == 4, NOTICE_S)
    works_as_before()


ALONE = """
import ray
import ripieno as rp
with rp.launch(1, engine="ray") as one, rp.launch(1, engine="ray") as other:
    one.close()
    print(other.run(lambda comm: comm.world_size), ray.is_initialized())
print(ray.is_initialized())
"""


def run_alone(script: str) -> str:
    """Return the output of a process in Ray's network that finds no Ray."""
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "RAY_TMPDIR": folder},
            capture_output=True,
            text=True,
            timeout=110,
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_ray_cluster_started_for_jobs_is_stopped_with_the_last_job(ray_nodes):
    assert run_alone(ALONE) == "[1] True\nFalse\n"


SENT = """
import ripieno as rp
with rp.launch(1, engine="ray", runtime_env={"py_modules": [rp]}) as job:
    print(*job.run(lambda comm: rp.__file__))
"""


def test_ripieno_travels_with_the_runtime_environment(ray_nodes):
    assert "py_modules" in run_alone(SENT)


PAGE = Path(__file__).resolve().parents[3] / "docs/engines/ray.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", [0, *exhaustively(*range(1, len(BLOCKS)))])
def test_an_example_of_the_page_runs(ray_nodes, number):
    run_alone(BLOCKS[number])


def test_an_interrupted_shutdown_still_disconnects_from_ray(ray_nodes, monkeypatch):
    from ripieno.launch.engines.ray import engine
    from ripieno.launch.engines.ray import run as ray_run

    dismiss = ray_run.RayRun._dismiss

    def interrupted(run):
        dismiss(run)
        raise KeyboardInterrupt

    users = engine._session._users
    with monkeypatch.context() as patch:
        patch.setattr(ray_run.RayRun, "_dismiss", interrupted)
        with pytest.raises(KeyboardInterrupt), launch(1):
            pass
    assert engine._session._users == users


def test_an_address_without_a_ray_is_refused_at_once(ray_nodes):
    script = "import ripieno as rp; rp.launch(1, engine='ray', address='127.0.0.1:1')"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)

    assert "EngineError: cannot join Ray at 127.0.0.1:1: [Errno 111]" in done.stderr
