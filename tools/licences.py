"""Write THIRD-PARTY-LICENSES: what is compiled into the native modules, and under which terms.

python tools/licences.py            # after Cargo.lock has changed
python tools/licences.py --check    # fail if the file is stale
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "THIRD-PARTY-LICENSES"

#: What is given away, in wheels and in jars.
MODULES = ("ripieno-python", "ripieno-jni")

#: What they are built for.
TARGETS = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")

#: Files of a crate that state terms or authors.
STATEMENTS = ("licen", "copying", "notice", "unlicense")


def crates() -> dict[str, tuple[str, Path]]:
    """Each crate that is linked into the modules: its name and version, its licence, and its folder."""
    found: dict[str, tuple[str, Path]] = {}
    for target in TARGETS:
        command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target]
        metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
        packages = {package["id"]: package for package in metadata["packages"]}
        nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
        waiting = [package["id"] for package in metadata["packages"] if package["name"] in MODULES]
        seen: set[str] = set()
        while waiting:
            package = waiting.pop()
            if package in seen:
                continue
            seen.add(package)
            for dependency in nodes[package]["deps"]:
                # Not what only builds or tests.
                if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                    waiting.append(dependency["pkg"])
        for package in (packages[each] for each in seen):
            if package["source"] is not None:
                name = f"{package['name']} {package['version']}"
                found[name] = (package["license"] or "see below", Path(package["manifest_path"]).parent)
    return found


def document() -> str:
    """The file: the list, and every text once, with the crates that have it."""
    known = crates()
    texts: dict[str, list[str]] = defaultdict(list)
    for name, (_, folder) in sorted(known.items()):
        for path in sorted(folder.iterdir()):
            if path.is_file() and path.name.lower().startswith(STATEMENTS):
                text = "\n".join(line.rstrip() for line in path.read_text(errors="replace").splitlines()).strip("\n")
                if name not in texts[text]:
                    texts[text].append(name)
    parts = ["The native modules of Ripieno contain these crates:\n"]
    parts += [f"{name}: {licence}" for name, (licence, _) in sorted(known.items())]
    for text, names in texts.items():
        parts += ["\n" + "=" * 100, ", ".join(names), "=" * 100 + "\n", text]
    return "\n".join(parts) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the file is stale")
    made = document()
    if parser.parse_args().check:
        if not FILE.exists() or FILE.read_text() != made:
            print(f"{FILE.name} is stale: run python tools/licences.py", file=sys.stderr)
            return 1
        return 0
    FILE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
