"""Signals that end a process arrive although they fall into finalizers or into the start of a child."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import nullcontext

import pytest
from ripieno.lab import run as lab_run
from ripieno.launch.process.interruption import deferred_signals, exit_on_sigterm

WAIT_S = 60.0


class Finalized:
    """Gets SIGTERM while Python finalizes it."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


def test_sigterm_in_a_finalizer_still_ends_the_process(monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    with pytest.raises(SystemExit) as exited, exit_on_sigterm():
        Finalized()
        threading.Event().wait(WAIT_S)
        pytest.fail("the signal was lost")
    assert exited.value.code == 143
    assert not reported and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_other_errors_of_finalizers_are_reported_as_before(monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: reported.append(unraisable.exc_type))

    class Exiting:
        def __del__(self) -> None:
            sys.exit(3)

    with exit_on_sigterm():
        Exiting()
    assert reported == [SystemExit]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_handled_signals_wait_for_the_end_of_a_critical_section(number):
    done = []
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with exit_on_sigterm(), pytest.raises((SystemExit, KeyboardInterrupt)), deferred_signals():
            signal.raise_signal(number)
            done.append(number)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert done == [number]


def test_unhandled_signals_are_not_deferred():
    source = (
        "import signal; from ripieno.launch.process.interruption import deferred_signals\n"
        "with deferred_signals():\n    signal.raise_signal(signal.SIGTERM)\nprint('continued')\n"
    )
    ended = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (ended.returncode, ended.stdout) == (-signal.SIGTERM, "")


def test_a_rank_of_a_lab_that_starts_when_sigterm_arrives_is_reaped(monkeypatch):
    """Otherwise the PID namespace of the run does not end."""
    start, children = subprocess.Popen._execute_child, []

    def start_and_signal(child, *arguments):
        start(child, *arguments)
        children.append(child.pid)
        if len(children) == 2:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(subprocess.Popen, "_execute_child", start_and_signal)
    monkeypatch.setattr(lab_run.kernel, "inside", lambda _: nullcontext())
    monkeypatch.setattr(lab_run.kernel, "new_pid_namespace", nullcontext)
    program = lab_run.LabProgram(["sleep", "600"], [lab_run.LabHost("h0", "127.0.0.1", 0, 0)], ranks_per_host=3)

    with pytest.raises(SystemExit), exit_on_sigterm():
        lab_run.run(program, lambda host: host.name, lambda _, command: list(command))

    assert len(children) >= 2
    for pid in children:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
