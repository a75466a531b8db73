"""Programs that run to their end, or as ranks: bounded in time, and told with all they said when they fail."""

from __future__ import annotations

import os
import secrets
import selectors
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from ripieno.errors import RipienoError

#: No run of a program takes longer than this, unless told otherwise.
TIMEOUT_S = 900.0
# An ending program has this long to end its own children.
END_S = 3.0
SAID_CHARACTERS = 2000


class ProgramFailed(RipienoError):
    """A program that was measured ended badly or not at all; the text has what it said."""


def run(
    command: Sequence[str | Path], *, environment: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S
) -> str:
    """Run a program to its end; its output.

    Raises
    ------
    ProgramFailed
        If it cannot start, ends with another status than 0, or not within `timeout_s`.
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
    """Run one program per rank, told of each other by the environment; what rank 0 printed.

    Raises
    ------
    ProgramFailed
        If one ends badly, which ends the others, or not within `timeout_s`.
    """
    with _reserved_port(address if port is None else None) as free_port:
        shared = {
            "WORLD_SIZE": str(len(commands)),
            "MASTER_ADDR": address,
            "MASTER_PORT": str(port or free_port),
            "RIPIENO_TOKEN": secrets.token_hex(32),
            # It would come before MASTER_ADDR.
            "RIPIENO_DIRECTORY": "",
        }
        ranks = [(command, {**shared, "RANK": str(rank), **environment(rank)}) for rank, command in enumerate(commands)]
        return _run_all(ranks, timeout_s, "rank {} of ")


def _run_all(commands: Sequence[tuple[Sequence[str | Path], Mapping[str, str]]], timeout_s: float, who: str) -> str:
    """Run all until they end or one fails; what the first printed. `who` has a place for a number."""
    with ExitStack() as stack:
        # Files hold what is said, however much: a pipe that nobody reads would block who writes.
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        names = [(f"{folder}/{number}.out", f"{folder}/{number}.err") for number in range(len(commands))]
        running: list[subprocess.Popen[bytes]] = []
        stack.callback(_end, running)
        for (command, environment), (out, err) in zip(commands, names, strict=True):
            with open(out, "wb") as out_file, open(err, "wb") as err_file:
                running.append(_start([str(word) for word in command], environment, out_file, err_file))
        failed = _wait(running, timeout_s)
        if failed is not None:
            words = " ".join(str(word) for word in commands[failed][0])[:SAID_CHARACTERS]
            status = running[failed].poll()
            how = f"did not end within {timeout_s:g} s" if status is None else f"ended with {status}"
            said = "\n".join(filter(None, (_text(name) for name in reversed(names[failed]))))[-SAID_CHARACTERS:]
            raise ProgramFailed(f"{who.format(failed)}{words!r} {how}; it said: {said or 'nothing'}")
        return _text(names[0][0])


def _start(words: list[str], environment: Mapping[str, str], out: IO[bytes], err: IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        # A session of its own, so that ending it ends what it has started.
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
    """Until all have ended well; the number of the first seen to have failed, or of one that was too slow.

    It sleeps until one ends: looking now and then would take cores from what is measured.
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
        deadline = time.monotonic() + END_S
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))


def _text(name: str) -> str:
    return Path(name).read_text(errors="replace").strip()


@contextmanager
def _reserved_port(address: str | None) -> Iterator[int]:
    """A free port of this host, kept from everyone but who allows reuse, as rank 0 does; 0 without an address."""
    if address is None:
        yield 0
        return
    with socket.socket() as reservation:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reservation.bind((address, 0))
        yield reservation.getsockname()[1]
