"""Build the native library of the JVM for some machines, and the jars that have it.

    python tools/jvm.py [x86_64 aarch64]

By default for this machine only. Needs a Rust toolchain, a JDK of 17 or later and Maven; for another machine than this
one its target (rustup target add) and the packages of requirements-wheels.lock, whose Zig links. The jars are in
target/jvm.
"""

from __future__ import annotations

import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = ROOT / "target/jni/lib/linux"
#: The oldest glibc that a library for another machine runs with: as the wheels'.
GLIBC = "2.17"


def main() -> None:
    shutil.rmtree(LIBRARIES, ignore_errors=True)
    for machine in sys.argv[1:] or (platform.machine(),):
        path = LIBRARIES / machine / "libripieno_jni.so"
        path.parent.mkdir(parents=True)
        shutil.copyfile(library(machine), path)
        print(f"{machine}: {path.stat().st_size / 2**20:.2f} MiB")
    command = ["mvn", "--quiet", "--batch-mode", "-Dstyle.color=never", "--no-transfer-progress"]
    subprocess.run([*command, "--file", ROOT / "java/pom.xml", "package"], check=True)
    for jar in sorted((ROOT / "target/jvm").glob("*/*.jar")):
        print(f"{jar.relative_to(ROOT)}: {jar.stat().st_size / 2**20:.2f} MiB")


def library(machine: str) -> Path:
    """The stripped library for a machine, built as far as it is not."""
    command = ["cargo", "rustc", "--release", "--locked", "--package", "ripieno-jni"]
    strip = ["--", "-C", "strip=symbols"]
    if machine == platform.machine():
        subprocess.run([*command, *strip], cwd=ROOT, check=True)
        return ROOT / "target/release/libripieno_jni.so"
    target = f"{machine}-unknown-linux-gnu"
    with tempfile.TemporaryDirectory() as folder:
        linker = Path(folder) / "cc"
        zig = f"{sys.executable} -m ziglang cc -target {machine}-linux-gnu.{GLIBC}"
        linker.write_text(f'#!/bin/sh\nexec {zig} "$@"\n')
        linker.chmod(linker.stat().st_mode | stat.S_IXUSR)
        named = f"CARGO_TARGET_{target.upper().replace('-', '_')}_LINKER"
        variables = os.environ | {named: str(linker), f"CC_{target.replace('-', '_')}": str(linker)}
        subprocess.run([*command, "--target", target, *strip], cwd=ROOT, check=True, env=variables)
    return ROOT / "target" / target / "release/libripieno_jni.so"


if __name__ == "__main__":
    main()
