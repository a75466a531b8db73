"""A Python for another architecture, run by qemu's user mode, from Debian's packages."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

#: Debian's names of architectures.
ARCHITECTURES = {"aarch64": "arm64", "x86_64": "amd64"}
PACKAGES = ("python3", "libgomp1", "libstdc++6")
#: Platform tags that pip accepts for it: up to the glibc of Debian's stable release.
PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux2014", "manylinux_2_17")


def python_of(machine: str, folder: Path) -> list[str] | None:
    """Install a Python for `machine` into a folder and return its command; None without qemu and apt."""
    emulator = shutil.which(f"qemu-{machine}") or shutil.which(f"qemu-{machine}-static")
    if emulator is None or shutil.which("apt-get") is None:
        return None
    root = folder / "root"
    if not (root / "usr/bin/python3").exists():
        _fetch(ARCHITECTURES[machine], folder, root)
    (python,) = root.glob("usr/bin/python3.*[0-9]")
    return [emulator, "-L", str(root), str(python)]


def install(machine: str, wheel: Path, folder: Path) -> None:
    """Install a wheel for that machine and its dependencies into a folder, with this machine's pip."""
    platforms = [f"--platform={name}_{machine}" for name in PLATFORMS]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
    command += ["--only-binary=:all:", "--python-version=3.11", "--implementation=cp", *platforms]
    subprocess.run([*command, f"--target={folder}", wheel], check=True)


def _fetch(architecture: str, folder: Path, root: Path) -> None:
    state, cache = folder / "state", folder / "cache"
    for made in (state / "lists/partial", cache / "archives/partial", root):
        made.mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    options = {"APT::Architecture": architecture, "APT::Architectures": architecture, "Dir::State": state}
    options |= {"Dir::State::status": state / "status", "Dir::Cache": cache}
    apt = ["apt-get", "-qq", *(f"-o={name}={value}" for name, value in options.items())]
    subprocess.run([*apt, "update"], check=True)
    subprocess.run(
        [*apt, "install", "--download-only", "--yes", "--no-install-recommends", *PACKAGES],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    for package in sorted(cache.glob("archives/*.deb")):
        subprocess.run(["dpkg", "-x", package, root], check=True)
