"""Provide the start and the end of Python child processes that never outlive their launcher.

A child ignores Ctrl-C, which its launcher handles. It dies with its launcher, and imports this package from the same
path.
"""

from __future__ import annotations

import ctypes
import os
import signal
import site
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn, Protocol

from ripieno.errors import RipienoError
from ripieno.launch.deadline import Deadline, is_ready
from ripieno.launch.limits import POLL_S

# A child is ended in steps: request, SIGTERM, SIGKILL. This is the time for each step.
STEP_S = 1.0
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
# Exit status of a process if the status was lost with its fork server.
UNKNOWN_STATUS = 1 << 16
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class Child(Protocol):
    """The methods of `subprocess.Popen` that end processes."""

    @property
    def pid(self) -> int: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int, /) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


def start(
    module: str,
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    pass_fds: Sequence[int],
    flags: Sequence[str] = (),
    **options: Any,
) -> subprocess.Popen[bytes]:
    """Start ``python flags -m module arguments``, with `environment` added to the environment of this process."""
    if not sys.executable:
        raise RipienoError("sys.executable is not set: this Python is embedded and cannot start worker processes")
    with _interrupt_blocked():
        return subprocess.Popen(
            [sys.executable, "-P", *flags, "-m", module, *arguments],
            env={**os.environ, **package_path(), **environment},
            pass_fds=pass_fds,
            **options,
        )


def fill_standard_descriptors() -> None:
    """Open /dev/null as each closed descriptor 0–2, and give Python the missing stream.

    Otherwise a socket or shared memory could get such a number and receive the output of this process or its children.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is this descriptor.
            opened = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(opened, True)
        if getattr(sys, name) is None:
            # Python creates no stream for a descriptor that was closed at its start.
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def flush_output() -> None:
    """Flush Python's buffers of standard output and error, if they are open."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()


def thread_environment(threads: int) -> dict[str, str]:
    """Return the variables that limit NumPy's libraries to `threads` threads."""
    return dict.fromkeys(THREAD_VARIABLES, str(threads))


def ignore_interrupts() -> None:
    """Ignore Ctrl-C in a child, as its first action: the terminal sends SIGINT to all, and the launcher handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def die_with_parent(launcher_pid: int) -> None:
    """Request, in a child, that the kernel kill it when the launcher dies.

    The kernel watches the *thread* that started the child, so this works only for children of the main thread.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launcher_pid:
        os.kill(os.getpid(), signal.SIGKILL)


def set_name(name: str) -> None:
    """Set the name of this process in lists of processes; the kernel keeps 15 bytes of it. Call on the main thread."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode())


def wrapped_to_die_with_parent(command: Sequence[str]) -> list[str]:
    """Wrap `command` so that it gets SIGTERM when this process dies; unchanged unless called on the main thread.

    For programs that cannot call `die_with_parent`: the kernel keeps the setting across exec.
    """
    if not on_main_thread():
        return list(command)
    program = (
        f"import ctypes, os, sys; ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, {int(signal.SIGTERM)}); "
        "os.getppid() == int(sys.argv[1]) and os.execv(sys.argv[2], sys.argv[2:])"
    )
    return [sys.executable, "-I", "-S", "-c", program, str(os.getpid()), *command]


def on_main_thread() -> bool:
    """Return whether this is the main thread, which lives as long as the process."""
    return threading.current_thread() is threading.main_thread()


def end(processes: Iterable[Child], *, grace_s: float = STEP_S, step_s: float = STEP_S) -> None:
    """Wait for `grace_s`, then send SIGTERM, and after `step_s` SIGKILL; afterwards all processes are reaped.

    An exception, such as a second Ctrl-C, shortens the wait, but all processes still end.
    """
    remaining = list(processes)
    try:
        remaining = _end_gently(remaining, grace_s, step_s)
    finally:
        for process in remaining:
            process.kill()
            process.wait()


def _end_gently(processes: list[Child], grace_s: float, step_s: float) -> list[Child]:
    """Return the processes that are left after the wait and SIGTERM."""
    _terminate(process for process in processes if is_stopped(process.pid))
    remaining = still_running(processes, grace_s)
    _terminate(remaining)
    return still_running(remaining, step_s)


def _terminate(processes: Iterable[Child]) -> None:
    for process in processes:
        # A stopped process handles SIGTERM only after SIGCONT.
        process.send_signal(signal.SIGCONT)
        process.terminate()


def is_stopped(pid: int) -> bool:
    """Return whether the process is stopped, as by SIGSTOP or a debugger, until another process resumes it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    # The process name before the state may contain any character.
    return stat.rpartition(")")[2].split()[0] in "Tt"


