"""Who belongs to a job: the token shows nowhere, other users of the host get nowhere, and crowds hold nobody up."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import ripieno as rp
from crowd import alone
from stand_in_engine import StandIn

HERE = Path(__file__).parent
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
CROWD = alone("true")
CAN_BE_ALONE = CROWD is not None and subprocess.run(CROWD, capture_output=True).returncode == 0
needs_room = pytest.mark.skipif(not CAN_BE_ALONE, reason="no network namespace can be made here")

#: A token that is easily found again, in any form in which it could be told.
TOKEN = bytes(range(0x41, 0x61))
FORMS = (TOKEN, TOKEN.hex().encode(), TOKEN.hex().upper().encode(), repr(TOKEN).encode())


def shown(content: bytes) -> bool:
    return any(form in content for form in FORMS)


def command_lines() -> bytes:
    """Of all processes."""
    lines = b""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            lines += (process / "cmdline").read_bytes()
        except OSError:
            continue
    return lines


def look_around(comm):
    """What a program, and what it starts, can see of the token; and all that can be printed of a communicator."""
    started = subprocess.run(["env"], capture_output=True, check=True).stdout
    return started + command_lines() + repr(comm).encode() + str(vars(type(comm))).encode()


def fail(comm):
    comm.barrier()
    if comm.rank == 1:
        raise ValueError("with a traceback")
    comm.barrier()


@pytest.mark.parametrize("engine", ["local", "stand-in"])
def test_the_token_of_a_launched_job_shows_nowhere(engine, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(secrets, "token_bytes", lambda count=32: TOKEN[:count])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    events = []
    options = {"trace": "trace.json"} if engine == "local" else {"engine": StandIn()}
    with rp.launch(2, links="tcp", on_event=events.append, **options) as job:
        seen = b"".join(job.run(look_around)) + repr(job).encode()
        with pytest.raises(ValueError, match="with a traceback") as caught:
            job.run(fail)
        seen += "".join(map(str, (caught.value, caught.value.__cause__, caught.value.__notes__))).encode()
    seen += repr(events).encode()
    with rp.launch(1) as job, pytest.raises(rp.RipienoError) as refused:
        job.run(lambda comm: comm.allreduce(object(), op="nothing"))
    seen += repr(refused.value).encode()
    seen += b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    told = capfd.readouterr()
    assert not shown(seen + told.out.encode() + told.err.encode())


SCRIPT = """
    import os, pathlib, subprocess, sys
    token = os.environ["RIPIENO_TOKEN"].encode()
    import ripieno as rp
    comm = rp.init()
    def look():
        seen = subprocess.run(["env"], capture_output=True).stdout + repr(comm).encode() + repr(os.environ).encode()
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                seen += (process / "cmdline").read_bytes()
            except OSError:
                pass
        return seen
    assert token not in look(), "what is started, or lists processes, sees it"
    if comm.rank == 0:
        pathlib.Path(sys.argv[1]).write_bytes(token)
    comm.barrier()
    if comm.rank == 1:
        raise ValueError("with a traceback")
    comm.barrier()
