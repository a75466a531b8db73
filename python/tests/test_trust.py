"""Tests of access to jobs: tokens do not leak, other users have no access, floods of connections stop no launch."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import secrets
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import ripieno as rp
from malice import Marker
from ripieno.checkpoints.folder import FILE, CheckpointContents, Checkpoints
from stand_in_engine import StandIn
from unauthenticated_peers import isolated

HERE = Path(__file__).parent
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the user")
NAMESPACE_COMMAND = isolated("true")
HAS_NETWORK_NAMESPACE = (
    NAMESPACE_COMMAND is not None and subprocess.run(NAMESPACE_COMMAND, capture_output=True).returncode == 0
)
needs_network_namespace = pytest.mark.skipif(not HAS_NETWORK_NAMESPACE, reason="network namespaces are not available")

# A token that is easy to find in any printed form.
TOKEN = bytes(range(0x41, 0x61))
FORMS = (TOKEN, TOKEN.hex().encode(), TOKEN.hex().upper().encode(), repr(TOKEN).encode())


def is_visible(content: bytes) -> bool:
    return any(form in content for form in FORMS)


def command_lines() -> bytes:
    """Return the command lines of all processes."""
    lines = b""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            lines += (process / "cmdline").read_bytes()
        except OSError:
            continue
    return lines


def visible_data(comm):
    """Return everything that a program, its children, and the printed communicator show of the token."""
    started = subprocess.run(["env"], capture_output=True, check=True).stdout
    return started + command_lines() + repr(comm).encode() + str(vars(type(comm))).encode()


def fail(comm):
    comm.barrier()
    if comm.rank == 1:
        raise ValueError("with a traceback")
    comm.barrier()


@pytest.mark.parametrize("engine", ["local", "stand-in"])
def test_the_token_of_a_launched_job_is_not_visible(engine, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(secrets, "token_bytes", lambda count=32: TOKEN[:count])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    events = []
    options = {"trace": "trace.json"} if engine == "local" else {"engine": StandIn()}
    with rp.launch(2, links="tcp", on_event=events.append, **options) as job:
        seen = b"".join(job.run(visible_data)) + repr(job).encode()
        with pytest.raises(ValueError, match="with a traceback") as caught:
            job.run(fail)
        seen += "".join(map(str, (caught.value, caught.value.__cause__, caught.value.__notes__))).encode()
    seen += repr(events).encode()
    with rp.launch(1) as job, pytest.raises(rp.RipienoError) as refused:
        job.run(lambda comm: comm.allreduce(object(), op="nothing"))
    seen += repr(refused.value).encode()
    seen += b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    output = capfd.readouterr()
    assert not is_visible(seen + output.out.encode() + output.err.encode())


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
    assert token not in look(), "child processes and process lists show the token"
    if comm.rank == 0:
        pathlib.Path(sys.argv[1]).write_bytes(token)
    comm.barrier()
    if comm.rank == 1:
        raise ValueError("with a traceback")
    comm.barrier()
"""


def test_the_token_of_a_script_is_not_visible(tmp_path):
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


# The program of another user, which tries all means of access to the processes and listeners of a job.
INTRUDER = """
    import os, socket, sys
    from pathlib import Path
    sys.path.insert(0, sys.argv[1])
    from unauthenticated_peers import connect, listeners
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
    # A pre-authentication tag without the token, and a greeting.
    greeting = b"RIPIENO\\x02" + bytes(48) + b"RIPIENO\\x01\\x02" + bytes(63)
    for listener in listeners():
        family = listener[0]
        connection = connect(listener, greeting)
        if connection is None:
            continue
        tried[family] = tried.get(family, 0) + 1
        connection.settimeout(20)
        reply = b""
        try:
            while part := connection.recv(4096):
                reply += part
        except OSError:
            pass
        if reply:
            raise SystemExit(f"{listener} replied {reply}")
    if not tried[socket.AF_UNIX] or not sum(tried.values()) > tried[socket.AF_UNIX]:
        raise SystemExit(f"no TCP or no Unix listener was found: {tried}")
"""

# A job, and the program of another user that knows the process ids of the ranks.
JOB_WITH_INTRUDER = """
    import os, subprocess, sys
    import ripieno as rp
    with rp.launch(2) as job:
        pids = job.run(lambda comm: os.getpid())
        tried = subprocess.run([sys.executable, "-c", sys.argv[2], sys.argv[1], *map(str, pids)], capture_output=True)
        assert job.run(lambda comm: comm.allreduce(1)) == [2, 2]
    sys.exit(tried.stderr.decode() or tried.returncode)
"""


