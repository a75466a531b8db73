"""``ripieno run`` and ``ripieno.init``: scripts as ranks that start and end together."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import ripieno as rp
from launcher_environments import TOKEN
from ripieno.cli.run import run_command
from ripieno.launch import limits
from ripieno.launch.script import addresses, environment
from ripieno.launch.script import run as launch_run
from varied import exhaustively
from watching import EVENT_TIMEOUT_S, comes_true, gone_within, is_prompt, under_load

COMMAND = [sys.executable, "-c", "from ripieno.cli.run import run_command; run_command(prog_name='ripieno run')"]
SCRIPT = """
    import os, signal, sys, time
    import ripieno as rp

    comm = rp.init()
    mode = sys.argv[1]
    if mode == "print":
        # Written in one call: unbuffered output of several ranks may be mixed between calls.
        line = (comm.rank, comm.world_size, comm.allreduce(1), __name__, sys.argv[1:], rp.init() is comm)
        sys.stdout.write(" ".join(map(str, line)) + "\\n")
    elif mode == "raise" and comm.rank == 1:
        raise KeyError("culprit")
    elif mode == "exit" and comm.rank == 1:
        sys.exit(7)
    elif mode == "kill" and comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    elif mode == "sleep":
        print("pid", os.getpid(), flush=True)
        time.sleep(100)
    comm.barrier()
