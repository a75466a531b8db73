"""Measure the time of the tests, and compare it with the table in CONTRIBUTING.md.

    python tools/times.py run NAME -- COMMAND...   run a command, and log its processor time as NAME
    python tools/times.py compare                  print the times of the last runs next to the recorded ones
    python tools/times.py record                   record the times, and write the table of CONTRIBUTING.md

Processor time (user and system, children included) is the same on busy and idle machines. The logs are in target/times.
The Python tests log themselves there (python/tests/conftest.py), test by test. The recorded times are in
python/tests/times.json. The Python tests use them to start the longest files first.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "target/times"
RECORDED = ROOT / "python/tests/times.json"
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- make times RECORD=1 writes this table -->\n", "<!-- end of the table -->\n"
#: Commands, by the names of their logs.
COMMANDS = {
    "build": "compile the native module",
    "build-tests": "compile the Rust tests",
    "rust": "run the Rust tests",
    "rust-documentation": "compile and run the examples of Rust's documentation",
}
#: Logs of pytest with groups: files, or engines.
GROUPED = {"python": "Python tests", "engines": "tests of engines"}
#: Groups below this time are recorded together.
MIN_S = 1.0
#: Number of groups per log in the table.
NAMED = 12
#: A difference is reported if it exceeds both this time and this fraction.
MIN_CHANGE_S, MIN_CHANGE_SHARE = 2.0, 0.2
OTHERS = "others"

Times = dict[str, dict[str, float]]


def run(name: str, command: list[str]) -> int:
    """Run a command and return its exit code."""
    code = subprocess.run(command).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    LOGS.mkdir(parents=True, exist_ok=True)
    (LOGS / f"{name}.json").write_text(json.dumps({"cpu_s": round(used.ru_utime + used.ru_stime, 1)}))
    return code


def measured() -> Times:
    """Return the times of the last runs, by log and group. Missing logs are left out."""
    times: Times = {}
    for name in COMMANDS:
        if (path := LOGS / f"{name}.json").exists():
            times[name] = {"": json.loads(path.read_text())["cpu_s"]}
    for name in GROUPED:
        if (path := LOGS / f"{name}.json").exists():
            times[name] = grouped(json.loads(path.read_text()))
    return times


def grouped(tests: list[dict[str, str | float]]) -> dict[str, float]:
    """Sum the tests of a log by group, the longest first."""
    sums: dict[str, float] = {}
    for test in tests:
        sums[str(test["group"])] = sums.get(str(test["group"]), 0.0) + float(test["cpu_s"])
    rounded = {group: round(sums[group], 1) for group in sorted(sums, key=lambda each: -sums[each])}
    long = {group: seconds for group, seconds in rounded.items() if seconds >= MIN_S}
    return {**long, OTHERS: round(sum(rounded.values()) - sum(long.values()), 1)}


def compare(now: Times, recorded: Times) -> list[str]:
    """Return sentences on changes since the recorded times."""
    lines = []
    for name in now:
        before = recorded.get(name, {})
        total, total_before = sum(now[name].values()), sum(before.values())
        lines.append(f"{(COMMANDS | GROUPED)[name]}: {total:.0f} s, recorded {total_before:.0f} s")
        for group in sorted(now[name].keys() | before.keys()):
            new, old = now[name].get(group, 0.0), before.get(group, 0.0)
            if group and abs(new - old) > max(MIN_CHANGE_S, MIN_CHANGE_SHARE * old):
                lines.append(f"    {group}: {new:.1f} s, recorded {old:.1f} s")
    return lines


def table(times: Times) -> str:
    """Return the table of CONTRIBUTING.md."""
    rows = ["| part | seconds of computing |", "|---|---:|"]
    rows += [f"| {heading} | {sum(times[name].values()):.0f} |" for name, heading in COMMANDS.items() if name in times]
    for name, heading in GROUPED.items():
        if name not in times:
            continue
        rows.append(f"| {heading} | {sum(times[name].values()):.0f} |")
        longest = [group for group in times[name] if group != OTHERS][:NAMED]
        rows += [f"| · `{group}` | {times[name][group]:.0f} |" for group in longest]
    return "\n".join(rows) + "\n"


def page_with(times: Times) -> str:
    """Return CONTRIBUTING.md with the table of these times."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{table(times)}\n{END}{rest.partition(END)[2]}"


def main(words: list[str]) -> int:
    if words[:1] == ["run"] and words[2:3] == ["--"]:
        return run(words[1], words[3:])
    recorded: Times = json.loads(RECORDED.read_text())
    if words == ["compare"]:
        print(*compare(measured(), recorded), sep="\n")
        return 0
    if words == ["record"]:
        times = recorded | measured()
        RECORDED.write_text(json.dumps(times, indent=1) + "\n")
        PAGE.write_text(page_with(times))
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
