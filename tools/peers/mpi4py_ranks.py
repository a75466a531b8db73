"""Run tests of mpi4py on the ranks of one world: ``ripieno run -n N mpi4py_ranks.py TREE LOG FIRST MODULE…``.

The outcomes are logged as `outcomes.run_all` describes.
"""

from __future__ import annotations

import sys
import types
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import outcomes
from mpi4py_modules import LOCAL, WITHOUT_MESSAGES
from outcomes import Outcome

TEST_LIMIT_S = 600


def main() -> None:
    tree, log, first, modules = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    comm = _use_ripieno(tree)
    tests = list(_tests(unittest.defaultTestLoader.loadTestsFromNames(modules)))
    for name in {*(module.partition(".")[0] for module in modules), "mpi4py.util.pool"} & sys.modules.keys():
        # The workers of a pool import neither the tests nor this mpi4py.
        cloudpickle.register_pickle_by_value(sys.modules[name])
    names = [test.id() for test in tests]
    outcomes.run_all(
        names,
        lambda index: _run(tests[index]),
        log,
        first,
        comm.Dup(),
        TEST_LIMIT_S,
        leaves_no_messages=lambda index: names[index].partition(".")[0] in (*LOCAL, *WITHOUT_MESSAGES),
    )


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


def _run(test: unittest.TestCase) -> Outcome:
    result = unittest.TestResult()
    unittest.TestSuite([test]).run(result)
    problems = [text for _, text in result.errors + result.failures]
    if problems:
        return outcomes.of_problem(max(problems, key=lambda text: "UnsupportedError:" not in text))
    if result.skipped:
        return "skipped", result.skipped[0][1]
    return "passed", ""


def _tests(suite: Any) -> Iterator[unittest.TestCase]:
    if isinstance(suite, unittest.TestCase):
        yield suite
        return
    for each in suite:
        yield from _tests(each)


main()
