"""Run tests of PyTorch on the ranks of one world: ``ripieno run -n N torch_ranks.py TREE LOG PART [FIRST]``.

PART is the name of a backend: "ripieno", or "gloo" for the comparison. The tests are those of Gloo, because PyTorch
selects tests by the name of the backend. Rank 0 appends lines of JSON to LOG as `mpi4py_ranks.py` does. The program
ends after a test that failed on some ranks only.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
import tempfile
import traceback
import unittest
from datetime import timedelta
from pathlib import Path
from typing import Any

import ripieno as rp

TEST_LIMIT_S = 60
#: Outcomes, from the best to the worst.
OUTCOMES = ("passed", "skipped", "refused", "failed")


def main() -> None:
    log, backend, first = Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    comm = rp.init()
    apart = comm.group(range(comm.world_size))
    folder = comm.broadcast(tempfile.mkdtemp(prefix="ripieno-peers-") if comm.rank == 0 else None)
    os.environ |= {
        "BACKEND": "gloo",
        "TEMP_DIR": folder,
        "WORLD_SIZE": str(comm.world_size),
        "MASTER_ADDR": "127.0.0.1",
    }
    from torch.testing._internal.distributed import distributed_test

    class Tests(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        world_size = comm.world_size

        def _barrier(self, *_: Any, **__: Any) -> None:
            apart.barrier()

    distributed_test.BACKEND = backend
    signal.signal(signal.SIGALRM, _end)
    names = unittest.defaultTestLoader.getTestCaseNames(Tests)
    with log.open("a") as lines:
        for index, name in enumerate(names[first:], first):
            _write(lines, comm.rank, {"index": index, "of": len(names), "test": f"{backend}.{name}"})
            outcomes = apart.allgather(_run(Tests(name), backend, f"{folder}/{name}", comm))
            outcome, text = max(outcomes, key=lambda each: OUTCOMES.index(each[0]))
            _write(lines, comm.rank, {"index": index, "outcome": outcome, "text": text})
            if len({each for each, _ in outcomes}) > 1 and outcome not in ("passed", "skipped"):
                # Calls of other ranks may be unfinished.
                os._exit(0)


def _run(test: Any, backend: str, file: str, comm: Any) -> tuple[str, str]:
    import ripieno.torch  # noqa: F401  # registers the backend
    import torch
    import torch.distributed as dist
    from torch.testing._internal import common_utils
    from torch.testing._internal.common_distributed import TEST_SKIPS

    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    test.rank, test.file_name = comm.rank, file
    signal.alarm(TEST_LIMIT_S)
    try:
        dist.init_process_group(
            backend,
            init_method=f"file://{file}",
            world_size=comm.world_size,
            rank=comm.rank,
            timeout=timedelta(seconds=TEST_LIMIT_S),
        )
        common_utils.set_rng_seed()
        torch.manual_seed(0)
        getattr(test, test._testMethodName)()
        test._barrier()
    except unittest.SkipTest as skip:
        return "skipped", str(skip)
    except SystemExit as end:
        found = [skip.message for skip in TEST_SKIPS.values() if skip.exit_code == end.code]
        return ("skipped", found[0]) if found else ("failed", f"exit {end.code}")
    except BaseException:
        text = traceback.format_exc()
        return "refused" if text.splitlines()[-1].startswith("ripieno.errors.UnsupportedError") else "failed", text
    finally:
        signal.alarm(0)
        sys.stdout, sys.stderr = out, err
        with contextlib.suppress(Exception):
            dist.destroy_process_group()
    return "passed", ""


def _end(*_: object) -> None:
    raise TimeoutError(f"the test took longer than {TEST_LIMIT_S} s")


def _write(lines: Any, rank: int, entry: dict[str, Any]) -> None:
    if rank == 0:
        lines.write(json.dumps(entry) + "\n")
        lines.flush()


main()
