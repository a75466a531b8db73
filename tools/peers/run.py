"""Run the tests of other projects against Ripieno, and print how many pass.

    python tools/peers/run.py mpi4py scikit-learn            of all projects
    python tools/peers/run.py mpi4py --ranks 2 --only test_cco_buf test_group
    python tools/peers/run.py mpi4py --tree FOLDER           of a checkout instead of the package index

The sources that are not installed are fetched into target/peers. `SUITES` lists the suites: to add one, add an entry
with a function that runs a part of it. A failure counts as documented if known.json gives a reason for its name. Parts
that do not depend on the number of ranks run with the first number only.
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
from functools import partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FETCHED = ROOT / "target/peers"
KNOWN = Path(__file__).with_name("known.json")
#: Time limit of one world.
WORLD_LIMIT_S = 900
OUTCOMES = ("passed", "skipped", "refused", "documented", "failed")

#: Test names, with the outcome and its reason.
Results = dict[str, tuple[str, str]]


class Suite(NamedTuple):
    """The tests of a project.

    Attributes
    ----------
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

    requirement: str | None
    sha256: str | None
    parts: Callable[[Path], list[str]]
    local_parts: frozenset[str]
    run: Callable[[Path, str, int], Results]
    ranks: tuple[int, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="+", choices=SUITES)
    parser.add_argument("--ranks", type=int, nargs="+")
    parser.add_argument("--only", nargs="+", default=[], help="parts of the suite")
    parser.add_argument("--tree", type=Path, help="folder with the sources")
    options = parser.parse_args()
    FETCHED.mkdir(parents=True, exist_ok=True)
    failures = 0
    print(
        f"{'suite':>12} {'ranks':>5} {'tests':>6} " + " ".join(f"{name:>10}" for name in (*OUTCOMES, "seconds")),
        flush=True,
    )
    for title in options.suites:
        suite, known = SUITES[title], json.loads(KNOWN.read_text())[title]
        tree = options.tree or fetch(suite)
        counts = options.ranks or suite.ranks
        for count in counts:
            began_s = time.monotonic()
            results: Results = {}
            for part in options.only or suite.parts(tree):
                if count == counts[0] or part not in suite.local_parts:
                    results |= suite.run(tree, part, count)
            elapsed_s = round(time.monotonic() - began_s)
            results = {name: judged(name, *outcome, known) for name, outcome in results.items()}
            totals = Counter(outcome for outcome, _ in results.values())
            figures = " ".join(f"{figure:>10}" for figure in (*(totals[name] for name in OUTCOMES), elapsed_s))
            print(f"{title:>12} {count:>5} {len(results):>6} {figures}", flush=True)
            (FETCHED / f"{title}-{count}.json").write_text(json.dumps(results, indent=1))
            for name, (outcome, text) in results.items():
                if outcome == "failed":
                    print(f"      {name}: {text.strip().splitlines()[-1][:200] if text.strip() else 'no output'}")
            failures += totals["failed"]
    print(f"all outcomes with their reasons: {FETCHED}/*.json")
    sys.exit(failures > 0)


def fetch(suite: Suite) -> Path:
    """Return the folder of the sources, downloaded from the package index unless they are installed."""
    if suite.requirement is None:
        return FETCHED
    tree = FETCHED / suite.requirement.replace("==", "-")
    if not tree.exists():
        archive_path = Path(f"{tree}.tar.gz")
        options = ("--no-deps", "--no-binary", ":all:", "--retries", "1", "--quiet", "--dest", FETCHED)
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


def run_on_ranks(script: str, tree: Path, part: str, rank_count: int) -> Results:
    """Return the outcome of every test of a part. After a failure that ended a world, the next one continues.

    Each rank runs `script` of this folder with the arguments: sources, log, part, first test.
    """
    log = FETCHED / f"log-{rank_count}.jsonl"
    results: Results = {}
    first, total = 0, 1
    while first < total:
        log.write_text("")
        path = Path(__file__).with_name(script)
        command = [sys.executable, "-m", "ripieno", "run", "-n", rank_count, path, tree.resolve(), log, part, first]
        try:
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=WORLD_LIMIT_S)
            last_words = done.stderr[-1000:]
        except subprocess.TimeoutExpired:
            last_words = f"the world took longer than {WORLD_LIMIT_S} s"
        entries = [json.loads(line) for line in log.read_text().splitlines()]
        begun = [entry for entry in entries if "test" in entry]
        if not begun:
            results[part] = ("failed", last_words)
            break
        ended = {entry["index"]: (entry["outcome"], entry["text"]) for entry in entries if "outcome" in entry}
        for entry in begun:
            results[entry["test"]] = ended.get(entry["index"], ("failed", last_words))
        first, total = begun[-1]["index"] + 1, begun[-1]["of"]
    return results


def judged(name: str, outcome: str, text: str, known: dict[str, list[str]]) -> tuple[str, str]:
    """Return the outcome, which is "documented" for a failure with a known reason, and the reason."""
    if outcome == "failed":
        for reason, patterns in known.items():
            if any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
                return "documented", reason
    return outcome, text


def run_by_pytest(plugin: str, tree: Path, part: str, rank_count: int) -> Results:
    """Return the outcome of every test of an installed module, run in one process with a plugin of this folder."""
    log = FETCHED / "log.jsonl"
    log.write_text("")
    environment = os.environ | {"RIPIENO_PEERS_LOG": str(log), "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", plugin, "-p", "no:cacheprovider", "--pyargs", part]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    if done.returncode not in (0, 1) or not entries:
        return {part: ("failed", done.stdout[-1000:])}
    return {entry["test"]: (entry["outcome"], entry["text"]) for entry in entries}


def mpi4py_parts(tree: Path) -> list[str]:
    """Return the names of the modules of tests."""
    return [*sorted(path.stem for path in (tree / "test").glob("test_*.py")), "test_futures"]


MPI4PY_LOCAL = (
    "address buffer cffi ctypes datatype doc environ errorcode handle info mpiabi mpiapi mpimem msgspec objmodel"
    " op package status subclass toplevel util_dtlib"
)
SUITES = {
    "mpi4py": Suite(
        "mpi4py==4.1.2",
        "56860286dc45f20e8821e93cb06669e30462348bf866f685553fa4b712d58d02",
        mpi4py_parts,
        frozenset(f"test_{name}" for name in MPI4PY_LOCAL.split()),
        partial(run_on_ranks, "mpi4py_ranks.py"),
        (1, 2, 3, 4),
    ),
    "scikit-learn": Suite(
        None,
        None,
        lambda tree: [
            "sklearn.cluster.tests.test_k_means",
            "sklearn.decomposition.tests.test_pca",
            "sklearn.linear_model.tests.test_base",
        ],
        frozenset(),
        partial(run_by_pytest, "sklearn_classes"),
        (1,),
    ),
}

main()
