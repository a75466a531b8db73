"""Run tests of PyTorch: ``python torch_ranks.py WORLD_SIZE LOG PART…``.

A part is a backend, or a backend and a pattern of tests, such as "ripieno.test_all_reduce*". All parts have the same
backend: "ripieno", or "gloo" for the comparison. Both run the tests that PyTorch has for Gloo. The outcomes are
logged as `outcomes.run_all` describes. The ranks are forked from this process, because importing PyTorch in each
world would take most of the time.
"""

from __future__ import annotations

import fnmatch
import os
import select
import signal
import sys
import tempfile
import traceback
import unittest
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

# PyTorch selects its tests by these.
os.environ |= {"BACKEND": "gloo", "WORLD_SIZE": sys.argv[1], "PYTORCH_PRINT_REPRO_ON_FAILURE": "0"}

import outcomes
import ripieno as rp
import ripieno.torch
import torch
import torch.distributed as dist
from outcomes import Outcome
from torch.testing._internal import common_utils
from torch.testing._internal.common_distributed import TEST_SKIPS
from torch.testing._internal.distributed import distributed_test

TEST_LIMIT_S = 120
#: How long ranks may run after the first one has ended.
END_LIMIT_S = 2 * TEST_LIMIT_S


class Tests(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    """The tests, which start no processes."""

    world_size = int(sys.argv[1])
    control: rp.Communicator

    def _barrier(self, *_: Any, **__: Any) -> None:
        self.control.barrier()


class BackendName(str):
    """The name of a backend that takes the branches of Gloo in the tests."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return other == "gloo" or str.__eq__(self, other)


BACKEND = sys.argv[3].partition(".")[0]
PATTERNS = [part.partition(".")[2] or "*" for part in sys.argv[3:]]
NAMES = [
    name
    for name in unittest.defaultTestLoader.getTestCaseNames(Tests)
    if any(fnmatch.fnmatch(name, pattern) for pattern in PATTERNS)
]


def main() -> None:
    log = Path(sys.argv[2])
    log.write_text("")
    first = 0
    while first < len(NAMES):
        with tempfile.TemporaryDirectory(prefix="ripieno-peers-", ignore_cleanup_errors=True) as folder:
            ranks = [os.fork() or _rank(rank, Path(folder), log, first) for rank in range(Tests.world_size)]
            _await(ranks)
            ends = [path.read_text() for path in sorted(Path(folder).glob("end-*"))]
        first = outcomes.following(log, first, "".join(ends) or "a rank has died, or did not end")


def _await(ranks: list[int]) -> None:
    """Wait for the ends of processes; kill those that run long after the first one has ended."""
    descriptors = {os.pidfd_open(rank): rank for rank in ranks}
    ends, limit_ms = select.poll(), None
    for descriptor in descriptors:
        ends.register(descriptor, select.POLLIN)
    while descriptors:
        ended = [descriptor for descriptor, _ in ends.poll(limit_ms)]
        for descriptor in ended or list(descriptors):
            rank = descriptors.pop(descriptor)
            if not ended:
                os.kill(rank, signal.SIGKILL)
            os.waitpid(rank, 0)
            ends.unregister(descriptor)
            os.close(descriptor)
        limit_ms = 1000 * END_LIMIT_S


def _rank(rank: int, folder: Path, log: Path, first: int) -> int:
    """Run the tests as a rank; do not return."""
    try:
        place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": sys.argv[1]}
        os.environ |= {**place, "RIPIENO_DIRECTORY": str(folder)}
        # A rank that hangs in native code cannot be interrupted: the others report it.
        comm = rp.init(call_timeout_s=END_LIMIT_S)
        Tests.rank, Tests.control = comm.rank, comm.group(range(comm.world_size))
        os.environ |= {"TEMP_DIR": str(folder), "MASTER_ADDR": "127.0.0.1"}
        if comm.rank == 0:
            (folder / "test_dir").mkdir()
        ripieno.torch.register()
        distributed_test.BACKEND = BackendName(BACKEND)
        names = [f"{BACKEND}.{name}" for name in NAMES]
        outcomes.run_all(
            names,
            lambda index: _run(NAMES[index], folder),
            log,
            first,
            Tests.control,
            TEST_LIMIT_S,
            leaves_no_messages=lambda index: True,
        )
    except BaseException:
        (folder / f"end-{rank}").write_text(traceback.format_exc())
    finally:
        # Calls of a failed test may be unfinished.
        os._exit(0)


def _run(name: str, folder: Path) -> Outcome:
    test: Any = Tests(name)
    test.file_name = str(folder / name)
    timeout = timedelta(seconds=distributed_test.CUSTOM_PG_TIMEOUT.get(name, TEST_LIMIT_S))
    place = {"world_size": test.world_size, "rank": test.rank}
    try:
        dist.init_process_group(BACKEND, init_method=test.init_method, timeout=timeout, **place)
        # A skipped test would end the group while other ranks still connect.
        test._barrier()
        common_utils.set_rng_seed()
        torch.manual_seed(0)
        getattr(test, name)()
    except unittest.SkipTest as skip:
        return "skipped", str(skip)
    except SystemExit as end:
        found = [skip.message for skip in TEST_SKIPS.values() if skip.exit_code == end.code]
        return ("skipped", found[0]) if found else ("failed", f"exit {end.code}")
    except TimeoutError:
        raise
    except Exception:
        return outcomes.of_problem(traceback.format_exc())
    finally:
        with suppress(Exception):
            dist.destroy_process_group()
    return "passed", ""


main()
