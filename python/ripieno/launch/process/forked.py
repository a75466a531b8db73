"""Provide processes started by a fork server; `ripieno.launch.job.fork_server` documents the protocol."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any

from ripieno.errors import RipienoError
from ripieno.launch.deadline import is_ready
from ripieno.launch.limits import RENDEZVOUS_TIMEOUT_S
from ripieno.launch.process import processes

#: A process id or an exit status, in a status pipe.
NUMBER = struct.Struct("q")
#: Environment variable with modules, separated by commas, that workers find imported.
PRELOAD_VARIABLE = "RIPIENO_PRELOAD"
#: Further modules to import, set by this process.
preloaded: list[str] = []
# Modules that workers of the estimators need, and that take long to import. The server imports those that this process
# has imported.
_SHARED = re.compile(r"numpy\.random|pyarrow\.(compute|parquet)|scipy\.sparse|ripieno\.algorithms\.\w+\.(\w+_)?program")
# Variables that libraries, or Python, may read when they are loaded.
_AT_IMPORT = re.compile(
    r"ARROW|BLIS|GLIBC|GOMP|GOTO|KMP|LANG|LC_|LD_|MALLOC|MKL|NPY|NUMEXPR|NUMPY|OMP|OPENBLAS|PYTHON|RIPIENO|SCIPY|SKLEARN|TZ"
)
_LIMITS = sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})


class ForkedProcess:
    """A process that a fork server has started, with the methods of `subprocess.Popen` that launchers use."""

    def __init__(
        self, server: _ForkServer, pid: int, status: int, stdout: IO[bytes] | None, stderr: IO[bytes] | None
    ) -> None:
        self.pid, self.stdout, self.stderr = pid, stdout, stderr
        self.args = server.args
        #: None while the process runs; `processes.UNKNOWN_STATUS` if the server ended without reporting the status.
        self.returncode: int | None = None
        # The server ends when its last reference is deleted.
        self._server = server
        self._status = status
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit status, or None while the process runs."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0.0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process, and return its exit status.

        Raises
        ------
        subprocess.TimeoutExpired
            If the process still runs after `timeout` seconds.
        """
        with self._lock:
            if self.returncode is None:
                if not is_ready(self._status, timeout):
                    raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
                reported = os.read(self._status, NUMBER.size)
                self.returncode = NUMBER.unpack(reported)[0] if reported else processes.UNKNOWN_STATUS
            return self.returncode

    def fileno(self) -> int:
        """Return a descriptor that is readable after the end of the process."""
        return self._status

    def close(self) -> None:
        """Close the descriptor, after the last call of another method. Repeated calls have no effect."""
        if self._status >= 0:
            status, self._status = self._status, -1
            os.close(status)

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def __del__(self) -> None:
        self.close()


class _ServerEnded(RipienoError):
    pass


