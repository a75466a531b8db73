"""Provide ranks on listed hosts, started by a remote shell: this process is rank 0, and each host runs one more rank.

All hosts are probed concurrently, and hosts that do not answer are left out. They run the same Python at the same path.
The token is sent through the shell's standard input, so no process list shows it.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from ripieno.errors import InputError
from ripieno.launch.encryption import TLS_VARIABLE
from ripieno.launch.limits import RENDEZVOUS_TIMEOUT_S, SHUTDOWN_S
from ripieno.launch.process import processes as process
from ripieno.launch.process.interruption import deferred_signals
from ripieno.launch.script.addresses import address_towards, reserved_port

#: Batch mode: without a terminal a password cannot be entered.
SHELL = "ssh -o BatchMode=yes -o ConnectTimeout=10"
#: Number of concurrent probes.
PROBE_COUNT_MAX = 64


def read_hosts(path: str) -> list[str]:
    """Return the hosts of a file, one per line, without blank lines and comments that start with ``#``.

    Raises
    ------
    InputError
        If the file is missing or empty, or lists a host twice.
    """
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"hosts of {path}: {error}") from None
    hosts = [line.partition("#")[0].strip() for line in text.splitlines()]
    hosts = [host for host in hosts if host]
    wrong = [host for host in hosts if host.startswith("-") or len(host.split()) > 1 or hosts.count(host) > 1]
    if wrong or not hosts:
        found_text = f"{wrong[0]!r}" if wrong else "nothing"
        raise InputError(f"hosts of {path}: expected the name of a host on each line, once each, found {found_text}")
    return hosts


def unusable_hosts(hosts: Sequence[str], shell: str, python: str) -> dict[str, str]:
    """Return for each host the reason why it is unusable, or an empty string."""

    shell_words = _split(shell)

    def answer(host: str) -> str:
        command = [*shell_words, host, f"{shlex.quote(python)} -c 'import ripieno'"]
        try:
            found = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=RENDEZVOUS_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return f"no answer within {RENDEZVOUS_TIMEOUT_S:g} s"
        errors = found.stderr.decode(errors="replace").strip().splitlines()
        return "" if found.returncode == 0 else (errors[-1] if errors else process.ending(found.returncode))

    with ThreadPoolExecutor(min(len(hosts), PROBE_COUNT_MAX)) as pool:
        return dict(zip(hosts, pool.map(answer, hosts), strict=True))


def _split(shell: str) -> list[str]:
    program, *options = shlex.split(shell) or [""]
    found = shutil.which(program)
    if found is None:
        raise InputError(f"--ssh {shell!r}: there is no program {program!r} here")
    return [found, *options]


def _own_address(host: str) -> str:
    """Return the local address that `host` can reach, or raise `InputError` if its name cannot be resolved."""
    name = host.rpartition("@")[2]
    try:
        return address_towards(name)
    except OSError as error:
        raise InputError(f"--address: expected, for the address of {name} is not known here ({error})") from None


@contextmanager
def ranks_on(
    hosts: Sequence[str], words: Sequence[str], *, shell: str, python: str, address: str | None
) -> Iterator[None]:
    """Run ``python -m ripieno WORDS`` on each of `hosts` while this process is rank 0.

    Inside the context, the environment configures `ripieno.init`. At the end the other ranks must exit in time.
    """
    address = address or _own_address(hosts[0])
    with reserved_port(address) as port:
        world = {
            "WORLD_SIZE": str(1 + len(hosts)),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": address,
            "MASTER_PORT": str(port),
            # Racks must be known on all hosts or on none. The list determines the order of ranks.
            "RACK": "",
            "RIPIENO_RACKS": "",
        }
        token = secrets.token_hex(32)
        variables = {name: os.environ[name] for name in (TLS_VARIABLE,) if name in os.environ}
        ranks: list[subprocess.Popen[bytes]] = []
        try:
            for rank, host in enumerate(hosts, 1):
                with deferred_signals():
                    ranks.append(_start(shell, host, python, words, {**variables, **world, "RANK": str(rank)}, token))
            with _environment({**world, "RANK": "0", "RIPIENO_TOKEN": token}):
                yield
        finally:
            process.end(ranks, grace_s=SHUTDOWN_S)


def _start(
    shell: str, host: str, python: str, words: Sequence[str], variables: Mapping[str, str], token: str
) -> subprocess.Popen[bytes]:
    assigned = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    program = shlex.join([python, "-m", "ripieno", *words])
    command = f"read -r RIPIENO_TOKEN; export RIPIENO_TOKEN {assigned}; exec {program}"
    child = subprocess.Popen(
        process.wrapped_to_die_with_parent([*_split(shell), host, f"exec sh -c {shlex.quote(command)}"]),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert child.stdin is not None
    try:
        child.stdin.write(f"{token}\n".encode())
        child.stdin.close()
    except BrokenPipeError:
        pass  # The rendezvous reports the missing rank.
    return child


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    # RIPIENO_DIRECTORY would take precedence over the address.
    before = {name: os.environ.pop(name, None) for name in (*variables, "RIPIENO_DIRECTORY")}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