"""


@pytest.fixture
def script(tmp_path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT))
    return path


def clean_environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in environment.VARIABLES}
    return {**kept, **more}


def run(*arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=250, env=clean_environment(**more))


def test_every_rank_runs_the_script_with_its_arguments(script):
    done = run("-n", 3, script, "print", "--", "-n", "--x")

    expected = [f"[rank {r}] {r} 3 3 __main__ ['print', '--', '-n', '--x'] True" for r in range(3)]
    assert (sorted(done.stdout.splitlines()), done.stderr, done.returncode) == (expected, "", 0)


def test_subpackages_hide_no_other_packages_of_the_same_name(tmp_path):
    (tmp_path / "script.py").write_text(
        "import sys, ripieno; from pathlib import Path\n"
        "sys.stdout.write(f'{Path(ripieno.__file__).parent in map(Path, sys.path)}\\n')"  # in one piece
    )

    done = run("-n", 2, "--no-prefix", tmp_path / "script.py")

    assert done.stdout.split() == ["False", "False"], done.stderr


def test_output_has_no_prefix_on_request(script):
    done = run("-n", 2, "--no-prefix", script, "print")

    assert sorted(line[0] for line in done.stdout.splitlines()) == ["0", "1"]


def test_modules_run_as_with_python_m(script):
    command = [*COMMAND, "-n", "2", "-m", "script", "print"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=script.parent, env=clean_environment())

    assert done.returncode == 0, done.stderr
    assert "[rank 1] 1 2 2 __main__" in done.stdout


def test_the_culprits_traceback_is_printed_once(script):
    done = run("-n", 3, script, "raise")

    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    assert "KeyError: 'culprit'" in done.stderr and "rank 1 of" in done.stderr
    assert "runpy" not in done.stderr and "launch/script/script.py" not in done.stderr


@pytest.mark.parametrize(
    ("lines", "begins", "says"),
    [
        ("def f():\n    raise KeyError(1)\nf()\n", "line 3, in <module>", "KeyError: 1"),
        ("x = (\n", "line 1", "SyntaxError"),
        ("try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise KeyError(2)\n", "line 2, in <module>", "KeyError: 2"),
    ],
    ids=["raised", "no Python", "raised while another was handled"],
)
@pytest.mark.parametrize("as_module", [False, *exhaustively(True)], ids=["script", "module"])
def test_a_traceback_begins_in_the_script(tmp_path, monkeypatch, lines, begins, says, as_module):
    (tmp_path / "wrong.py").write_text(lines)
    monkeypatch.chdir(tmp_path)
    done = run("-n", 1, *(["-m", "wrong"] if as_module else ["wrong.py"]))

    assert done.returncode == 1 and says in done.stderr
    frames = [line for line in done.stderr.splitlines() if line.lstrip().startswith("File ")]
    assert "wrong.py" in frames[0] and begins in frames[0]
    assert all("wrong.py" in frame for frame in frames)


@pytest.mark.parametrize(
    "words",
    [
        [sys.executable, "-X", "dev", "-Wignore", "-O", "script.py"],
        ["python", "-m", "script"],
        *exhaustively(["python", "script.py"], ["python3", "-u", "script.py"]),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("count", ["-n", *exhaustively("-np")])
def test_commands_after_mpirun_run(script, monkeypatch, count, words):
    monkeypatch.chdir(script.parent)
    done = run(count, 2, *words, "print", "-n", "7")

    assert done.returncode == 0, done.stderr
    assert "[rank 1] 1 2 2 __main__ ['print', '-n', '7'] True" in done.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["python", "-c", "1"], "-c: expected a script or -m and a module"),
        (["python", "-u"], "python: expected a script or -m and a module behind it"),
        (["python2", "x.py"], "python2: ranks run in the Python that runs ripieno"),
        (["/nowhere/python", "x.py"], "/nowhere/python: ranks run in the Python that runs ripieno"),
        (["python", "nowhere.py"], "'nowhere.py' is not a file"),
    ],
)
def test_arguments_after_the_name_of_python_that_cannot_run_are_reported(words, sentence, capsys):
    with pytest.raises(SystemExit) as end:
        run_command(["-n", "2", *words], prog_name="ripieno run")

    assert end.value.code == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_options_of_the_interpreter_reach_the_ranks(tmp_path):
    (tmp_path / "flags.py").write_text("import sys; print(sys.flags.optimize, sys.warnoptions)")
    done = run("-n", 1, "--no-prefix", "python", "-O", "-W", "ignore", tmp_path / "flags.py")
    assert done.stdout == "1 ['ignore']\n"


@pytest.mark.parametrize(("mode", "code", "cause"), [("exit", 7, "status 7"), ("kill", 137, "killed by SIGKILL")])
def test_the_culprits_exit_code_is_passed_on(script, mode, code, cause):
    started = time.monotonic()
    done = run("-n", 3, script, mode)

    assert (done.returncode, done.stderr.count("Traceback")) == (code, 0)
    assert "rank 1" in done.stderr and cause in done.stderr
    assert time.monotonic() - started < under_load(20.0)


def test_a_run_fails_if_the_process_that_starts_its_ranks_is_killed(tmp_path):
    path = tmp_path / "kill.py"
    path.write_text("import os, signal, threading\nos.kill(os.getppid(), signal.SIGKILL)\nthreading.Event().wait()\n")
    done = run("-n", 1, path)
    assert done.returncode == 1 and "the process that started it ended first" in done.stderr, done


def test_the_culprits_exit_code_is_waited_for(tmp_path):
    path = tmp_path / "slow.py"
    path.write_text(
        "import atexit, os, sys, time\nimport ripieno as rp\n"
        f"if os.environ['RANK'] == '1':\n    atexit.register(time.sleep, {limits.OWN_REPORT_S + 1})\n"
        "comm = rp.init()\nif comm.rank == 1:\n    sys.exit(7)\ncomm.barrier()\n"
    )

    assert run("-n", 3, path).returncode == 7


def test_a_rank_killed_before_the_rendezvous_is_named_in_time(tmp_path):
    path = tmp_path / "early.py"
    path.write_text(
        "import os, time\nimport ripieno as rp\n"
        "if os.environ['RANK'] == '1':\n    print(time.monotonic(), flush=True)\n    os.kill(os.getpid(), 9)\n"
        "rp.init()\n"
    )
    done = run("-n", 3, path)
    waited_s = time.monotonic() - float(done.stdout.split()[-1])

    assert done.returncode == 137
    assert done.stderr.startswith(f"ripieno: rank 1 of {path} on {socket.gethostname()} failed: killed by SIGKILL")
    assert is_prompt(waited_s)


def test_threads_of_a_script_may_continue_after_its_last_line(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(limits, "OWN_REPORT_S", 1.0)
    path = tmp_path / "late.py"
    path.write_text(
        "import threading, time\nthreading.Thread(target=lambda: time.sleep(1.5) or print('late')).start()\n"
    )

    assert launch_run.run(launch_run.Script(str(path)), 2) == 0
    assert sorted(capfd.readouterr().out.splitlines()) == ["[rank 0] late", "[rank 1] late"]


def test_a_rank_that_closes_the_connection_to_its_launcher_has_failed(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(limits, "OWN_REPORT_S", 0.2)
    path = tmp_path / "daemon.py"
    path.write_text("import os, time\nif os.environ['RANK'] == '1':\n    os.closerange(3, 100)\ntime.sleep(60)\n")

    assert launch_run.run(launch_run.Script(str(path)), 2) == 1
    assert "rank 1 of" in (errors := capfd.readouterr().err) and "closed the connection" in errors


@pytest.mark.parametrize(("sleep_s", "end_s"), [(1.0, 50.0), (60.0, 0.3)], ids=["ends late", "never ends"])
def test_a_rank_whose_script_is_done_may_take_long_to_end(tmp_path, monkeypatch, capfd, sleep_s, end_s):
    monkeypatch.setattr(limits, "OWN_REPORT_S", 0.2)
    monkeypatch.setattr(limits, "END_S", end_s)
    path = tmp_path / "slow.py"
    path.write_text(
        "import atexit, os, time\n\n\n"
        f"def end():\n    os.closerange(3, 100)\n    time.sleep({sleep_s})\n\n\n"
        "if os.environ['RANK'] == '1':\n    atexit.register(end)\n"
    )

    assert launch_run.run(launch_run.Script(str(path)), 2) == 0
    assert ("its script has ended" in capfd.readouterr().err) == (end_s < 1.0)


def test_other_ranks_are_served_while_one_has_disconnected(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(limits, "OWN_REPORT_S", 50.0)
    path = tmp_path / "daemon.py"
    path.write_text(
        "import os, time\nfrom pathlib import Path\n"
        "hung_up = Path(__file__).parent / 'hung up'\n"
        "if os.environ['RANK'] == '1':\n    os.closerange(3, 100)\n    hung_up.touch()\n    time.sleep(60)\n"
        "while not hung_up.exists():\n    time.sleep(0.01)\nif os.environ['RANK'] == '2':\n    raise KeyError('2')\n"
    )

    assert launch_run.run(launch_run.Script(str(path)), 3) == 1
    errors = capfd.readouterr().err
    assert "rank 2 of" in errors and "KeyError: '2'" in errors and "rank 1 of" not in errors


def test_ctrl_c_ends_all_ranks(script):
    launcher, pids = start_sleepers(script)

    os.killpg(launcher.pid, signal.SIGINT)
    _, errors = launcher.communicate(timeout=20)

    assert (launcher.returncode, errors) == (130, "")
    assert gone_within(0, pids)


STUCK = """
    import threading
    import ripieno as rp

    def stuck():
        threading.Event().wait()

    def program(comm):
        stuck() if comm.rank == 1 else comm.allreduce(1.0)

    if HOW == "run":
        program(rp.init())
    else:
        with rp.launch(workers=3) as job:
            job.run(program)
