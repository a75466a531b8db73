"""Ranks started by MPI launchers and torchrun, with every command of their page."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import conformance_programs as programs
import launched
import pytest
import ripieno as rp
from launcher_environments import TOKEN
from ripieno.launch import limits
from ripieno.launch.process import processes
from ripieno.launch.script import launchers
from varied import exhaustively
from watching import EVENT_TIMEOUT_S

FAILURE_S = 10.0
# A command of each, as on the page, and the package of the program.
LAUNCHERS = {"mpirun": ("mpirun.openmpi", "openmpi-bin"), "mpiexec.hydra": ("mpiexec.hydra", "mpich")}
# In Debian 12, torchrun fails with the defaults of these options.
TORCHRUN_OPTIONS = "-r 1 -t 1"


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Return the working directory of a job, with the script, and launchers under the names of the page."""
    (tmp_path / "train.py").write_text(launched.SCRIPT)
    for name in ("bin", "home", "tmp"):
        (tmp_path / name).mkdir()
    if shutil.which("mpirun.openmpi"):
        (tmp_path / "bin" / "mpirun").symlink_to(shutil.which("mpirun.openmpi"))
    path = os.pathsep.join((str(tmp_path / "bin"), launched.VARIABLES["PATH"]))
    variables = (
        launched.VARIABLES | launched.OPEN_MPI | {"PATH": path, "HOME": f"{tmp_path}/home", "TMPDIR": f"{tmp_path}/tmp"}
    )
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("RIPIENO_TOKEN", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(params=LAUNCHERS)
def launcher(request, folder) -> str:
    """Return the command of an installed launcher."""
    need(request.param)
    return request.param


def need(name: str) -> None:
    program, package = LAUNCHERS.get(name, (name, "python3-torch"))
    if shutil.which(program) is None:
        pytest.skip(f"{program} not installed: apt-get install {package}")


def run(command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, timeout=60, env={**os.environ, **variables}
    )


def left(folder: Path) -> list[Path]:
    found = [path for name in ("home", "tmp") for path in (folder / name).iterdir()]
    return [path for path in found if "ripieno" in path.name]


@pytest.mark.parametrize("command", ["ripieno run train.py", "python train.py"])
def test_processes_of_a_launcher_are_ranks_without_any_settings(launcher, folder, command):
    done = run(f"{launcher} -n 4 {command}")

    assert sorted(done.stdout.splitlines()) == launched.expected(4), done.stderr
    assert (done.returncode, left(folder)) == (0, [])


def test_jobs_at_the_same_time_do_not_mix(launcher, tmp_path):
    def job(number: int) -> subprocess.CompletedProcess[str]:
        # Two mpirun of Open MPI 4 that make their session folder simultaneously may both fail.
        session = tmp_path / f"session-{number}"
        session.mkdir()
        return run(f"{launcher} -n 2 sh -c 'ripieno run train.py'", OMPI_MCA_orte_tmpdir_base=str(session))

    with ThreadPoolExecutor(2) as both:
        ends = list(both.map(job, range(2)))

    for done in ends:
        assert sorted(done.stdout.splitlines()) == launched.expected(2), done.stderr


def test_a_shared_directory_may_be_named(launcher, folder):
    (folder / "shared").mkdir()
    done = run(f"{launcher} -n 2 ripieno run train.py", RIPIENO_DIRECTORY="shared", TMPDIR=str(folder / "none"))

    assert sorted(done.stdout.splitlines()) == launched.expected(2), done.stderr
    assert list((folder / "shared").iterdir()) == []


@pytest.mark.parametrize("mode", ["raise", "exit", "kill"])
def test_a_rank_that_fails_ends_all_and_its_error_is_printed_once(launcher, folder, mode):
    done = run(f"{launcher} -n 3 ripieno run train.py {mode}")
    waited_s = time.time() - launched.failed_at(done.stderr)

    killed = 137 if launcher == "mpirun" else 9
    assert done.returncode == {"raise": 1, "exit": 7, "kill": killed}[mode], done.stderr
    assert done.stderr.count("Traceback") == (mode == "raise") == ("KeyError: 'culprit'\n" in done.stderr)
    assert done.stderr.count("ripieno: rank") <= 1
    assert waited_s < FAILURE_S
    assert left(folder) == []


def test_a_call_beyond_its_time_limit_prints_its_call_and_the_missing_rank(launcher, folder):
    late = "import time, ripieno as rp\ncomm = rp.init(call_timeout_s=1)\n"
    (folder / "late.py").write_text(f"{late}if comm.rank == 1:\n    time.sleep(50)\ncomm.allreduce(1)\n")
    done = run(f"{launcher} -n 2 ripieno run late.py")

    assert done.returncode != 0
    assert "CallTimeout: rank 0: in allreduce #0" in done.stderr and "for rank 1" in done.stderr
    assert "rank 1 waits for no rank, and is here:" in done.stderr and "time.sleep(50)" in done.stderr


def test_a_rank_that_is_killed_before_they_connect_ends_all_and_the_next_job_finds_nothing_of_it(launcher, folder):
    done = run(f"{launcher} -n 3 ripieno run train.py kill early")

    assert time.time() - launched.failed_at(done.stderr) < FAILURE_S
    assert done.returncode != 0
    assert run(f"{launcher} -n 2 ripieno run train.py").returncode == 0
    assert left(folder) == []


def test_another_number_of_workers_than_the_launcher_has_started_is_refused_once(launcher):
    done = run(f"{launcher} -n 2 ripieno run -n 3 train.py")

    assert done.returncode != 0
    assert done.stderr.count("3 ranks are requested, but ") == 1


def test_a_single_process_may_start_ranks_of_its_own(launcher):
    done = run(f"{launcher} -n 1 ripieno run -n 2 --no-prefix train.py")

    assert sorted(done.stdout.splitlines()) == launched.expected(2), done.stderr


def test_ranks_of_torchrun_connect_without_its_store(folder):
    need("torchrun")
    done = run(f"torchrun {TORCHRUN_OPTIONS} --no_python --nproc_per_node 2 ripieno run train.py", RIPIENO_TOKEN=TOKEN)

    lines = [line.partition(":")[2] for line in done.stdout.splitlines()]
    assert sorted(lines) == launched.expected(2), done.stderr


@pytest.mark.parametrize(("how", "thread"), launched.ENDS)
def test_ranks_that_only_compute_end_with_the_process_that_launched_them(launcher, how, thread):
    options = repr({"engine": "mpirun", "command": launcher, "slots": 2})
    assert launched.ranks_that_outlive_their_launcher(options, how, thread, FAILURE_S) == []


def test_libraries_under_numpy_have_the_threads_of_a_rank(launcher, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    with rp.launch(engine="mpirun", command=launcher, workers=2, slots=2, threads=3) as job:
        assert job.run(lambda comm: [os.environ[name] for name in processes.THREAD_VARIABLES]) == [["3"] * 4] * 2


def test_a_rank_of_a_launcher_may_launch_ranks_by_another_one(launcher, monkeypatch):
    for name in launchers.MPI_VARIABLES:
        monkeypatch.setenv(name, "1" if name.endswith(("SIZE", "RANKS")) else "0")
    with rp.launch(engine="mpirun", command=launcher, workers=2, slots=2) as job:
        assert job.run(lambda comm: (comm.rank, comm.world_size)) == [(0, 2), (1, 2)]


def test_a_closed_output_does_not_fail_ranks(launcher, monkeypatch):
    # On a busy machine, the launcher reports the end of a rank later than the caller waits for the cause.
    monkeypatch.setattr(limits, "OWN_REPORT_S", EVENT_TIMEOUT_S)
    with rp.launch(engine="mpirun", command=launcher, workers=2, slots=2) as job:
        monkeypatch.setattr(sys, "stderr", None)
        assert job.run(lambda comm: comm.allreduce(sys.stderr.write("words\n"))) == [12, 12]
        with pytest.raises(rp.RankFailed, match=r"rank 1 on .* failed: .*; mpirun reports: "):
            job.run(programs.fail, 1, "kill", "in a collective")


def test_invalid_mpi_launcher_is_rejected(folder):
    with pytest.raises(rp.EngineError, match=r"neither Open MPI's launcher nor hydra"):
        rp.launch(engine="mpirun", command="true")
    with pytest.raises(rp.InputError, match="slots=0: expected a whole number >= 1"):
        rp.launch(engine="mpirun", slots=0)
    with pytest.raises(rp.EngineError, match="needs no-such-launcher, which is not on the path"):
        rp.launch(engine="mpirun", command="no-such-launcher")
    with pytest.raises(rp.TooFewSlots, match="for 3 ranks: 2 free, 2 in all"):
        rp.launch(engine="mpirun", command=next(filter(shutil.which, LAUNCHERS)), workers=3, slots=2)


def test_a_program_of_the_page_runs(folder):
    for name in LAUNCHERS:
        need(name)
    launched.prepare(folder, "engines/mpi.md")

    done = run("python driver.py")

    assert (done.returncode, done.stdout.split()) == (0, ["[499500.0,", "499500.0]"] * 2), done.stderr


COMMAND_COUNT = len(list(launched.commands("engines/mpi.md")))


@pytest.mark.parametrize("number", [0, *exhaustively(*range(1, COMMAND_COUNT))])
def test_a_command_of_the_page_runs(folder, number):
    launched.prepare(folder, "engines/mpi.md")
    command = list(launched.commands("engines/mpi.md"))[number]
    name = next(name for name in (*LAUNCHERS, "torchrun") if f"{name} " in command)
    need(name)

    done = run(command.replace("torchrun", f"torchrun {TORCHRUN_OPTIONS}"))

    assert done.returncode == 0, done.stderr
