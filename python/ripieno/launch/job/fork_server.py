"""Provide a server that starts workers by fork: ``python -m ripieno.launch.job.fork_server <descriptor> <launcher>``.

It has imported NumPy and this package, so a forked worker starts in milliseconds. It ends when its launcher
disconnects.

Protocol: the launcher sends one byte and seven descriptors: a file with the names of modules to import first, the
worker's environment, its module and arguments; its channel; its standard input, output and error; its current folder;
and the write end of a pipe. The server writes the process id of the worker into that pipe, and the exit status after
its end.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from ripieno._deferred import deferred
from ripieno.launch.process import processes
from ripieno.launch.process.forked import NUMBER

_DESCRIPTORS = 7


def main(fd: int, launcher_pid: int) -> None:
    """Serve the launcher at the other end of descriptor `fd`; in a forked process, run its module.

    `launcher_pid` is 0 if the launcher started this process on another thread than its main thread.
    """
    processes.ignore_interrupts()
    if launcher_pid:
        processes.die_with_parent(launcher_pid)
    forked = _Server(fd).serve()
    if forked is not None:
        channel, entry, arguments = forked
        import_module(entry).main(channel, *arguments)


class _Server:
    """The state of the server: the launcher's connection, and the running workers."""

    def __init__(self, fd: int) -> None:
        self._control = socket.socket(fileno=fd)
        self._pid = os.getpid()
        # Descriptors of the status pipes of running workers, by process id.
        self._running: dict[int, int] = {}
        self._woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake)
        self._sigchld: Any = signal.signal(signal.SIGCHLD, lambda *_: None)
        self._watch = select.poll()
        self._watch.register(fd, select.POLLIN)
        self._watch.register(self._woken, select.POLLIN)
        # Collections during imports would free little.
        gc.disable()
        gc.freeze()

    def serve(self) -> tuple[int, str, list[str]] | None:
        """Fork on request until the launcher disconnects. In a worker, return its channel, module and arguments."""
        while True:
            for fd, _ in self._watch.poll():
                if fd == self._woken:
                    self._report()
                else:
                    request, fds, _, _ = socket.recv_fds(self._control, 1, _DESCRIPTORS)
                    if not request:
                        return None
                    with os.fdopen(fds[0], "rb") as file:
                        file.seek(0)
                        modules, environment, entry, arguments = json.load(file)
                    self._import([*modules, entry])
                    channel = self._fork(environment, *fds[1:])
                    if channel is not None:
                        return channel, entry, arguments

    @staticmethod
    def _import(modules: Sequence[str]) -> None:
        missing = [name for name in modules if name not in sys.modules]
        for name in missing:
            # A worker that needs the module imports it again, and reports the error.
            with suppress(Exception), deferred():
                import_module(name)
        if missing:
            # Collections in the workers do not touch the objects of the modules, so their memory stays shared.
            gc.freeze()

    def _fork(
        self, environment: dict[str, str], channel: int, stdin: int, stdout: int, stderr: int, folder: int, status: int
    ) -> int | None:
        pid = os.fork()
        if pid == 0:
            gc.enable()
            self._become_worker(channel, (stdin, stdout, stderr), folder)
            for name in set(os.environ) - set(environment):
                del os.environ[name]
            os.environ.update(environment)
            return channel
        for fd in (channel, stdin, stdout, stderr, folder):
            os.close(fd)
        self._running[pid] = status
        self._send(status, pid)
        return None

    def _become_worker(self, channel: int, streams: tuple[int, int, int], folder: int) -> None:
        processes.die_with_parent(self._pid)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, self._sigchld)
        for number, fd in enumerate(streams):
            os.dup2(fd, number)
        # The stream of the server knows its own input as seekable, which a pipe is not.
        sys.stdin = os.fdopen(0, encoding=sys.stdin.encoding, errors=sys.stdin.errors, closefd=False)
        os.fchdir(folder)
        self._control.detach()
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and int(name) != channel:
                # The list contains the descriptor that it was read from.
                with suppress(OSError):
                    os.close(int(name))
        if "numpy.random" in sys.modules:
            # The global generators of workers must differ.
            sys.modules["numpy.random"].seed()

    def _report(self) -> None:
        """Send the status of each worker that has ended."""
        with suppress(BlockingIOError):
            os.read(self._woken, 1 << 12)
        for pid, status in list(self._running.items()):
            ended, wait_status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._running[pid]
                self._send(status, os.waitstatus_to_exitcode(wait_status))
                os.close(status)

    @staticmethod
    def _send(status: int, number: int) -> None:
        # The launcher may have closed its end.
        with suppress(BrokenPipeError):
            os.write(status, NUMBER.pack(number))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
