"""Detection of launchers, from recorded environments; rendezvous addresses, and the token."""

from __future__ import annotations

import fcntl
import os
import secrets
import subprocess
import sys
import threading
import uuid
from contextlib import ExitStack
from pathlib import Path

import launcher_environments as recorded
import pytest
import ripieno as rp
from ripieno._native import check_token
from ripieno.launch.script import environment, launchers, rendezvous, token_file
from ripieno.launch.script.launchers import LaunchedRank, detect
from watching import comes_true

POD = {"JOB_COMPLETION_INDEX": "3", "WORLD_SIZE": "8", "MASTER_ADDR": "job-0.job", "MASTER_PORT": "7000"}
OURS = {"RANK": "1", "WORLD_SIZE": "2", "RIPIENO_TOKEN": recorded.TOKEN}


@pytest.mark.parametrize(
    ("variables", "launcher", "rank", "world_size", "local_rank", "local_size"),
    [
        (recorded.OPEN_MPI, "Open MPI", 1, 4, 1, 4),
        (recorded.OPEN_MPI_IN_SLURM, "Open MPI", 1, 2, 0, 1),
        (recorded.HYDRA, "PMI", 1, 3, 1, 3),
        (recorded.HYDRA_IN_SLURM, "PMI", 1, 2, 0, 1),
        (recorded.STEP, "Slurm", 2, 3, 0, 1),
        (recorded.STEP_OF_BATCH, "Slurm", 1, 2, 0, 1),
        (recorded.STEP_WITH_PMI2, "Slurm", 1, 2, 1, 2),
        (recorded.STEP_WITH_PMIX, "Slurm", 1, 2, 1, 2),
        (recorded.TORCHRUN, "torchrun", 0, 2, 0, 2),
        (recorded.TORCHRUN_STANDALONE, "torchrun", 1, 2, 1, 2),
        (recorded.TORCHRUN_IN_STEP, "torchrun", 1, 2, 1, 2),
        (POD, "Kubernetes", 3, 8, 0, None),
        (OURS, "ripieno run", 1, 2, 0, None),
        (recorded.STEP | recorded.OPEN_MPI | OURS, "ripieno run", 1, 2, 0, None),
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}, "the environment", 1, 2, 0, 2),
    ],
)
def test_a_launcher_is_detected_by_its_variables(variables, launcher, rank, world_size, local_rank, local_size):
    place = detect(variables)

    found = (place.launcher, place.rank, place.world_size, place.local_rank, place.local_size)
    assert found == (launcher, rank, world_size, local_rank, local_size)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        recorded.BATCH,
        recorded.BATCH_FROM_STEP,
        recorded.STEP_OF_ONE | {"SLURM_STEP_ID": str(0xFFFFFFFA)},
        {"JOB_COMPLETION_INDEX": "1"},
        {"RANK": "", "WORLD_SIZE": ""},
    ],
)
def test_a_batch_script_an_interactive_shell_and_a_single_pod_are_no_ranks(variables):
    assert detect(variables) is None


def test_the_only_task_of_a_launcher_is_an_ordinary_process():
    assert detect(recorded.STEP_OF_ONE).is_alone
    with environment.from_environment(recorded.STEP_OF_ONE, threads=None) as comm:
        assert (comm.world_size, comm.allreduce(5)) == (1, 5)


def test_jobs_steps_and_attempts_differ_in_their_identity():
    steps = [
        recorded.STEP,
        recorded.STEP | {"SLURM_STEP_ID": "1"},
        recorded.STEP | {"SLURM_RESTART_COUNT": "1"},
        recorded.STEP | {"SLURM_JOB_ID": "17"},
        recorded.OPEN_MPI,
        recorded.OPEN_MPI_BOUND,
        recorded.TORCHRUN,
        recorded.TORCHRUN | {"TORCHELASTIC_RESTART_COUNT": "1"},
        recorded.HYDRA_IN_SLURM,
    ]
    identities = [detect(variables).job for variables in steps]
    assert None not in identities and len(set(identities)) == len(steps)
    assert detect(recorded.HYDRA).job is None


def test_a_rank_computes_with_its_share_of_the_cores_that_the_job_has():
    # Out of 8 cores; STEP has 1 core of this node, and Open MPI's are bound.
    assert detect(recorded.HYDRA).threads(8) == 2
    assert detect(recorded.STEP | {"SLURM_CPUS_ON_NODE": "8"}).threads(8) == 8
    assert LaunchedRank("Slurm", 0, 8, 0, 4, cores=16).threads(4) == 4
    assert LaunchedRank("Slurm", 0, 8, 0, 4, cores=16).threads(16) == 4
    assert LaunchedRank("Open MPI", 0, 8, 0, 8, cores=4).threads(4) == 1


