"""Run tests of mpi4py on the ranks of one world: ``ripieno run -n N mpi4py_ranks.py TREE LOG MODULE [FIRST]``.

Rank 0 appends one line of JSON to LOG per test: before the test its name, and after it the worst outcome of all ranks.
The program ends after a test that failed, because messages of it may be left, or ranks may be at different calls. The
caller continues with the next test in a new world.
"""

from __future__ import annotations

import io
import json
import signal
import sys
import traceback
import types
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle

TEST_LIMIT_S = 180
#: Outcomes, from the best to the worst.
OUTCOMES = ("passed", "skipped", "refused", "failed")


def main() -> None:
    tree, log, module, first = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    comm = _use_ripieno(tree)
    # The outcomes travel apart from the messages and collectives of the tests.
    apart = comm.Dup()
    signal.signal(signal.SIGALRM, _end)
    with log.open("a") as lines:
        tests = list(_tests(unittest.defaultTestLoader.loadTestsFromName(module)))
        for name in {module.partition(".")[0], "mpi4py.util.pool"} & sys.modules.keys():
            # The workers of a pool import neither the tests nor this mpi4py.
            cloudpickle.register_pickle_by_value(sys.modules[name])
        for index, test in enumerate(tests[first:], first):
            _write(lines, comm.rank, {"index": index, "of": len(tests), "test": test.id()})
            outcomes = apart.allgather(_run(test))
            outcome, text = max(outcomes, key=lambda each: OUTCOMES.index(each[0]))
            _write(lines, comm.rank, {"index": index, "outcome": outcome, "text": text})
            if outcome == "failed" or (outcome == "refused" and len({each for each, _ in outcomes}) > 1):
                return


def _use_ripieno(tree: Path) -> Any:
    """Import the Python part of mpi4py from `tree`, with `ripieno.mpi` in place of its compiled module."""
    sys.path[:0] = [str(tree / "src"), str(tree / "test"), str(tree / "demo" / "futures")]
    import mpi4py
    from ripieno import mpi
    from ripieno.mpi import futures, pkl5

    sys.modules["mpi4py.MPI"] = mpi4py.MPI = mpi  # type: ignore[attr-defined]
    sys.modules["mpi4py.futures"] = mpi4py.futures = futures  # type: ignore[attr-defined]
    sys.modules["mpi4py.util.pkl5"] = pkl5
    # Tests read private names, and a module of mpi4py in Python.
    pkl5._BigMPI, pkl5._bigmpi = types.SimpleNamespace, None  # type: ignore[attr-defined]
    futures.__path__.append(str(tree / "src" / "mpi4py" / "futures"))
    private = {
        "MAIN_RUN_NAME": "",
        "RemoteTraceback": Exception,
        "SharedPool": None,
        "comm_split": lambda comm, root: comm.Create_intercomm(0, comm, root),
        "setup_mpi_threads": lambda: None,
    }
    core = types.SimpleNamespace(serialized=types.SimpleNamespace(lock=None), **private)
    futures._core = core  # type: ignore[attr-defined]
    return mpi.COMM_WORLD


def _run(test: unittest.TestCase) -> tuple[str, str]:
    result = unittest.TestResult()
    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    signal.alarm(TEST_LIMIT_S)
    try:
        unittest.TestSuite([test]).run(result)
    except TimeoutError:
        return "failed", traceback.format_exc()
    finally:
        signal.alarm(0)
        sys.stdout, sys.stderr = out, err
    problems = [text for _, text in result.errors + result.failures]
    if problems:
        is_refused = all("UnsupportedError:" in text for text in problems)
        return "refused" if is_refused else "failed", problems[0]
    if result.skipped:
        return "skipped", result.skipped[0][1]
    return "passed", ""


def _end(*_: object) -> None:
    raise TimeoutError(f"the test took longer than {TEST_LIMIT_S} s")


def _tests(suite: Any) -> Iterator[unittest.TestCase]:
    if isinstance(suite, unittest.TestCase):
        yield suite
        return
    for each in suite:
        yield from _tests(each)


def _write(lines: Any, rank: int, entry: dict[str, Any]) -> None:
    if rank == 0:
        lines.write(json.dumps(entry) + "\n")
        lines.flush()


main()
