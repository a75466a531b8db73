"""Compare the locked packages with advisories, as far as the tools and their data are on this machine.

    python3 tools/advisories.py

`cargo audit` and `cargo deny` read a local copy of the RustSec database and need no network. `pip-audit` asks its
service. A tool or database that is missing is reported by name; a finding is an error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CARGO = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
#: Each tool, the folder of its data, and its arguments. A tool without a folder uses the network.
TOOLS = {
    "cargo-audit": (CARGO / "advisory-db", ("audit", "--no-fetch", "--stale", "--file", "Cargo.lock")),
    "cargo-deny": (CARGO / "advisory-dbs", ("--offline", "check", "advisories")),
    "pip-audit": (None, ("--disable-pip", "--require-hashes", "--requirement", "requirements.lock")),
}


def main() -> int:
    status = 0
    for tool, (data, arguments) in TOOLS.items():
        if shutil.which(tool) is None:
            print(f"advisories: {tool} is not installed: not checked")
        elif data is not None and not data.is_dir():
            print(f"advisories: {tool} has no data in {data}: not checked (cargo audit fetch, cargo deny fetch)")
        elif data is None and "ADVISORIES_ONLINE" not in os.environ:
            print(f"advisories: {tool} needs the network: not checked (set ADVISORIES_ONLINE=1)")
        else:
            status = max(status, subprocess.run([tool, *arguments], cwd=ROOT).returncode)
    return min(status, 1)


if __name__ == "__main__":
    sys.exit(main())
