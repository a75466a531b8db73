"""Run every command and script of the page on Dask as printed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="needs Dask: pip install 'ripieno[dask]'")

PAGE = (Path(__file__).resolve().parents[3] / "docs/engines/dask.md").read_text()
SCRIPTS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
(COMMANDS,) = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
ON_PATH = {**os.environ, "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))}


@pytest.mark.parametrize(
    "number", [number for number, script in enumerate(SCRIPTS) if not script.startswith("# train.py")]
)
def test_scripts_of_the_page_run(number, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPTS[number])
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100)

    assert done.returncode == 0, done.stderr


def test_commands_of_the_page_run(tmp_path):
    (script,) = (script for script in SCRIPTS if script.startswith("# train.py\n"))
    (tmp_path / "train.py").write_text(script)
    *services, train, doctor = (line.removesuffix(" &") for line in COMMANDS.splitlines())
    started = []
    try:
        for command in services:
            # With exec the command is the process itself, which is ended below.
            started.append(subprocess.Popen(["sh", "-c", f"exec {command}"], cwd=tmp_path, env=ON_PATH))
        for command, expected in (
            (train, "[[0, 1], [0, 1]]"),
            (doctor, "Workers can start, connect and communicate here."),
        ):
            done = subprocess.run(command, shell=True, cwd=tmp_path, env=ON_PATH, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            assert expected in done.stdout
    finally:
        for service in reversed(started):
            service.send_signal(signal.SIGINT)
            service.wait(30)


def test_the_extra_of_the_page_is_one():
    (name,) = re.findall(r"pip install 'ripieno\[(\w+)\]'", PAGE)

    assert name in metadata("ripieno").get_all("Provides-Extra")
