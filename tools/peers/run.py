"""Run the tests of other projects against Ripieno, and print how many pass.

    python tools/peers/run.py mpi4py torch torch-gloo scikit-learn networkx            of all projects
    python tools/peers/run.py mpi4py --ranks 2 --only test_cco_buf test_group
    python tools/peers/run.py mpi4py --tree FOLDER           of a checkout instead of the package index
    python tools/peers/run.py mpi4py-programs                with mpi4py and Open MPI: make .venv/.bench .venv/.peers
    python tools/peers/run.py graphalytics --tree FOLDER     the graphs of LDBC, which are in no package index
    python tools/peers/run.py torch --record                 write the results into docs/tests.md, too
    python tools/peers/run.py mpi4py --resume                tests without stored results, and the table of all

The sources that are not installed are fetched into target/peers. `SUITES` lists the suites: to add one, add an entry
with a function that runs a part of it. A failure counts as documented if known.json gives a reason for its name. Parts
that do not depend on the number of ranks run with the first number only. The results of each part are stored in
target/peers, so that an interrupted run can be resumed.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import mpi4py_modules
import outcomes
import programs
import tables

ROOT = Path(__file__).resolve().parents[2]
FETCHED = ROOT / "target/peers"
KNOWN = Path(__file__).with_name("known.json")
#: Time limit of one world, which runs many tests. Each test has a limit of its own.
WORLD_LIMIT_S = 7200

#: Test names, with the outcome and its reason.
Results = dict[str, tuple[str, str]]


class Suite(NamedTuple):
    """The tests of a project.

    Attributes
    ----------
    package : str
        Its name in the package index; empty if it has none.
    requirement : str or None
        The source distribution in the package index, with its version; None if the installed package has the tests.
    sha256 : str or None
        Its digest.
    parts : callable
        Returns the names of its parts from the folder of the sources.
    local_parts : frozenset of str
        Parts whose results do not depend on the number of ranks.
    run : callable
        Returns the outcomes of the tests of a part, from the folder of the sources, the part and the number of ranks.
    ranks : tuple of int
        Numbers of ranks.
    """

    package: str
    requirement: str | None
    sha256: str | None
    parts: Callable[[Path], list[str]]
    local_parts: frozenset[str]
    run: Callable[[Path, str, int], Results]
    ranks: tuple[int, ...]

    def version(self) -> str:
        """Return the version of the tests, or an empty text."""
        if self.requirement is not None:
            return self.requirement.partition("==")[2]
        return metadata.version(self.package) if self.package else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="+", choices=SUITES)
    parser.add_argument("--ranks", type=int, nargs="+")
    parser.add_argument("--only", nargs="+", default=[], help="parts of the suite")
    parser.add_argument("--tree", type=Path, help="folder with the sources")
    parser.add_argument("--jobs", type=int, default=1, help="parts that run side by side")
    parser.add_argument("--resume", action="store_true", help="run only the tests without stored results")
    parser.add_argument("--record", action="store_true", help="store the results, and write them into docs/tests.md")
    options = parser.parse_args()
    FETCHED.mkdir(parents=True, exist_ok=True)
    failures = 0
    print(
        f"{'suite':>12} {'ranks':>5} {'tests':>6} " + " ".join(f"{name:>10}" for name in (*tables.OUTCOMES, "seconds")),
        flush=True,
    )
    for title in options.suites:
        suite, known = SUITES[title], json.loads(KNOWN.read_text())[title]
        tree = options.tree or fetch(suite)
        counts = options.ranks or suite.ranks
        for count in counts:
            began_s = time.monotonic()
            all_parts = [part for part in suite.parts(tree) if count == suite.ranks[0] or part not in suite.local_parts]
            parts = options.only or all_parts
            run_part = partial(resume if options.resume else run, title, tree, rank_count=count)
            with ThreadPoolExecutor(options.jobs) as pool:
                found = [result for part in pool.map(run_part, parts) for result in part.items()]
            elapsed_s = round(time.monotonic() - began_s)
            results = {name: judged(name, *outcome, known) for name, outcome in found}
            totals = Counter(outcome for outcome, _ in results.values())
            figures = " ".join(f"{figure:>10}" for figure in (*(totals[name] for name in tables.OUTCOMES), elapsed_s))
            print(f"{title:>12} {count:>5} {len(results):>6} {figures}", flush=True)
            if options.record:
                reasons = Counter(reason for outcome, reason in results.values() if outcome == "documented")
                row = tables.Row(len(parts), len(all_parts), totals, reasons)
                tables.record(title, suite.version(), count, row)
            for name, (outcome, text) in results.items():
                if outcome == "failed":
                    print(f"      {name}: {text.strip().splitlines()[-1][:200] if text.strip() else 'no output'}")
            failures += totals["failed"]
    print(f"all outcomes: {FETCHED}/*/*.json")
    sys.exit(failures > 0)


def run(title: str, tree: Path, part: str, rank_count: int) -> Results:
    """Run a part of a suite, store its results, and return them."""
    path = results_path(title, part, rank_count)
    for each in (path, path.with_suffix(".log")):
        each.unlink(missing_ok=True)
    return resume(title, tree, part, rank_count)


def resume(title: str, tree: Path, part: str, rank_count: int) -> Results:
    """Return the results of a part from an earlier run; run its tests that have none."""
    path = results_path(title, part, rank_count)
    if path.exists():
        return json.loads(path.read_text())  # type: ignore[no-any-return]
    path.parent.mkdir(exist_ok=True)
    results = SUITES[title].run(tree, part, rank_count)
    path.write_text(json.dumps(results, indent=1))
    return results


def results_path(title: str, part: str, rank_count: int) -> Path:
    """Return the path of the results of a part."""
    return FETCHED / f"{title}-{rank_count}" / f"{part}.json"


def fetch(suite: Suite) -> Path:
    """Return the folder of the sources, downloaded from the package index unless they are installed."""
    if suite.requirement is None:
        return FETCHED
    tree = FETCHED / suite.requirement.replace("==", "-")
    if not tree.exists():
        archive_path = Path(f"{tree}.tar.gz")
        # Only this project as source: pip builds it for its metadata, with wheels of the tools for that.
        options = ("--no-deps", "--no-binary", suite.package, "--retries", "1", "--quiet", "--dest", FETCHED)
        done = subprocess.run([sys.executable, "-m", "pip", "download", *options, suite.requirement])
        if done.returncode:
            raise SystemExit(
                f"{suite.requirement} was not downloaded; the lines above have the reason. Without a network, copy it "
                "from another machine, and pass the unpacked folder with --tree"
            )
        if hashlib.sha256(archive_path.read_bytes()).hexdigest() != suite.sha256:
            raise SystemExit(
                f"{archive_path}: expected the SHA-256 digest {suite.sha256}; remove the file and try again"
            )
        with tarfile.open(archive_path) as archive:
            archive.extractall(FETCHED, filter="data")
    return tree


def run_mpi4py(tree: Path, module: str, rank_count: int) -> Results:
    """Return the outcome of every test of a module. After a failure that ended a world, the next one continues.

    Tests of an earlier run of the module keep their outcomes.
    """
    log, script = log_path(f"mpi4py-{rank_count}", module), Path(__file__).with_name("mpi4py_ranks.py")
    first, total = outcomes.resumed(log)
    while first < total:
        command = [sys.executable, "-m", "ripieno", "run", "-n", rank_count, script, tree.resolve(), log, first, module]
        try:
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=WORLD_LIMIT_S)
            last_words = done.stderr[-1000:]
        except subprocess.TimeoutExpired:
            last_words = f"the world took longer than {WORLD_LIMIT_S} s"
        first = outcomes.following(log, first, last_words)
        total = outcomes.read(log)[0]["of"]
    return results_of(log)


def run_torch(tree: Path, part: str, rank_count: int) -> Results:
    """Return the outcome of every test of PyTorch with a backend."""
    log, script = empty_log(f"torch-{rank_count}", part), Path(__file__).with_name("torch_ranks.py")
    done = subprocess.run([sys.executable, script, str(rank_count), log, part], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{script}: {done.stderr[-2000:]}")
    return results_of(log)


def log_path(folder: str, part: str) -> Path:
    """Return the path of a log, which may exist."""
    log = FETCHED / folder / f"{part}.log"
    log.parent.mkdir(exist_ok=True)
    log.touch()
    return log


def empty_log(folder: str, part: str) -> Path:
    """Return the path of a new log."""
    log = log_path(folder, part)
    log.write_text("")
    return log


def results_of(log: Path) -> Results:
    """Return the outcomes in a log."""
    return {each["test"]: (each["outcome"], each["text"]) for each in outcomes.read(log)}


def judged(name: str, outcome: str, text: str, known: dict[str, list[str]]) -> tuple[str, str]:
    """Return the outcome, which is "documented" for a failure with a known reason, and the reason."""
    if outcome == "failed":
        for reason, patterns in known.items():
            if any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
                return "documented", reason
    return outcome, text


def run_by_pytest(plugins: list[str], variables: dict[str, str], tree: Path, part: str, rank_count: int) -> Results:
    """Return the outcome of every test of an installed package, run in one process with plugins of this folder."""
    log = empty_log("pytest", part)
    folder = str(Path(__file__).parent)
    environment = os.environ | variables | {"RIPIENO_PEERS_LOG": str(log)}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    options = ["-q", "-c", os.devnull, "-p", "no:cacheprovider"]
    for plugin in ("pytest_log", *plugins):
        options += ["-p", plugin]
    command = [sys.executable, "-m", "pytest", *options, "--pyargs", part]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    if done.returncode not in (0, 1) or not entries:
        raise SystemExit(f"pytest {part}: expected outcomes:\n{done.stdout[-1000:]}")
    return {entry["test"]: (entry["outcome"], entry["text"]) for entry in entries}


def graphalytics_parts(tree: Path) -> list[str]:
    """Return the names of the cases."""
    import graphalytics

    return list(graphalytics.cases(tree))


def run_graphalytics(tree: Path, case: str, worker_count: int) -> Results:
    """Return the outcome of a case, run from this process."""
    import graphalytics

    return {case: graphalytics.run(tree, case, worker_count)}


def mpi4py_parts(tree: Path) -> list[str]:
    """Return the names of the modules of tests."""
    return [*sorted(path.stem for path in (tree / "test").glob("test_*.py")), "test_futures"]


NETWORKX = (
    "algorithms.link_analysis algorithms.components algorithms.shortest_paths algorithms.tests.test_cluster"
    " classes utils"
)
SUITES = {
    "mpi4py": Suite(
        "mpi4py",
        "mpi4py==4.1.2",
        "56860286dc45f20e8821e93cb06669e30462348bf866f685553fa4b712d58d02",
        mpi4py_parts,
        mpi4py_modules.LOCAL,
        run_mpi4py,
        (1, 2, 3, 4),
    ),
    "mpi4py-programs": Suite(
        "mpi4py",
        None,
        None,
        lambda tree: programs.names(),
        frozenset(),
        lambda tree, name, rank_count: {name: programs.run(name, rank_count)},
        (1, 2, 4),
    ),
    **{
        # Both run the tests that PyTorch has for Gloo; PyTorch's own backend is the comparison.
        title: Suite("torch", None, None, lambda tree, backend=backend: [backend], frozenset(), run_torch, (2, 3, 4))
        for title, backend in (("torch", "ripieno"), ("torch-gloo", "gloo"))
    },
    "scikit-learn": Suite(
        "scikit-learn",
        None,
        None,
        lambda tree: [
            "sklearn.cluster.tests.test_k_means",
            "sklearn.decomposition.tests.test_pca",
            "sklearn.linear_model.tests.test_base",
        ],
        frozenset(),
        partial(run_by_pytest, ["sklearn_classes"], {}),
        (1,),
    ),
    # The graphs are in no package index: pass their sources with --tree.
    "graphalytics": Suite(
        "",
        None,
        None,
        graphalytics_parts,
        frozenset(),
        run_graphalytics,
        (1, 2, 3),
    ),
    "networkx": Suite(
        "networkx",
        None,
        None,
        lambda tree: [f"networkx.{name}" for name in NETWORKX.split()],
        frozenset(),
        # Functions without an implementation of ours run in networkx, and small graphs run here, too.
        partial(run_by_pytest, [], {"NETWORKX_TEST_BACKEND": "ripieno", "NETWORKX_FALLBACK_TO_NX": "True"}),
        (1,),
    ),
}

main()