def wait_for_end(process: subprocess.Popen[bytes], timeout_s: float | None = None) -> int | None:
    """Return the exit status of `process`, or None if the system does not keep it for this process.

    `subprocess` reports such a status as 0.

    Raises
    ------
    subprocess.TimeoutExpired
        If the process still runs.
    """
    if process.returncode is not None:
        return process.returncode
    try:
        end = os.pidfd_open(process.pid)
    except ProcessLookupError:
        process.poll()
        return None
    except OSError:
        # Linux before 5.3 has no pidfd_open.
        return process.wait(timeout_s)
    try:
        if not is_ready(end, timeout_s):
            raise subprocess.TimeoutExpired(process.args, timeout_s or 0.0)
    finally:
        os.close(end)
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        process.poll()
        return None
    return process.wait()


def ending(status: int | None) -> str:
    """Describe a return code as a cause: ``killed by SIGKILL``, ``exited with status 3``."""
    if status is None:
        return (
            "its process ended with an unknown status, because the launching process ignores SIGCHLD or waits for all "
            "of its children elsewhere"
        )
    if status == UNKNOWN_STATUS:
        return "its process ended with an unknown status, because the process that started it ended first"
    if status >= 0:
        return f"its process exited with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    hint = " (the kernel does this when memory runs out)" if -status == signal.SIGKILL else ""
    return f"killed by {name}{hint}"


def still_running(processes: Iterable[Child], timeout_s: float) -> list[Child]:
    """Wait at most `timeout_s` for the end of processes, and return the processes that still run.

    The wait for a stopped process is short, because it does not exit.
    """
    deadline = Deadline(timeout_s)
    return [process for process in processes if not _ends(process, deadline)]


def _ends(process: Child, deadline: Deadline) -> bool:
    """Return whether a process ends before the deadline, and before it is stopped."""
    while True:
        wait_s = 0.0 if is_stopped(process.pid) else min(deadline.left_s, POLL_S)
        try:
            process.wait(wait_s)
            return True
        except subprocess.TimeoutExpired:
            if not wait_s:
                return False


def exit_at_once(error: BaseException | None) -> NoReturn:
    """End this process like Python would after `error`, but without exit handlers and without deleting its objects."""
    status: Any = 0
    if isinstance(error, SystemExit):
        status = 0 if error.code is None else error.code
    elif error is not None:
        traceback.print_exception(error)
        status = 1
    if not isinstance(status, int):
        print(status, file=sys.stderr)
        status = 1
    flush_output()
    os._exit(status & 0xFF)


def in_this_process(function: Callable[[], object]) -> Callable[[], None]:
    """Return `function` as a function that does nothing in a forked process."""
    owner_pid = os.getpid()

    def call() -> None:
        if os.getpid() == owner_pid:
            function()

    return call


@contextmanager
def _interrupt_blocked() -> Iterator[None]:
    """Start children with SIGINT blocked: a Ctrl-C before they can ignore it must not end them with a traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def package_path() -> dict[str, str]:
    """Return PYTHONPATH with the folder of this package, or nothing if Python searches there by default."""
    folder = str(Path(__file__).resolve().parents[3])
    if folder in (*site.getsitepackages(), site.getusersitepackages()):
        return {}
    return {"PYTHONPATH": os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))}
