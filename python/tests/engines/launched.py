"""Shared parts of tests of launchers: the script of their ranks, and the commands on a documentation page."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from watching import gone_within

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = Path(sys.executable).parent
#: The path has Ripieno's commands and this Python; no variable of another launcher is set.
VARIABLES = {"PATH": os.pathsep.join((str(SCRIPTS), os.environ["PATH"])), "PYTHONUNBUFFERED": "1"}

#: Open MPI's launcher requires permission to run as root, and with more ranks than cores.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_oob_tcp_if_include": "lo",
}
#: Rank 1 fails as the first argument specifies; with "early" it fails before the ranks have connected.
SCRIPT = """
import os, signal, sys, time
import numpy as np
import ripieno as rp
from ripieno.launch.script import launchers

mode, when = (*sys.argv[1:], "report", "late")[:2]


def fail():
    sys.stderr.write(f"fails at {time.time()}\\n")
    if mode == "raise":
        raise KeyError("culprit")
    if mode == "exit":
        sys.exit(7)
    os.kill(os.getpid(), signal.SIGKILL)


if when == "early" and launchers.detect(os.environ).rank == 1:
    fail()
comm = rp.init()
total = comm.allreduce(np.ones(100_000))
if comm.rank == 1 and mode != "report":
    fail()
comm.barrier()
sys.stdout.write(f"rank {comm.rank} of {comm.world_size} has {total.sum():.0f}\\n")
"""

#: Each rank prints its listening addresses, from the kernel's list of its sockets.
LISTENERS = """
import os, socket, struct
from pathlib import Path
import ripieno as rp

comm = rp.init()
links = [os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
addresses = []
for family, table in ((socket.AF_INET, "tcp"), (socket.AF_INET6, "tcp6")):
    for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in links:
            words = bytes.fromhex(fields[1].partition(":")[0])
            packed = b"".join(word[::-1] for word in (words[i : i + 4] for i in range(0, len(words), 4)))
            addresses.append(socket.inet_ntop(family, packed))
comm.barrier()
print(*addresses)
"""

#: A job with ranks that only compute, forever. It prints their PIDs. The main thread or another thread launches it.
DRIVER = """
import os, signal, sys, threading, time
import ripieno as rp


def program(comm):
    comm.emit({"pid": os.getpid()})
    time.sleep(600)


def main():
    with rp.launch(2, on_event=lambda event: print("pid", event["pid"], flush=True), **eval(sys.argv[1])) as job:
        job.run(program)


signal.signal(signal.SIGINT, signal.default_int_handler)
if sys.argv[2] == "main":
    main()
else:
    threading.Thread(target=main).start()
"""
#: Ends of the launching process in which engines may differ. The conformance suite covers SIGKILL with a launch by the
#: main thread.
ENDS = [(signal.SIGINT, "main"), (signal.SIGKILL, "other")]


def ranks_that_outlive_their_launcher(options: str, how: signal.Signals, thread: str, within_s: float) -> list[int]:
    """Return the ranks of an engine that still run some time after the launching process got a signal.

    `options` are the options of `ripieno.launch`, as a Python expression.
    """
    variables = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-c", DRIVER, options, thread]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as driver:
        pid_lines = (line.removeprefix("pid ") for line in driver.stdout if line.startswith("pid "))
        pids = [int(next(pid_lines)), int(next(pid_lines))]
        driver.send_signal(how)
    assert len({*pids}) == 2
    return [pid for pid in pids if not gone_within(within_s, [pid])]


def expected(world_size: int) -> list[str]:
    """Return the sorted output of all ranks of the script."""
    return [f"rank {rank} of {world_size} has {world_size * 100_000}" for rank in range(world_size)]


def blocks(page: str, language: str) -> list[str]:
    """Code of one language on a page."""
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)


def commands(page: str) -> Iterator[str]:
    """Yield the commands on a page without comments, joining continued lines."""
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            command = re.sub(r"\s+#.*", "", line).strip()
            if command and not command.startswith("#"):
                yield command


def failed_at(errors: str) -> float:
    """Return the time of the culprit's failure, in seconds since the epoch."""
    return float(re.findall(r"fails at (.*)", errors)[0])


def prepare(folder: Path, page: str) -> None:
    """Write the files that the commands on a page use: programs, a batch script, and a graph."""
    for program in blocks(page, "python"):
        (folder / program.split()[1]).write_text(program)
    for script in blocks(page, "bash"):
        (folder / "job.sh").write_text(script)
    (folder / "edges.txt").write_text("".join(f"{vertex} {(vertex * 7 + 1) % 50}\n" for vertex in range(50)))
