"""The loop of `mpi4py_ranks.py` and `torch_ranks.py`: runs tests on all ranks of a world, and logs their outcomes."""

from __future__ import annotations

import io
import json
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

#: Outcomes, from the best to the worst.
OUTCOMES = ("passed", "skipped", "refused", "failed")

#: The beginning of the reason of a test that reached its time limit.
_LATE = "TimeoutError:"

#: An outcome, and its reason.
Outcome = tuple[str, str]


def run_all(
    names: Sequence[str],
    run: Callable[[int], Outcome],
    log: Path,
    first: int,
    comm: Any,
    limit_s: int,
    *,
    leaves_no_messages: Callable[[int], bool],
) -> None:
    """Run the tests from number `first` on, and return after the last one, or after a failure of some ranks.

    Rank 0 appends one line of JSON to the log per test: before the test its name, and after it the worst outcome of all
    ranks. Each rank appends its failure at once, because the ranks may not agree on an outcome any more. After a
    failure messages may be left, or ranks may be at different calls: the caller continues with the next test in a new
    world.

    Parameters
    ----------
    names : sequence of str
        The names of the tests.
    run : callable
        Runs the test with a number, and returns its outcome on this rank. After `limit_s` a `TimeoutError` interrupts
        it.
    comm : object
        Has ``rank``, and ``allgather``, separate from the messages and collectives of the tests.
    limit_s : int
        Time limit of a test in seconds.
    leaves_no_messages : callable
        Whether the test with a number leaves no messages, so that others can follow after a failure of all ranks.
    """
    signal.signal(signal.SIGALRM, lambda *_: _end(limit_s))
    for index in range(first, len(names)):
        if comm.rank == 0:
            _write(log, {"index": index, "of": len(names), "test": names[index]})
        own = _silently(run, index, limit_s)
        if own[0] == "failed":
            _write(log, {"index": index, f"rank {comm.rank}": own[1]})
        outcomes = comm.allgather(own)
        outcome, text = max(outcomes, key=lambda each: OUTCOMES.index(each[0]))
        if comm.rank == 0:
            _write(log, {"index": index, "outcome": outcome, "text": text})
        is_uneven = outcome in ("failed", "refused") and len({each for each, _ in outcomes}) > 1
        is_late = any(each.startswith(_LATE) for _, each in outcomes)
        if is_uneven or is_late or (outcome == "failed" and not leaves_no_messages(index)):
            return


def following(log: Path, first: int, last_words: str) -> int:
    """Return the number of the test that follows the last one in the log; log the end of a world in this test.

    A world that begins no test, although `first` is left, ends the program: the next world would end likewise.
    """
    begun = read(log)
    if len(begun) <= first:
        raise SystemExit(f"no test began: {last_words}")
    last = begun[-1]
    if "outcome" not in last:
        failures = [f"{rank}: {text}" for rank, text in last.items() if rank.startswith("rank ")]
        _write(log, {"index": last["index"], "outcome": "failed", "text": "\n".join([last_words, *failures])})
    return int(last["index"]) + 1


def resumed(log: Path) -> tuple[int, int]:
    """Return the number of the first test without an outcome and the number of tests, at least 1. Remove the entries of
    a test that was interrupted.
    """
    tests = read(log)
    ended = [each for each in tests if "outcome" in each]
    if len(ended) < len(tests):
        log.write_text("".join(json.dumps(each) + "\n" for each in ended))
    return len(ended), tests[0]["of"] if tests else 1


def read(log: Path) -> list[dict[str, Any]]:
    """Return a dict for each test that began, with its "test" and "index", the number "of" tests, the failures of ranks
    ("rank 1"), and its "outcome" and the reason as "text" if it has ended.
    """
    tests: dict[int, dict[str, Any]] = {}
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        tests.setdefault(entry["index"], {}).update(entry)
    return list(tests.values())


def of_problem(text: str) -> Outcome:
    """Return the outcome of a test with a problem, from its traceback."""
    return ("refused" if "UnsupportedError:" in text else "failed"), text


def _silently(run: Callable[[int], Outcome], index: int, limit_s: int) -> Outcome:
    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    signal.alarm(limit_s)
    try:
        return run(index)
    except TimeoutError as error:
        return "failed", f"{_LATE} {error}"
    finally:
        signal.alarm(0)
        sys.stdout, sys.stderr = out, err


def _end(limit_s: int) -> None:
    raise TimeoutError(f"the test took longer than {limit_s} s")


def _write(log: Path, entry: dict[str, Any]) -> None:
    with log.open("a") as lines:
        lines.write(json.dumps(entry) + "\n")