@ROOT_ONLY
@needs_network_namespace
def test_another_user_of_the_host_cannot_connect_or_read():
    program, intruder = textwrap.dedent(JOB_WITH_INTRUDER), textwrap.dedent(INTRUDER)
    command = isolated(sys.executable, "-c", program, str(HERE), intruder)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


#: Launches of every kind, by processes with a low limit of open files.
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
    # Lines that ranks print at the same time may be joined.
    assert "".join(done.stdout.split()) == "333", done
"""

# A program under a flood of 300 connections to each of its listeners.
UNDER_FLOOD = """
    import subprocess, sys
    here, program = sys.argv[1:3]
    flood = [sys.executable, here + "/unauthenticated_peers.py", "300"]
    peers = subprocess.Popen(flood, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
    done = subprocess.run([sys.executable, "-c", program, here], stderr=subprocess.PIPE, text=True)
    opened_count = int(peers.communicate()[0])
    sys.exit(done.stderr if done.returncode else 0 if opened_count >= 300 else f"only {opened_count} connections")
"""


@needs_network_namespace
def test_launches_succeed_among_unauthenticated_peers_with_few_descriptors(tmp_path):
    command = isolated(sys.executable, "-c", textwrap.dedent(UNDER_FLOOD), str(HERE), textwrap.dedent(LAUNCHES))
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr


# Files written by other users


def forged_checkpoint(folder: Path, name: str, *blobs: bytes) -> Path:
    """Write a checkpoint with a valid digest; each blob is a pickle."""
    place = folder / name
    place.mkdir(parents=True)
    values = ["tuple", [["pickle", number] for number in range(len(blobs))]]
    body = {"name": name, "program": name, "iteration": 1, "sizes": [len(each) for each in blobs], "values": values}
    text = b"ripieno checkpoint 2\n" + json.dumps(body).encode() + b"\n" + b"".join(blobs)
    (place / FILE).write_bytes(text + hashlib.blake2b(text, digest_size=32).digest())
    return place


def test_the_checkpoint_of_a_fit_runs_no_code(tmp_path):
    forged_checkpoint(tmp_path, "kmeans", pickle.dumps(Marker(tmp_path / "ran")))

    with pytest.raises(rp.CheckpointError, match="holds a pickle, which could run code"):
        Checkpoints(tmp_path, "kmeans", "kmeans", objects=False).load()

    assert not (tmp_path / "ran").exists()
    with pytest.raises(rp.SerializationError, match="a Marker cannot be kept in a checkpoint of arrays and numbers"):
        Checkpoints(tmp_path, "other", "other", objects=False).save(CheckpointContents(1, Marker(tmp_path), {}))


def test_a_link_in_a_checkpoint_is_rejected(tmp_path):
    place = forged_checkpoint(tmp_path, "job")
    (place / FILE).rename(tmp_path / "elsewhere")
    (place / FILE).symlink_to(tmp_path / "elsewhere")

    with pytest.raises(rp.CheckpointError, match="checkpoint is a symbolic link"):
        Checkpoints(tmp_path, "job", "job").load()


@pytest.mark.parametrize("by", ["mode", pytest.param("owner", marks=ROOT_ONLY)])
def test_a_checkpoint_that_others_may_have_written_is_rejected(tmp_path, by):
    place = forged_checkpoint(tmp_path, "job", pickle.dumps(Marker(tmp_path / "ran")))
    place.chmod(0o777 if by == "mode" else 0o700)
    if by == "owner":
        os.chown(place, 65534, -1)
    reason = "is open to other users, with mode 777" if by == "mode" else "belongs to the user"

    with pytest.raises(rp.CheckpointError, match=f"{reason}.*chmod go-w {place}"):
        Checkpoints(tmp_path, "job", "job")

    assert not (tmp_path / "ran").exists()


def test_a_program_that_trusts_the_writer_resumes_from_objects(tmp_path):
    def job(**options):
        return rp.MapReduce(len, workers=1, name="shared", checkpoint=tmp_path, **options)

    with job() as first:
        first.state["where"] = Path("kept")
        first.save()
    (tmp_path / "shared").chmod(0o777)

    with pytest.raises(rp.CheckpointError, match="is open to other users"):
        job()
    with job(trusted=True) as again:
        assert again.state == {"where": Path("kept")}


def test_a_new_checkpoint_is_not_writable_by_the_group(tmp_path):
    mask = os.umask(0o002)
    try:
        for _ in range(2):
            made = Checkpoints(tmp_path, "job", "job")
            made.save(CheckpointContents(1, np.ones(2), {}))
            made.close()
    finally:
        os.umask(mask)

    assert not made.folder.stat().st_mode & 0o022
