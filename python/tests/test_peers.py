"""The recorded results of other projects' tests, and the programs that record them."""

import json
import runpy
from pathlib import Path

PEERS = Path(__file__).resolve().parents[2] / "tools/peers"


def test_the_tables_of_the_page_match_the_records():
    tables = runpy.run_path(str(PEERS / "tables.py"))
    page = tables["PAGE"].read_text()
    assert page == tables["filled"](page)


def test_recorded_reasons_are_reasons_of_known_failures():
    known = json.loads((PEERS / "known.json").read_text())
    for title, suite in json.loads((PEERS / "results.json").read_text()).items():
        for row in suite["ranks"].values():
            assert row["reasons"].keys() <= known[title].keys()
            assert sum(row["reasons"].values()) in (0, row["outcomes"].get("documented", 0))
