"""Provide child programs, single or as ranks, with a timeout. Errors include their output."""

from __future__ import annotations

import os
import secrets
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import IO

from ripieno.errors import RipienoError
from ripieno.launch.script.addresses import reserved_port

#: Default timeout of a program.
TIMEOUT_S = 900.0
# Time for a program to end its own children.
TERMINATION_S = 3.0
OUTPUT_CHARACTERS = 2000


class ProgramFailed(RipienoError):
    """A measured program failed or timed out; the message has its output."""


def run(
    command: Sequence[str | Path], *, environment: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S
) -> str:
    """Run a program to its end and return its output.

    Raises
    ------
    ProgramFailed
        If it cannot start, exits with a status other than 0, or exceeds `timeout_s`.
    """
    return _run_all([(command, environment or {})], timeout_s, "")


def run_ranks(
    commands: Sequence[Sequence[str | Path]],
    *,
    address: str = "127.0.0.1",
    port: int | None = None,
    environment: Callable[[int], Mapping[str, str]] = lambda rank: {},
    timeout_s: float = TIMEOUT_S,
) -> str:
    """Run one program per rank, connected through environment variables, and return the output of rank 0.

    Raises
    ------
    ProgramFailed
        If one fails, which ends the others, or exceeds `timeout_s`.
    """
    with reserved_port(address) if port is None else nullcontext(port) as rendezvous_port:
        shared = {
            "WORLD_SIZE": str(len(commands)),
            "MASTER_ADDR": address,
            "MASTER_PORT": str(rendezvous_port),
            "RIPIENO_TOKEN": secrets.token_hex(32),
            # RIPIENO_DIRECTORY would take precedence over MASTER_ADDR.
            "RIPIENO_DIRECTORY": "",
        }
        ranks = [(command, {**shared, "RANK": str(rank), **environment(rank)}) for rank, command in enumerate(commands)]
        return _run_all(ranks, timeout_s, "rank {} of ")


def _run_all(commands: Sequence[tuple[Sequence[str | Path], Mapping[str, str]]], timeout_s: float, label: str) -> str:
    """Run all until they end or one fails, and return the output of the first. `label` is a format for its number."""
    with ExitStack() as stack:
        # Output goes to files: a full pipe without a reader would block the writer.
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        names = [(f"{folder}/{number}.out", f"{folder}/{number}.err") for number in range(len(commands))]
        running: list[subprocess.Popen[bytes]] = []
        stack.callback(_end, running)
        for (command, environment), (out, err) in zip(commands, names, strict=True):
            with open(out, "wb") as out_file, open(err, "wb") as err_file:
                running.append(_start([str(word) for word in command], environment, out_file, err_file))
        failed = _wait(running, timeout_s)
        if failed is not None:
            words = " ".join(str(word) for word in commands[failed][0])[:OUTPUT_CHARACTERS]
            status = running[failed].poll()
            how = f"did not end within {timeout_s:g} s" if status is None else f"ended with {status}"
            output = "\n".join(filter(None, (_text(name) for name in reversed(names[failed]))))[-OUTPUT_CHARACTERS:]
            raise ProgramFailed(f"{label.format(failed)}{words!r} {how}; its output: {output or 'nothing'}")
        return _text(names[0][0])


def _start(words: list[str], environment: Mapping[str, str], out: IO[bytes], err: IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        # A separate session, so that killing it also ends its children.
        return subprocess.Popen(
            words,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    except OSError as error:
        raise ProgramFailed(f"{words[0]} cannot start: {error.strerror}") from error


def _wait(running: Sequence[subprocess.Popen[bytes]], timeout_s: float) -> int | None:
    """Wait until all have succeeded. Otherwise return the number of the first failed or timed-out program.

    It sleeps until a program ends: polling would take cores from the measurement.
    """
    deadline = time.monotonic() + timeout_s
    with ExitStack() as stack, selectors.DefaultSelector() as ends:
        for number, process in enumerate(running):
            descriptor = os.pidfd_open(process.pid)
            stack.callback(os.close, descriptor)
            ends.register(descriptor, selectors.EVENT_READ, number)
        while ends.get_map():
            ended = ends.select(max(0.0, deadline - time.monotonic()))
            if not ended:
                return min(_number(key) for key in ends.get_map().values())
            for key, _ in ended:
                ends.unregister(key.fd)
                if running[_number(key)].wait() != 0:
                    return _number(key)
    return None


def _number(key: selectors.SelectorKey) -> int:
    number: int = key.data
    return number


def _end(running: Sequence[subprocess.Popen[bytes]]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in running:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
        deadline = time.monotonic() + TERMINATION_S
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))


def _text(name: str) -> str:
    return Path(name).read_text(errors="replace").strip()