@pytest.mark.parametrize(
    ("nodelist", "first"),
    [("n1", "n1"), ("n[1-2]", "n1"), ("gpu[007-009,12],login1", "gpu007"), ("a[3,5]b[2-4]-x,c", "a3b2-x"), ("", "")],
)
def test_the_first_host_of_a_list(nodelist, first):
    assert launchers.first_host(nodelist) == first


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        (
            {"OMPI_COMM_WORLD_RANK": "x", "OMPI_COMM_WORLD_SIZE": "2"},
            "OMPI_COMM_WORLD_RANK='x': expected a whole number",
        ),
        (recorded.STEP | {"SLURM_PROCID": "3"}, "SLURM_PROCID=3: expected 0 … 2, of 3 ranks"),
    ],
)
def test_invalid_variables_are_named(variables, sentence):
    with pytest.raises(rp.RendezvousError) as caught:
        detect(variables)
    assert sentence in str(caught.value)


def chosen(variables: dict[str, str], job: str | None = None) -> rendezvous.RendezvousPlace:
    place = detect(variables)
    return rendezvous.choose(place, variables, job or place.job)


def test_ranks_of_one_host_use_a_temporary_directory_others_the_home_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    local, shared = chosen(recorded.TORCHRUN), chosen(recorded.STEP)

    assert local.own and local.directory.parent != tmp_path
    assert shared.own and shared.directory.parent == tmp_path
    assert chosen(recorded.STEP | {"RIPIENO_DIRECTORY": "/shared"}) == rendezvous.RendezvousPlace(Path("/shared"))


def test_another_user_cannot_compute_the_rendezvous_folder(tmp_path, monkeypatch):
    names = {}
    for user in ("ann", "bob"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / user))
        names[user] = chosen(recorded.TORCHRUN).directory
        assert chosen(recorded.TORCHRUN).directory == names[user]
        assert (tmp_path / user / "ripieno/rendezvous-secret").stat().st_mode & 0o777 == 0o600
        assert [each.name for each in (tmp_path / user / "ripieno").iterdir()] == ["rendezvous-secret"]
    assert names["ann"] != names["bob"]


def test_ranks_connect_without_a_cache_folder(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert chosen(recorded.TORCHRUN).directory == chosen(recorded.TORCHRUN).directory


def test_a_secret_that_others_can_read_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    chosen(recorded.TORCHRUN)
    (tmp_path / "ripieno/rendezvous-secret").chmod(0o644)
    with pytest.raises(rp.RendezvousError, match="rendezvous-secret is open to other users, with mode 644"):
        chosen(recorded.TORCHRUN)


def test_a_secret_that_is_known_because_it_is_empty_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "ripieno").mkdir()
    (tmp_path / "ripieno/rendezvous-secret").touch(0o600)
    with pytest.raises(rp.RendezvousError, match="rendezvous-secret is damaged: 0 bytes, expected 32; remove it"):
        chosen(recorded.TORCHRUN)


def test_an_existing_name_is_reported_by_every_rank_at_once(tmp_path):
    path = tmp_path / "taken"
    path.mkdir(mode=0o755)
    with pytest.raises(rp.RendezvousError, match="an entry with this name is open to other users"):
        token_file.exchange_token(path / "token", 1, 60.0, own=True).__enter__()


def test_with_a_token_ranks_connect_to_rank_0_at_a_port_derived_from_the_job():
    token = {"RIPIENO_TOKEN": recorded.TOKEN}
    host, port = chosen(recorded.STEP | token).store

    assert (host, 20_000 <= port < 30_000) == ("n1", True)
    assert chosen(recorded.STEP | {"SLURM_STEP_ID": "1"} | token).store != (host, port)
    assert chosen(recorded.STEP | token | {"MASTER_ADDR": "a", "MASTER_PORT": "7"}).store == ("a", 7)
    assert chosen(POD | token).store == ("job-0.job", 7000)


@pytest.mark.parametrize("token", ["a", "correct horse", "0" * 64, "abcabc" * 20, "f3" * 15, "1234567890" * 3])
def test_a_weak_token_is_refused_with_a_command_that_generates_one(token):
    place = detect(OURS)
    with pytest.raises(rp.RendezvousError, match=r"RIPIENO_TOKEN can be guessed: .*secrets.token_hex\(32\)"):
        rendezvous.joined(place, OURS | {"RIPIENO_TOKEN": token, "RIPIENO_DIRECTORY": "/none"}, 1.0).__enter__()


def test_tokens_of_random_generators_are_strong():
    for make in (secrets.token_hex, secrets.token_urlsafe):
        for _ in range(200):
            check_token(make(16), "token")
    check_token(str(uuid.uuid4()), "token")


