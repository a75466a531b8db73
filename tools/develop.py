"""Install the package from its sources, with the native module that `cargo build` made for the tests.

    python tools/develop.py target/debug/lib_native.so

`maturin develop` does the same after a separate build. That build shares few crates with the tests, because cargo
chooses other features when it builds the module alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parents[1]
MODULE = ROOT / "python/ripieno/_native.abi3.so"


def main(library: Path) -> None:
    # A new file, so that processes with the old file mapped keep it.
    stripped = MODULE.with_suffix(".part")
    subprocess.run(["strip", "-o", stripped, library], check=True)
    os.replace(stripped, MODULE)
    with tempfile.TemporaryDirectory() as folder:
        wheel = editable_wheel(Path(folder))
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", wheel]
        subprocess.run(command, check=True)


def editable_wheel(folder: Path) -> Path:
    """Write a wheel that holds the metadata of the package and the path of its sources."""
    command = [sys.executable, "-m", "maturin", "pep517", "write-dist-info", "--interpreter", sys.executable]
    subprocess.run([*command, "--metadata-directory", folder], cwd=ROOT, check=True, capture_output=True)
    (metadata,) = folder.glob("*.dist-info")
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in metadata.rglob("*") if path.is_file()}
    files["ripieno.pth"] = f"{ROOT / 'python'}\n".encode()
    record = f"{metadata.name}/RECORD"
    files[record] = "".join(f"{name},,\n" for name in [*files, record]).encode()
    path = folder / f"{metadata.stem}-py3-none-any.whl"
    with ZipFile(path, "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)
    return path


if __name__ == "__main__":
    main(Path(sys.argv[1]))
