"""Build the native JVM library for some machines, and the jars that contain it.

    python tools/jvm.py [x86_64 aarch64]
    python tools/jvm.py --library target/debug/libripieno_jni.so

By default it builds for this machine and its glibc, or uses an existing library. It needs a Rust toolchain, a JDK of 17
or later and Maven. For named machines, which may have an old glibc, it needs their targets (rustup target add) and the
packages of requirements-wheels.lock, which include the compiler and linker Zig. The jars are in target/jvm.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = ROOT / "target/jni/lib/linux"
#: The oldest supported glibc of a library for a named machine, as for the wheels.
GLIBC = "2.17"
BUILD = ("rustc", "--release", "--locked", "--package", "ripieno-jni")
STRIP = ("--", "-C", "strip=symbols")


def main() -> None:
    shutil.rmtree(LIBRARIES, ignore_errors=True)
    match sys.argv[1:]:
        case ["--library", library]:
            libraries = {platform.machine(): ROOT / library}
        case []:
            libraries = {platform.machine(): for_this_system()}
        case machines:
            libraries = {machine: for_old_systems(machine) for machine in machines}
    for machine, library in libraries.items():
        path = LIBRARIES / machine / "libripieno_jni.so"
        path.parent.mkdir(parents=True)
        shutil.copyfile(library, path)
        print(f"{machine}: {path.stat().st_size / 2**20:.2f} MiB")
    command = ["mvn", "--quiet", "--batch-mode", "-Dstyle.color=never", "--no-transfer-progress"]
    subprocess.run([*command, "--file", ROOT / "java/pom.xml", "package"], check=True)
    for jar in sorted((ROOT / "target/jvm").glob("*/*.jar")):
        print(f"{jar.relative_to(ROOT)}: {jar.stat().st_size / 2**20:.2f} MiB")


def for_this_system() -> Path:
    """Return the stripped library, after building outdated parts."""
    subprocess.run(["cargo", *BUILD, *STRIP], cwd=ROOT, check=True)
    return ROOT / "target/release/libripieno_jni.so"


def for_old_systems(machine: str) -> Path:
    """Return the library for a machine of this or another architecture."""
    target = f"{machine}-unknown-linux-gnu"
    programs = Path(sys.executable).parent
    variables = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
    command = [programs / "cargo-zigbuild", *BUILD, "--target", f"{target}.{GLIBC}", *STRIP]
    subprocess.run(command, cwd=ROOT, check=True, env=variables)
    return ROOT / "target" / target / "release/libripieno_jni.so"


if __name__ == "__main__":
    main()
