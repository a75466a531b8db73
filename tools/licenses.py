"""Write THIRD-PARTY-LICENSES: the crates compiled into the native modules, with their terms.

python tools/licenses.py            # after Cargo.lock has changed
python tools/licenses.py --check    # fail if the file is stale
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

#: Distributed modules, in wheels and in jars.
MODULES = ("ripieno-python", "ripieno-jni")

#: Target platforms.
TARGETS = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")

#: Files of a crate that state terms or authors.
STATEMENTS = ("licen", "copying", "notice", "unlicense")


def crates() -> dict[str, tuple[str, Path]]:
    """Return each crate that is linked into the modules: name and version, license, and folder."""
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
                # Skip crates used only for building or testing.
                if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                    waiting.append(dependency["pkg"])
        for package in (packages[each] for each in seen):
            if package["source"] is not None:
                name = f"{package['name']} {package['version']}"
                found[name] = (package["license"] or "see below", Path(package["manifest_path"]).parent)
    return found


def document() -> str:
    """Return the file: the list, and each distinct text once, with its crates."""
    known = crates()
    texts: dict[str, list[str]] = defaultdict(list)
    for name, (_, folder) in sorted(known.items()):
        for path in sorted(folder.iterdir()):
            if path.is_file() and path.name.lower().startswith(STATEMENTS):
                text = "\n".join(line.rstrip() for line in path.read_text(errors="replace").splitlines()).strip("\n")
                if name not in texts[text]:
                    texts[text].append(name)
    parts = ["The native modules of Ripieno contain these crates:\n"]
    parts += [f"{name}: {license}" for name, (license, _) in sorted(known.items())]
    for text, names in texts.items():
        parts += ["\n" + "=" * 100, ", ".join(names), "=" * 100 + "\n", text]
    return "\n".join(parts) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the file is stale")
    text = document()
    if parser.parse_args().check:
        if not FILE.exists() or FILE.read_text() != text:
            print(f"{FILE.name} is stale: run python tools/licenses.py", file=sys.stderr)
            return 1
        return 0
    FILE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
