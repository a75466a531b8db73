"""List the crates that are compiled into the native modules.

It writes THIRD-PARTY-LICENSES, with their terms, and sbom.cdx.json, a CycloneDX bill of materials for the wheels.
It fails if a crate has other terms than `ALLOWED`, or does not come from crates.io.

python tools/licenses.py            # after Cargo.lock has changed
python tools/licenses.py --check    # fail if a file is stale
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "THIRD-PARTY-LICENSES"
BILL = ROOT / "sbom.cdx.json"

#: Terms that permit distribution with this package. A crate may offer others besides one of these.
ALLOWED = {"Apache-2.0", "MIT", "ISC", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "Unicode-3.0", "Zlib"}
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"

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


def document(known: dict[str, tuple[str, Path]]) -> str:
    """Return the file of terms: the list, and each distinct text once, with its crates."""
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


def is_allowed(terms: str) -> bool:
    """Return whether an SPDX expression can be met by `ALLOWED`. Exceptions (WITH) only permit more."""
    choices = re.sub(r"\(([^()]*)\)", lambda group: str(is_allowed(group[1])), terms.replace("/", " OR "))
    each = (choice.split(" AND ") for choice in choices.split(" OR "))
    return any(all(term == "True" or term.partition(" WITH ")[0] in ALLOWED for term in terms) for terms in each)


def refused(known: dict[str, tuple[str, Path]]) -> list[str]:
    """Return a complaint about each crate with other terms, or from elsewhere than crates.io."""
    locked = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    elsewhere = [each for each in locked if each.get("source", CRATES_IO) != CRATES_IO]
    complaints = [f"{each['name']} {each['version']}: from {each['source']}" for each in elsewhere]
    return complaints + [f"{name}: {terms}" for name, (terms, _) in sorted(known.items()) if not is_allowed(terms)]


def bill(known: dict[str, tuple[str, Path]]) -> str:
    """Return the bill of materials. It has no time and no serial number, so equal sources have equal bills."""
    locked = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    checksums = {f"{each['name']} {each['version']}": each.get("checksum", "") for each in locked}
    components = []
    for crate, (terms, _) in sorted(known.items()):
        name, version = crate.split()
        url = f"pkg:cargo/{name}@{version}"
        components.append(
            {
                "type": "library",
                "bom-ref": url,
                "name": name,
                "version": version,
                "hashes": [{"alg": "SHA-256", "content": checksums[crate]}],
                "licenses": [{"expression": terms.replace("/", " OR ")}],
                "purl": url,
            }
        )
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    own = {"type": "library", "bom-ref": "ripieno", "name": "ripieno", "version": version}
    head = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"component": own}}
    return json.dumps(head | {"components": components}, indent=1) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if a file is stale")
    is_check, known = parser.parse_args().check, crates()
    complaints = refused(known)
    for path, text in ((FILE, document(known)), (BILL, bill(known))):
        if not is_check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            complaints.append(f"{path.name} is stale: run python tools/licenses.py")
    print("\n".join(complaints), end="\n"[: len(complaints)], file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
