"""Recorded test durations, and their table in CONTRIBUTING.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def times(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    import times

    return times


def test_the_table_in_contributing_matches_the_records(times):
    assert times.PAGE.read_text() == times.page_with(json.loads(times.RECORDED.read_text()))


def test_short_groups_are_recorded_together(times):
    tests = [("a", 2.0), ("b", 0.4), ("a", 1.5), ("c", 0.3)]
    found = times.grouped([{"group": group, "cpu_s": seconds} for group, seconds in tests])
    assert found == {"a": 3.5, "others": 0.7}


def test_differences_to_the_records_are_reported(times):
    now = {"build": {"": 90.0}, "python": {"test_a.py": 10.0, "test_b.py": 21.0}}
    recorded = {"build": {"": 100.0}, "python": {"test_a.py": 3.0, "test_b.py": 20.0, "test_c.py": 4.0}}
    assert times.compare(now, recorded) == [
        "compile the native module: 90 s, recorded 100 s",
        "Python tests: 31 s, recorded 27 s",
        "    test_a.py: 10.0 s, recorded 3.0 s",
        "    test_c.py: 0.0 s, recorded 4.0 s",
    ]


def test_the_processor_time_of_a_command_is_logged(times, monkeypatch, tmp_path):
    monkeypatch.setattr(times, "LOGS", tmp_path)
    assert times.run("build", ["false"]) == 1
    assert json.loads((tmp_path / "build.json").read_text())["cpu_s"] >= 0