"""


def test_the_token_of_a_script_shows_nowhere(tmp_path):
    folder, kept = tmp_path / "job", tmp_path / "token"
    folder.mkdir()
    (folder / "script.py").write_text(textwrap.dedent(SCRIPT))
    command = [sys.executable, "-m", "ripieno.cli", "run", "-n", "2", "--trace", "trace.json", "script.py", str(kept)]
    variables = {**os.environ, "TMPDIR": str(folder), "HOME": str(folder)}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, timeout=250)

    assert done.returncode == 1, done.stderr
    assert b"with a traceback" in done.stderr
    token = kept.read_bytes()
    left = [path for path in folder.rglob("*") if path.is_file()]
    assert folder / "trace.json" in left
    assert not [path for path in left if token in path.read_bytes()]
    assert token not in done.stdout + done.stderr


#: Another user, who tries whatever a user can try.
INTRUDER = """
    import os, socket, sys
    from pathlib import Path
    sys.path.insert(0, sys.argv[1])
    from crowd import doors, visit
    pids = sys.argv[2:]
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    for pid in pids:
        for name in ("environ", "mem", "maps", "fd"):
            try:
                place = Path("/proc", pid, name)
                found = os.listdir(place) if name == "fd" else open(place, "rb").read(1)
            except PermissionError:
                continue
            raise SystemExit(f"{place} can be read: {found}")
    tried = {socket.AF_UNIX: 0, socket.AF_INET: 0}
    # A knock under no token, and a greeting.
    greeting = b"RIPIENO\\x02" + bytes(48) + b"RIPIENO\\x01\\x02" + bytes(63)
    for door in doors():
        family = door[0]
        stranger = visit(door, greeting)
        if stranger is None:
            continue
        tried[family] = tried.get(family, 0) + 1
        stranger.settimeout(20)
        heard = b""
        try:
            while part := stranger.recv(4096):
                heard += part
        except OSError:
            pass
        if heard:
            raise SystemExit(f"{door} said {heard}")
    if not tried[socket.AF_UNIX] or not sum(tried.values()) > tried[socket.AF_UNIX]:
        raise SystemExit(f"nobody was there to try: {tried}")
"""

#: A job of which another user is told the processes.
BESIDE = """
    import os, subprocess, sys
    import ripieno as rp
    with rp.launch(2) as job:
        pids = job.run(lambda comm: os.getpid())
        tried = subprocess.run([sys.executable, "-c", sys.argv[2], sys.argv[1], *map(str, pids)], capture_output=True)
        assert job.run(lambda comm: comm.allreduce(1)) == [2, 2]
    sys.exit(tried.stderr.decode() or tried.returncode)
"""


@ROOT_ONLY
@needs_room
def test_another_user_of_the_host_cannot_join_and_reads_nothing():
    program, intruder = textwrap.dedent(BESIDE), textwrap.dedent(INTRUDER)
    command = alone(sys.executable, "-c", program, str(HERE), intruder)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


#: Launches of every kind amid a crowd, by processes that may open few files.
LAUNCHES = """
    import subprocess, sys
    from pathlib import Path
    sys.path.insert(0, sys.argv[1])
    import ripieno as rp
    from stand_in_engine import StandIn

    def total(comm):
        return comm.allreduce(1)

    for options in ({"links": "tcp"}, {"links": "tcp", "tls": True}, {"links": "shared-memory"}, {"engine": StandIn()}):
        with rp.launch(3, **options) as job:
            assert job.run(total) == [3, 3, 3], options
    script = Path("script.py")
    script.write_text("import ripieno as rp\\nprint(rp.init(links='tcp').allreduce(1))\\n")
    done = subprocess.run(
        [sys.executable, "-m", "ripieno.cli", "run", "-n", "3", "--no-prefix", "script.py"],
        capture_output=True,
        text=True,
    )
    # Lines of ranks that print at once may meet.
    assert "".join(done.stdout.split()) == "333", done
"""

#: A crowd, and what it hinders.
AMID = """
    import subprocess, sys
    here, program = sys.argv[1:3]
    crowd = subprocess.Popen([sys.executable, here + "/crowd.py", "300"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
    done = subprocess.run([sys.executable, "-c", program, here], stderr=subprocess.PIPE, text=True)
    visits = int(crowd.communicate()[0])
    sys.exit(done.stderr if done.returncode else 0 if visits >= 300 else f"only {visits} strangers came")
"""


@needs_room
def test_launches_of_every_kind_succeed_amid_a_crowd_with_few_descriptors(tmp_path):
    command = alone(sys.executable, "-c", textwrap.dedent(AMID), str(HERE), textwrap.dedent(LAUNCHES))
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