class _ForkServer:
    """A server for workers that inherit the same limits, thread variables and so on. `_lock` protects it."""

    def __init__(self, environment: Mapping[str, str], inherited: tuple[Any, ...], flags: Sequence[str]) -> None:
        self.inherited = inherited
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = processes.start(
                "ripieno.launch.job.fork_server",
                [str(theirs.fileno()), str(os.getpid() if processes.on_main_thread() else 0)],
                environment=environment,
                flags=flags,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self.args: Any = self._process.args
        self.end = weakref.finalize(self, _end, self._control, self._process, os.getpid())
        # At exit, the jobs of this process end first: `_end_all`.
        self.end.atexit = False
        _servers.add(self)

    def fork(
        self,
        channel: int,
        entry: str,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        piped: bool,
        reads: bool,
    ) -> ForkedProcess:
        """Start a process that holds a copy of the descriptor `channel`. `fork` describes the parameters."""
        # `kept` closes the descriptors of this process if the fork fails; the others belong to the worker or the
        # server.
        with ExitStack() as kept:
            with ExitStack() as passed:

                def pipe() -> tuple[int, int]:
                    end, theirs = os.pipe()
                    kept.callback(os.close, end)
                    passed.callback(os.close, theirs)
                    return end, theirs

                ends, outputs = zip(*(pipe() for _ in range(2)), strict=True) if piped else ((), (1, 2))
                status, reported = pipe()
                stdin = os.dup(0) if reads else os.open(os.devnull, os.O_RDONLY)
                passed.callback(os.close, stdin)
                folder = os.open(".", os.O_PATH)
                passed.callback(os.close, folder)
                request = self._request(environment, entry, arguments)
                passed.callback(os.close, request)
                # If the server has ended, its end of the status pipe closes, too.
                with suppress(BrokenPipeError, ConnectionResetError):
                    socket.send_fds(self._control, [b"f"], [request, channel, stdin, *outputs, folder, reported])
            if not is_ready(status, RENDEZVOUS_TIMEOUT_S):
                raise RipienoError(
                    f"no worker process was started within {RENDEZVOUS_TIMEOUT_S:.0f} s: is the machine overloaded?"
                )
            pid = os.read(status, NUMBER.size)
            if not pid:
                ending = processes.ending(processes.wait_for_end(self._process, processes.STEP_S))
                raise _ServerEnded(f"the process that starts workers has failed: {ending}")
            kept.pop_all()
        stdout, stderr = (os.fdopen(end, "rb", 0) for end in ends) if piped else (None, None)
        return ForkedProcess(self, NUMBER.unpack(pid)[0], status, stdout, stderr)

    @staticmethod
    def _request(environment: Mapping[str, str], entry: str, arguments: Sequence[str]) -> int:
        """Return a file with the modules to import before the fork, the environment, and the program of the process."""
        named = [*os.environ.get(PRELOAD_VARIABLE, "").split(","), *preloaded]
        modules = [*filter(None, named), *filter(_SHARED.fullmatch, list(sys.modules))]
        request = os.memfd_create("ripieno-worker")
        with os.fdopen(os.dup(request), "wb") as file:
            file.write(json.dumps([modules, {**os.environ, **environment}, entry, list(arguments)]).encode())
        return request


_lock = threading.Lock()
_servers: weakref.WeakSet[_ForkServer] = weakref.WeakSet()
# The servers that were used last, the latest first.
_recent: list[_ForkServer] = []
_RECENT = 2


def fork(
    channel: int,
    entry: str,
    arguments: Sequence[str] = (),
    *,
    environment: Mapping[str, str],
    piped: bool,
    reads: bool = False,
    flags: Sequence[str] = (),
) -> ForkedProcess:
    """Start a process by a recent server, or by a new server if a recent one would pass on other settings.

    Parameters
    ----------
    channel
        Descriptor of the process's end of its channel.
    entry, arguments
        A module, and the arguments of its function ``main`` after that descriptor.
    environment
        Variables to add to the environment of this process.
    piped
        Whether to open pipes for the output. Otherwise the worker inherits the current output of this process.
    reads
        Whether the new process reads the standard input of this process.
    flags
        Options of the interpreter.
    """
    with _lock:
        inherited = (*_inherited(environment), tuple(flags))
        server = next((each for each in _recent if each.inherited == inherited), None)
        if server is not None:
            _recent.remove(server)
            with suppress(_ServerEnded):
                child = server.fork(channel, entry, arguments, environment=environment, piped=piped, reads=reads)
                _recent.insert(0, server)
                return child
        server = _ForkServer(environment, inherited, flags)
        _recent[:] = [server, *_recent][:_RECENT]
        return server.fork(channel, entry, arguments, environment=environment, piped=piped, reads=reads)


def _inherited(environment: Mapping[str, str]) -> tuple[Any, ...]:
    """Return all inherited settings that `_ForkServer.fork` does not pass on."""
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return (
        os.getpid(),
        sys.executable,
        {name: value for name, value in {**os.environ, **environment}.items() if _AT_IMPORT.match(name)},
        [status[name] for name in ("Umask", "Uid", "Gid", "Groups", "SigIgn", "CapEff") if name in status],
        sorted(os.sched_getaffinity(0)),
        os.getpriority(os.PRIO_PROCESS, 0),
        os.getpgrp(),
        [resource.getrlimit(kind) for kind in _LIMITS],
        # Determines how Python buffers the output.
        [os.isatty(number) for number in (1, 2)],
    )


def _end(control: socket.socket, server: subprocess.Popen[bytes], owner_pid: int) -> None:
    """End a server without workers. A fork of the launching process only closes its copy of the descriptor."""
    control.close()
    if os.getpid() == owner_pid:
        server.kill()
        server.wait()


def _end_all() -> None:
    for server in list(_servers):
        server.end()


# Exit functions run in reverse order, so this one runs after the exit functions of all jobs.
weakref.finalize(_ForkServer, _end_all)
