"""Run the tests of other projects against Ripieno, and print how many pass.

    python tools/peers/run.py mpi4py                         on 1 to 4 ranks
    python tools/peers/run.py mpi4py --ranks 2 --only test_cco_buf test_group
    python tools/peers/run.py mpi4py --tree FOLDER           of a checkout instead of the package index

The sources are fetched into target/peers. `SUITES` lists the suites. A failure counts as documented if known.json
gives a reason for its name. Parts that do not depend on the number of ranks run with the first of `--ranks` only.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Callable
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
    requirement : str
        The source distribution in the package index, with its version.
    sha256 : str
        Its digest.
    parts : callable
        Returns the names of its parts from the folder of the sources; each runs in a world of its own.
    local_parts : frozenset of str
        Parts whose results do not depend on the number of ranks.
    script : str
        The program that each rank runs, in this folder, with the arguments: sources, log, part, first test.
    """

    requirement: str
    sha256: str
    parts: Callable[[Path], list[str]]
    local_parts: frozenset[str]
    script: str


def _mpi4py_parts(tree: Path) -> list[str]:
    return [*sorted(path.stem for path in (tree / "test").glob("test_*.py")), "test_futures"]


_MPI4PY_LOCAL = (
    "address buffer cffi ctypes datatype doc environ errorcode handle info mpiabi mpiapi mpimem msgspec objmodel"
    " op package status subclass toplevel util_dtlib"
)


SUITES = {
    "mpi4py": Suite(
        "mpi4py==4.1.2",
        "56860286dc45f20e8821e93cb06669e30462348bf866f685553fa4b712d58d02",
        _mpi4py_parts,
        frozenset(f"test_{name}" for name in _MPI4PY_LOCAL.split()),
        "mpi4py_ranks.py",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--only", nargs="+", default=[], help="parts of the suite")
    parser.add_argument("--tree", type=Path, help="folder with the sources")
    options = parser.parse_args()
    suite = SUITES[options.suite]
    tree = options.tree or fetch(suite)
    known = json.loads(KNOWN.read_text())[options.suite]
    failures = 0
    print(f"{'ranks':>5} {'tests':>6} " + " ".join(f"{name:>10}" for name in (*OUTCOMES, "seconds")), flush=True)
    for count in options.ranks:
        began_s = time.monotonic()
        results: Results = {}
        for part in options.only or suite.parts(tree):
            if count == options.ranks[0] or part not in suite.local_parts:
                results |= run(suite, tree, part, count)
        elapsed_s = round(time.monotonic() - began_s)
        results = {name: judged(name, *outcome, known) for name, outcome in results.items()}
        totals = Counter(outcome for outcome, _ in results.values())
        numbers = [*(totals[name] for name in OUTCOMES), elapsed_s]
        print(f"{count:>5} {len(results):>6} " + " ".join(f"{number:>10}" for number in numbers), flush=True)
        (FETCHED / f"{options.suite}-{count}.json").write_text(json.dumps(results, indent=1))
        for name, (outcome, text) in results.items():
            if outcome == "failed":
                print(f"      {name}: {text.strip().splitlines()[-1][:200] if text.strip() else 'no output'}")
        failures += totals["failed"]
    print(f"all outcomes with their reasons: {FETCHED}/{options.suite}-*.json")
    sys.exit(failures > 0)


def fetch(suite: Suite) -> Path:
    """Return the folder of the sources, downloaded from the package index."""
    FETCHED.mkdir(parents=True, exist_ok=True)
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


def run(suite: Suite, tree: Path, part: str, rank_count: int) -> Results:
    """Return the outcome of every test of a part. After a failure that ended a world, the next one continues."""
    FETCHED.mkdir(parents=True, exist_ok=True)
    log = FETCHED / f"log-{rank_count}.jsonl"
    results: Results = {}
    first, total = 0, 1
    while first < total:
        log.write_text("")
        script = Path(__file__).with_name(suite.script)
        command = [sys.executable, "-m", "ripieno", "run", "-n", rank_count, script, tree.resolve(), log, part, first]
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


main()
