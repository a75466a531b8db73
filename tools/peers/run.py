"""Run the tests of other projects against Ripieno, and print how many pass.

    python tools/peers/run.py mpi4py                         on 1 to 4 ranks
    python tools/peers/run.py mpi4py --ranks 2 --only test_cco_buf test_group
    python tools/peers/run.py mpi4py --tree FOLDER           of a checkout instead of the package index

The sources are fetched into target/peers. `SUITES` lists the suites: to add one, add an entry with a function that
yields the command for a part of it. A failure counts as documented if known.json gives a reason for its name.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import subprocess
import sys
import tarfile
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
    parts : callable
        Returns the names of its parts from the folder of the sources; each runs in a world of its own.
    script : str
        The program that each rank runs, in this folder, with the arguments: sources, log, part, first test.
    """

    requirement: str
    parts: Callable[[Path], list[str]]
    script: str


SUITES = {
    "mpi4py": Suite(
        "mpi4py==4.1.2", lambda tree: sorted(path.stem for path in (tree / "test").glob("test_*.py")), "mpi4py_ranks.py"
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
    print(f"{'ranks':>5} {'tests':>6} " + " ".join(f"{name:>10}" for name in OUTCOMES), flush=True)
    for count in options.ranks:
        results: Results = {}
        for part in options.only or suite.parts(tree):
            results |= run(suite, tree, part, count)
        results = {name: judged(name, *outcome, known) for name, outcome in results.items()}
        totals = Counter(outcome for outcome, _ in results.values())
        print(f"{count:>5} {len(results):>6} " + " ".join(f"{totals[name]:>10}" for name in OUTCOMES), flush=True)
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
        options = ("--no-deps", "--no-binary", ":all:", "--dest", FETCHED)
        subprocess.run([sys.executable, "-m", "pip", "download", *options, suite.requirement], check=True)
        with tarfile.open(f"{tree}.tar.gz") as archive:
            archive.extractall(FETCHED, filter="data")
    return tree


def run(suite: Suite, tree: Path, part: str, rank_count: int) -> Results:
    """Return the outcome of every test of a part. After a failure that ended a world, the next one continues."""
    FETCHED.mkdir(parents=True, exist_ok=True)
    log = FETCHED / "log.jsonl"
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