"""


@pytest.mark.parametrize("how", ["run", "launch"])
def test_a_long_wait_and_ctrl_c_show_the_waiting_ranks_and_the_place_of_the_missing_rank(tmp_path, how):
    path = tmp_path / "stuck.py"
    path.write_text(textwrap.dedent(STUCK).replace("HOW", repr(how)))
    words = [*COMMAND, "-n", "3", "--no-prefix", path] if how == "run" else [sys.executable, path]
    variables = clean_environment(RIPIENO_WAIT_NOTICE_S="0.3")

    def is_complete(lines: list[str]) -> bool:
        text = "".join(lines)
        return "in stuck" in text and all(f"rank {rank}: in allreduce #0" in text for rank in (0, 2))

    with subprocess.Popen(words, env=variables, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines: list[str] = []
        while not is_complete(lines):
            lines.append(process.stderr.readline())
            assert lines[-1], "the output has ended: " + "".join(lines)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.readlines()
    assert is_complete(rest) and "for rank 1\n" in "".join(rest), rest
    # The traceback of an interrupted job ends at its call.
    assert len([line for line in rest if line.startswith("  File ") and "ripieno/" in line]) <= 1, rest


def test_ranks_share_one_import_of_the_package(tmp_path):
    path = tmp_path / "parent.py"
    name = "open('/proc/self/comm').read().strip().replace(' ', '_')"
    line = (
        f"f\"{{os.getppid()}} {{'numpy' in sys.modules}} {{{name}}} {{sys.stdin.seekable()}} {{sys.stdin.read()}}\\n\""
    )
    # One write, so that lines of ranks are not mixed.
    path.write_text(f"import os, sys\nos.write(1, {line}.encode())\n")
    command = [*COMMAND, "-n", "3", "--no-prefix", path]
    done = subprocess.run(command, env=clean_environment(), input="text", capture_output=True, text=True, timeout=250)
    parents, imported, names, seekable, read = zip(
        *(line.split(" ", 4) for line in done.stdout.splitlines()), strict=True
    )
    assert len(set(parents)) == 1 and set(imported) == {"True"}
    assert sorted(names) == ["rank_0", "rank_1", "rank_2"]
    # Rank 0 reads standard input.
    assert sorted(zip(read, seekable, strict=True)) == [("", "True"), ("", "True"), ("text", "False")]


def test_a_call_beyond_its_time_limit_ends_a_script(tmp_path):
    path = tmp_path / "stuck.py"
    path.write_text(textwrap.dedent(STUCK).replace("HOW", repr("run")))
    done = subprocess.run(
        [*COMMAND, "-n", "3", "--no-prefix", path],
        env=clean_environment(RIPIENO_CALL_TIMEOUT_S="0.3"),
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode != 0
    for text in (
        "in allreduce #0",
        ", longer than call_timeout_s",
        "for rank 1\n",
        "rank 1 waits for no rank",
        "in stuck",
    ):
        assert text in done.stderr, done.stderr


def test_ranks_end_when_the_launcher_is_killed(script):
    launcher, pids = start_sleepers(script)

    launcher.kill()
    launcher.wait(20)

    assert gone_within(2, pids)
    launcher.communicate(timeout=20)


def start_sleepers(script: Path) -> tuple[subprocess.Popen, list[int]]:
    launcher = subprocess.Popen(
        [*COMMAND, "-n", "3", script, "sleep"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=clean_environment(),
    )
    return launcher, [int(launcher.stdout.readline().split()[-1]) for _ in range(3)]


def test_a_missing_script_is_named(tmp_path):
    done = run("-n", 2, tmp_path / "nowhere.py")

    assert done.returncode == 2
    assert "nowhere.py' is not a file" in done.stderr


def test_a_script_that_cannot_be_read_is_reported_once(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("def (:\n")
    done = run("-n", 2, path)

    assert done.returncode == 1
    assert done.stderr.count("SyntaxError: ") <= 2 and "broken.py" in done.stderr


def test_under_another_launcher_the_script_just_runs(script, tmp_path):
    folder = tmp_path / "rendezvous"
    folder.mkdir()
    common = {"WORLD_SIZE": "2", "RIPIENO_DIRECTORY": str(folder), "RIPIENO_TOKEN": TOKEN}
    command = [*COMMAND, "-n", "2", str(script), "print"]
    ranks = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean_environment(RANK=str(rank), **common))
        for rank in range(2)
    ]

    outputs = [rank.communicate(timeout=250)[0] for rank in ranks]

    assert [output[:5] for output in outputs] == ["0 2 2", "1 2 2"]


def test_child_processes_of_a_rank_do_not_inherit_the_token(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(
        textwrap.dedent("""
        import os, subprocess, sys
        import ripieno as rp

        handed_over = os.environ["RIPIENO_TOKEN"]
        first = rp.init().world_size
        inherited = subprocess.run(["env"], stdout=subprocess.PIPE, check=True, text=True).stdout
        rp.init().close()
        # A world that is met again is still this launcher's.
        secrets = [handed_over, "what it is made of"]
        print(first, rp.init().world_size, *(each in inherited for each in (*secrets, "WORLD_SIZE=2")))
        """)
    )

    done = run("-n", 2, path, RIPIENO_SECRET="what it is made of")

    output = [f"[rank {rank}] 2 2 False False True" for rank in range(2)]
    assert sorted(done.stdout.splitlines()) == output, done.stderr


def test_an_uncaught_exception_is_reported_to_the_other_ranks(script, tmp_path):
    folder = tmp_path / "rendezvous"
    folder.mkdir()
    common = {"WORLD_SIZE": "2", "RIPIENO_DIRECTORY": str(folder), "RIPIENO_TOKEN": TOKEN}
    command = [sys.executable, str(script), "raise"]
    ranks = [
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=clean_environment(RANK=str(rank), **common))
        for rank in range(2)
    ]

    errors = [rank.communicate(timeout=250)[1] for rank in ranks]

    assert [rank.returncode for rank in ranks] == [1, 1]
    assert "RankFailed: rank 1" in errors[0] and "KeyError: 'culprit'" in errors[0]


@pytest.mark.parametrize("variables", [{}, {"MASTER_PORT": "tcp://10.0.0.1:80", "MASTER_SERVICE_HOST": "10.0.0.1"}])
def test_without_a_launcher_a_script_is_a_world_of_one(variables):
    with environment.from_environment(variables, threads=None) as comm:
        assert (comm.rank, comm.world_size, comm.allreduce(5)) == (0, 1, 5)


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"RANK": "0"}, "RANK set, but not WORLD_SIZE"),
        ({"RIPIENO_TOKEN": TOKEN}, "RIPIENO_TOKEN set, but not RANK, WORLD_SIZE"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR, MASTER_PORT, RIPIENO_TOKEN not set (export RIPIENO_TOKEN="),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "x", "RIPIENO_TOKEN": TOKEN}, "but not MASTER_PORT"),
        ({"RANK": "0", "WORLD_SIZE": "2", "RIPIENO_DIRECTORY": "/no/such"}, "cannot join in /no/such: "),
        ({"RANK": "2", "WORLD_SIZE": "2", "RIPIENO_DIRECTORY": "x", "RIPIENO_TOKEN": TOKEN}, "RANK=2: expected 0 … 1"),
        (
            {"RANK": "a", "WORLD_SIZE": "2", "RIPIENO_DIRECTORY": "x", "RIPIENO_TOKEN": TOKEN},
            "RANK='a': expected a whole number",
        ),
        (
            {
                "RANK": "0",
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "no-such-host.invalid",
                "MASTER_PORT": "1",
                "RIPIENO_TOKEN": TOKEN,
                "RIPIENO_RENDEZVOUS_TIMEOUT_S": "1",
            },
            "rank 0 must listen at 'no-such-host.invalid' (MASTER_ADDR), which could not be resolved for 1 s",
        ),
    ],
)
def test_an_incomplete_environment_is_named(variables, sentence):
    with pytest.raises(rp.RendezvousError) as caught:
        environment.from_environment(variables, threads=None)
    assert sentence in str(caught.value)


def test_rank_0_waits_until_its_name_is_known(monkeypatch):
    # A name service rejects the name of a pod until the pod has an address.
    answers = [socket.gaierror(socket.EAI_NONAME, "Name or service not known")] * 3 + [[]]
    resolved = []

    def resolve(host, port):
        resolved.append(host)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(socket, "getaddrinfo", resolve)

    addresses.await_name("train-0.train", timeout_s=60)

    assert resolved == ["train-0.train"] * 4


def of_two_ranks(rank: int, port: int, **variables: str) -> dict[str, str]:
    """Return the environment of a rank of a launcher that does not listen."""
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RIPIENO_TOKEN": TOKEN}
    return clean_environment(RANK=str(rank), WORLD_SIZE="2", **where, **variables)


def free_port() -> int:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        return reserved.getsockname()[1]


@pytest.mark.parametrize("limit", ["RIPIENO_WAIT_NOTICE_S", "RIPIENO_CALL_TIMEOUT_S"])
def test_a_missing_rank_prints_its_stack_without_a_launcher_that_listens(limit, tmp_path):
    path = tmp_path / "waits.py"
    path.write_text(
        "import threading, ripieno as rp\ncomm = rp.init()\n"
        "threading.Event().wait() if comm.rank == 1 else comm.barrier()\n"
    )
    port = free_port()
    with ExitStack() as stack:
        ranks = []
        for rank in range(2):
            options = {"env": of_two_ranks(rank, port, **{limit: "0.5"}), "stderr": subprocess.PIPE, "text": True}
            ranks.append(stack.enter_context(subprocess.Popen([sys.executable, path], **options)))
            stack.callback(ranks[rank].kill)
        printed = [ranks[1].stderr.readline().strip() for _ in range(2)]
        first = ranks[0].stderr.readline() if limit == "RIPIENO_WAIT_NOTICE_S" else ranks[0].stderr.read()

    place = f'ripieno:   File "{path}", line 3, in <module>'
    assert printed == ["ripieno: rank 1 waits for no rank, and is here:", place]
    assert "rank 0: in barrier #0" in first and "for rank 1" in first


def test_ctrl_c_ends_a_rank_that_waits_for_others_to_join():
    port = free_port()
    alone = of_two_ranks(0, port)
    with subprocess.Popen(
        [sys.executable, "-c", "import ripieno; ripieno.init()"], env=alone, stderr=subprocess.PIPE, text=True
    ) as rank:
        # A rank that listens on its port waits for the other rank.
        assert comes_true(lambda: not socket.socket().connect_ex(("127.0.0.1", port)), within_s=20)
        rank.send_signal(signal.SIGINT)
        _, output = rank.communicate(timeout=EVENT_TIMEOUT_S)
    assert "KeyboardInterrupt" in output
    assert rank.returncode == -signal.SIGINT


def test_a_rank_that_is_stopped_before_it_connects_to_the_others_is_named(tmp_path):
    path = tmp_path / "stops.py"
    path.write_text(
        "import os, signal\nimport ripieno as rp\n"
        "if os.environ['RANK'] == '1':\n    os.kill(os.getpid(), signal.SIGSTOP)\nrp.init()\n"
    )
    begun = time.monotonic()
    done = run("-n", 3, path)
    assert done.returncode == 1
    assert "rank 1" in done.stderr.splitlines()[-1] and "stopped for 5 s" in done.stderr.splitlines()[-1], done.stderr
    # The other ranks would wait for 60 s.
    assert time.monotonic() - begun < under_load(30.0)