def test_the_secret_of_pods_is_strong_without_the_attempt():
    place, token = detect(OURS), "short.0123456789abcdef0123456789abcdef"
    variables = OURS | {"RIPIENO_TOKEN": token, "RIPIENO_SECRET": "short", "RIPIENO_DIRECTORY": "/none"}
    with pytest.raises(rp.RendezvousError, match="RIPIENO_SECRET can be guessed"):
        rendezvous.joined(place, variables, 1.0).__enter__()


def test_the_port_of_torchruns_store_is_not_used():
    token = {"RIPIENO_TOKEN": recorded.TOKEN}

    assert chosen(recorded.TORCHRUN_STANDALONE | token).store == ("localhost", 44569)
    host, port = chosen(recorded.TORCHRUN | token).store
    assert host == "127.0.0.1" and port != int(recorded.TORCHRUN["MASTER_PORT"])


@pytest.mark.parametrize(
    ("variables", "missing"),
    [
        (POD, "MASTER_ADDR, MASTER_PORT set, but not RIPIENO_TOKEN (export RIPIENO_TOKEN="),
        (recorded.HYDRA, "MASTER_ADDR, MASTER_PORT, RIPIENO_TOKEN not set (export RIPIENO_TOKEN="),
        (OURS | {"MASTER_ADDR": "a"}, "RIPIENO_TOKEN, MASTER_ADDR set, but not MASTER_PORT;"),
    ],
)
def test_without_a_secret_or_a_directory_the_error_states_what_to_set(variables, missing):
    with pytest.raises(rp.RendezvousError) as caught:
        chosen(variables)
    assert missing in str(caught.value) and "or set RIPIENO_DIRECTORY" in str(caught.value)


def test_a_token_is_passed_in_a_file_that_is_removed_afterwards(tmp_path):
    path = tmp_path / "token"
    received: list[str] = []

    def receive() -> None:
        with token_file.exchange_token(path, 1, 20.0) as token:
            received.append(token)

    waiting = threading.Thread(target=receive)
    waiting.start()
    with token_file.exchange_token(path, 0, 20.0) as token:
        mode = path.stat().st_mode
        waiting.join()

    assert (received, len(token), mode & 0o777, list(tmp_path.iterdir())) == ([token], 64, 0o600, [])


def test_the_token_of_a_dead_job_is_never_used(tmp_path):
    path = tmp_path / "token"
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom ripieno.launch.script import token_file\n"
        "with token_file.exchange_token(Path(sys.argv[1]), 0, 1.0):\n    os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", program, path], check=False, timeout=250)
    stale = path.read_text()

    with pytest.raises(rp.RendezvousError, match="did not write"), token_file.exchange_token(path, 1, 0.1):
        pass
    with token_file.exchange_token(path, 0, 1.0) as token, token_file.exchange_token(path, 1, 1.0) as received:
        assert stale != token == received


def test_an_empty_token_file_is_not_used(tmp_path):
    path = tmp_path / "token"
    path.touch(0o600)
    with open(path) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(rp.RendezvousError, match="did not write"), token_file.exchange_token(path, 1, 0.1):
            pass
        with (
            pytest.raises(rp.RendezvousError, match="another job connects here"),
            token_file.exchange_token(path, 0, 1.0),
        ):
            pass


def test_only_leftovers_of_killed_jobs_are_removed(tmp_path):
    dead, live, other = (tmp_path / name for name in ("job-1", "job-2", "other"))
    for path in (dead, live, other):
        path.mkdir(mode=0o700)
        (path / "token").touch(0o600)
        (path / "rank-0").touch()
    with open(live / "token") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        (live / "token").write_text("t")
        (tmp_path / "job-3").mkdir()
        token_file.remove_abandoned(tmp_path, "job-")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["job-2", "job-3", "other"]


def test_a_folder_of_a_dead_rank_0_without_a_token_is_removed_and_a_live_one_stays(tmp_path):
    dead, incomplete, live = (tmp_path / name for name in ("job-1", "job-2", "job-3"))
    for path in (dead, incomplete):
        path.mkdir(mode=0o700)
    (incomplete / ".token.host.1").touch(0o600)
    with token_file.directory_of_job(live):
        token_file.remove_abandoned(tmp_path, "job-")
        assert list(tmp_path.iterdir()) == [live]


def test_rank_0_creates_its_folder_again_if_another_job_removes_it_meanwhile(tmp_path, monkeypatch):
    opened = os.open

    def swept(path, *options, **more):
        monkeypatch.setattr(os, "open", opened)
        token_file.remove_abandoned(tmp_path, "job-")
        assert not Path(path).exists()
        return opened(path, *options, **more)

    monkeypatch.setattr(os, "open", swept)
    with token_file.directory_of_job(tmp_path / "job-1"):
        token_file.remove_abandoned(tmp_path, "job-")
        assert (tmp_path / "job-1").exists()


TORCHRUN = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
CONNECT = "import ripieno as rp, sys; sys.exit(rp.init().allreduce(1) != 2)"


