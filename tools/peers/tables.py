"""The tables of docs/tests.md, made from the results that ``run.py --record`` has stored in results.json."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

PAGE = Path(__file__).resolve().parents[2] / "docs/tests.md"
RESULTS, KNOWN = (Path(__file__).with_name(name) for name in ("results.json", "known.json"))
BEGIN, END = "<!-- outcomes: filled by tools/peers/run.py --record -->", "<!-- end of outcomes -->"
OUTCOMES = ("passed", "skipped", "refused", "documented", "failed")


class Row(NamedTuple):
    """The results of a suite with a number of ranks, and its parts that were run."""

    run_count: int
    part_count: int
    outcomes: dict[str, int]
    reasons: dict[str, int]


def record(title: str, version: str, ranks: int, row: Row) -> None:
    """Store the results of a suite with a number of ranks, and update the page. Rows of another version are removed."""
    results = json.loads(RESULTS.read_text())
    suite = results.setdefault(title, {"version": version, "ranks": {}})
    if suite["version"] != version:
        suite |= {"version": version, "ranks": {}}
    suite["ranks"][str(ranks)] = row._asdict()
    suite["ranks"] = dict(sorted(suite["ranks"].items(), key=lambda entry: int(entry[0])))
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(filled(PAGE.read_text()))


def filled(page: str) -> str:
    """Return the page with the tables of the stored results."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    results = json.loads(RESULTS.read_text())
    return f"{before}{BEGIN}\n\n{_counts(results)}\n\n{_reasons(results)}\n\n{END}{after}"


def _counts(results: dict[str, Any]) -> str:
    lines = [
        "| tests of | ranks | tests | passed | skipped | refused | known reason | failed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for title, suite in results.items():
        for ranks, values in suite["ranks"].items():
            row = Row(**values)
            name = f"{title} {suite['version']}".rstrip()
            if row.run_count < row.part_count:
                name += f", {row.run_count} of {row.part_count} parts"
            counts = [row.outcomes.get(outcome, 0) for outcome in OUTCOMES]
            cells = (name, ranks, f"{sum(counts):,}", *(f"{count:,}" for count in counts))
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _reasons(results: dict[str, Any]) -> str:
    """Return the reasons of known failures, each with the largest number of tests that had it in a row, if recorded."""
    lines = ["| tests of | failures | reason |", "|---|---|---|"]
    for title, known in json.loads(KNOWN.read_text()).items():
        most_common: Counter[str] = Counter()
        for values in results[title]["ranks"].values() if title in results else ():
            most_common |= Counter(values["reasons"])
        for reason in sorted(known, key=lambda reason: -most_common[reason]):
            lines.append(f"| {title} | {most_common[reason] or ''} | {reason} |")
    return "\n".join(lines)