def start(directory: Path, job: str, rank: int) -> subprocess.Popen[bytes]:
    """Start a rank of a torchrun job with its rendezvous there."""
    own = {"RANK": str(rank), "TORCHELASTIC_RUN_ID": job, "RIPIENO_DIRECTORY": str(directory)}
    return subprocess.Popen([sys.executable, "-c", CONNECT], env={**os.environ, **TORCHRUN, **own})


def test_leftovers_of_a_killed_job_in_a_named_directory_are_removed_by_the_next(tmp_path):
    with start(tmp_path, "first", 0) as killed:
        assert comes_true(lambda: list(tmp_path.glob("ripieno-*/rank-0")), 60)
        killed.kill()
    assert len(list(tmp_path.iterdir())) == 2

    ranks = [start(tmp_path, "second", rank) for rank in range(2)]
    assert [rank.wait(60) for rank in ranks] == [0, 0]

    assert list(tmp_path.iterdir()) == []


def test_in_a_named_directory_only_leftovers_of_dead_jobs_are_removed(tmp_path):
    names = [f"ripieno-{tag * 16}-{tag * 16}" for tag in "0123"]
    dead, live, incomplete, orphaned = (tmp_path / name for name in names)
    for path in (dead, live, orphaned):
        path.mkdir()
        (path / "rank-0.lock").touch()
        (path / "rank-1.lock").touch()
    incomplete.mkdir()
    (tmp_path / "ripieno-results").mkdir()
    (tmp_path / "ripieno-results" / "rank-0.lock").touch()
    tokens = [tmp_path / name for name in ("token-0123456789abcdef", "token-fedcba9876543210", "token-of-mine")]
    for path in tokens:
        path.touch(0o600)

    with ExitStack() as held:
        for path in (live / "rank-0.lock", orphaned / "rank-1.lock", tokens[1]):
            fcntl.flock(held.enter_context(open(path)), fcntl.LOCK_EX)
        token_file.remove_abandoned_shared(tmp_path)

    remaining = {live, incomplete, orphaned, tmp_path / "ripieno-results", *tokens[1:]}
    assert set(tmp_path.iterdir()) == remaining


def test_two_jobs_do_not_share_a_token_file(tmp_path):
    path = tmp_path / "token"
    with token_file.exchange_token(path, 0, 1.0) as token:
        with (
            pytest.raises(rp.RendezvousError, match="another job connects here"),
            token_file.exchange_token(path, 0, 1.0),
        ):
            pass
        assert path.read_text() == token


@pytest.mark.parametrize("kind", ["open to others", "link"])
def test_a_token_file_of_another_user_is_refused(tmp_path, kind):
    path = tmp_path / "token"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("planted")
    elsewhere.chmod(0o644)
    with open(elsewhere) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        path.symlink_to(elsewhere) if kind == "link" else os.link(elsewhere, path)
        with pytest.raises(rp.RendezvousError, match="token"), token_file.exchange_token(path, 1, 1.0):
            pass


@pytest.mark.parametrize("kind", ["open to others", "link", "file"])
def test_a_directory_that_is_not_private_is_refused(tmp_path, kind):
    path = tmp_path / "own"
    if kind == "open to others":
        path.mkdir(mode=0o755)
    elif kind == "link":
        path.symlink_to(tmp_path)
    else:
        path.touch()
    with pytest.raises(rp.RendezvousError, match="not a directory of this"), token_file.directory_of_job(path):
        pass


def test_the_directory_of_a_job_with_a_live_rank_0_stays(tmp_path):
    with token_file.directory_of_job(tmp_path / "own"), token_file.exchange_token(tmp_path / "own/token-1", 0, 1.0):
        with pytest.raises(rp.RendezvousError, match="another job connects here"):
            token_file.directory_of_job(tmp_path / "own").__enter__()
        assert (tmp_path / "own/token-1").exists()


def test_the_directory_of_a_job_is_private_and_removed_with_its_contents(tmp_path):
    path = tmp_path / "new"
    with token_file.directory_of_job(path):
        assert path.stat().st_mode & 0o777 == 0o700
        (path / "file").touch()
    assert not path.exists()


def test_the_trials_of_wheels_pass(tmp_path):
    trials = Path(__file__).resolve().parents[2] / "tools/trials"
    subprocess.run([sys.executable, trials / "launch.py"], check=True, timeout=240)
    variables = os.environ | {"WORLD_SIZE": "2", "RIPIENO_DIRECTORY": str(tmp_path)}
    command = [sys.executable, trials / "ranks.py"]
    ranks = [
        subprocess.Popen(command, env=variables | {"RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    outputs = [rank.communicate(timeout=240)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    assert all(f"{rp.__version__} 2 ranks, " in output for output in outputs)
