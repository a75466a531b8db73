"""Provide the requirements of the peers: launchers, compilers, compiled programs, interpreters with torch."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from ripieno.bench.processes import ProgramFailed, run
from ripieno.errors import RipienoError
from ripieno.files import disk

# Timeout of compilers and version queries, which normally end long before.
QUERY_TIMEOUT_S = 60.0
SYSTEM_PYTHON = "/usr/bin/python3"


class Skipped(RipienoError):
    """A measurement cannot run here; the message gives the reason and a remedy."""


@dataclass(frozen=True)
class Mpi:
    """An installed MPI.

    Parameters
    ----------
    name, version
        Name and version, such as "Open MPI" and (5, 0, 11).
    launcher, compiler
        Paths of its launcher and of the compiler for its programs.
    headers
        The Debian package of its headers.
    libraries
        Folder with libraries of the same binary interface that programs load instead of the compiler's.
    """

    name: str
    version: tuple[int, ...]
    launcher: str
    compiler: str
    headers: str
    libraries: str | None = None

    def compiled(self, source: Path) -> Path:
        """Compile one of our C programs for this MPI, and return its path.

        Raises
        ------
        Skipped
            If its headers are not installed. They may be missing although the compiler exists.
        """
        if not _has_mpi_header(self.compiler):
            raise Skipped(f"{self.compiler} finds no mpi.h, which is not installed: apt-get install {self.headers}")
        return _compiled(self.compiler, source, ["-O3", "-march=native"])

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables of its programs."""
        if self.libraries is None:
            return {}
        paths = os.pathsep.join(filter(None, (self.libraries, os.environ.get("LD_LIBRARY_PATH"))))
        return {"LD_LIBRARY_PATH": paths}

    @property
    def title(self) -> str:
        """Return its name, version and location."""
        return f"{self.name} {'.'.join(map(str, self.version))} ({self.launcher})"


@cache
def open_mpi() -> Mpi:
    """Return the newest Open MPI.

    Raises
    ------
    Skipped
        If it is not installed.
    """
    pairs = ("mpirun.openmpi", "mpicc.openmpi"), ("mpirun", "mpicc")
    remedy = "apt-get install openmpi-bin libopenmpi-dev, or make bench"
    return _newest("Open MPI", r"\(Open MPI\) ([0-9.]+)", "libopenmpi-dev", "openmpi", pairs, remedy)


@cache
def mpich() -> Mpi:
    """Return the newest MPICH.

    Raises
    ------
    Skipped
        If it is not installed.
    """
    pairs = ("mpirun.mpich", "mpicc.mpich"), ("mpiexec.hydra", "mpicc"), ("mpirun", "mpicc")
    remedy = "apt-get install mpich libmpich-dev, or make bench"
    return _newest("MPICH", r"HYDRA[^\0]*?Version: +([0-9.]+)", "libmpich-dev", "mpich", pairs, remedy)


@cache
def intel_mpi() -> Mpi:
    """Return the newest Intel MPI, with the compiler of MPICH, which has the same binary interface.

    Raises
    ------
    Skipped
        If it or MPICH is not installed.
    """
    version = r"Intel\(R\) MPI Library.*Version ([0-9.]+)"
    found = _newest("Intel MPI", version, "libmpich-dev", "impi-rt", [("mpiexec.hydra",)], "make bench")
    try:
        compiler = mpich().compiler
    except Skipped as error:
        raise Skipped(f"Intel MPI needs the compiler of MPICH: {error}") from None
    return replace(found, compiler=compiler, libraries=str(Path(found.launcher).parents[1] / "lib"))


def require_mpi4py() -> None:
    """Check that this interpreter has mpi4py.

    Raises
    ------
    Skipped
        If it does not.
    """
    if importlib.util.find_spec("mpi4py") is None:
        raise Skipped(f"mpi4py is not installed: {sys.executable} -m pip install mpi4py")


def torch_python(python: str | None) -> str:
    """Return an interpreter with torch.distributed: `python` if given, else this one or the system's.

    Raises
    ------
    Skipped
        If no interpreter has it.
    """
    tried = [python] if python is not None else [sys.executable, SYSTEM_PYTHON]
    for each in tried:
        if _has_gloo(each):
            return each
    how = "pip install torch, or apt-get install python3-torch"
    raise Skipped(f"Gloo: none of {', '.join(tried)} has torch.distributed with gloo: {how}")


@cache
def _has_gloo(python: str) -> bool:
    # Before torch 2, `is_gloo_available` does not exist and gloo is always available.
    program = (
        "import numpy, torch.distributed as d; raise SystemExit(not getattr(d, 'is_gloo_available', d.is_available)())"
    )
    try:
        run([python, "-c", program], timeout_s=QUERY_TIMEOUT_S)
    except ProgramFailed:
        return False
    return True


def shared_object(source: Path) -> Path:
    """Compile one of our C files for LD_PRELOAD, and return its path."""
    return _compiled("cc", source, ["-O2", "-shared", "-fPIC"])


def openmp(source: Path) -> Path:
    """Compile one of our C programs with OpenMP threads, and return its path.

    Raises
    ------
    Skipped
        If no compiler with OpenMP exists.
    """
    try:
        return _compiled("cc", source, ["-O2", "-fopenmp"])
    except ProgramFailed as error:
        raise Skipped(f"OpenMP: the C compiler cannot make programs with it: {error}") from None


def java_archive(source: Path, libraries: Path) -> Path:
    """Compile a Java file against the jars of a folder, for Java 17 and later, into a jar, and return its path.

    Raises
    ------
    Skipped
        If no compiler exists.
    """
    compiler = shutil.which("javac")
    if compiler is None:
        raise Skipped("no Java compiler: apt-get install openjdk-17-jdk-headless")
    key = hashlib.sha256("\0".join((compiler, str(libraries), source.read_text())).encode()).hexdigest()[:16]
    archive = _cache_folder() / f"{source.stem}-{key}.jar"
    if not archive.exists():
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            words = [compiler, "--release", "17", "-cp", f"{libraries}/*", "-d", f"{folder}/classes", str(source)]
            run(words, timeout_s=QUERY_TIMEOUT_S)
            disk.publish(shutil.make_archive(f"{folder}/archive", "zip", f"{folder}/classes"), archive)
    return archive


def _newest(name: str, version: str, headers: str, wheel: str, programs: Iterable[tuple[str, ...]], remedy: str) -> Mpi:
    """Return the newest MPI on the path, among the wheels of `make bench`, or next to this interpreter.

    `version` is a pattern of the output of `--version` with the version as its group. Each of `programs` names a
    launcher and a compiler, or only a launcher if the compiler of another MPI is used.
    """
    found = []
    for folder in (None, f"{sys.prefix}/peers/{wheel}/bin", f"{sys.prefix}/bin"):
        for names in programs:
            paths = [shutil.which(each, path=folder) for each in names]
            if all(paths):
                launcher, compiler = str(paths[0]), str(paths[-1])
                found_version = re.search(version, run([launcher, "--version"], timeout_s=QUERY_TIMEOUT_S))
                if found_version:
                    numbers = tuple(int(each) for each in found_version[1].split(".") if each)
                    found.append(Mpi(name, numbers, launcher, compiler, headers))
                    break
    if not found:
        raise Skipped(f"{name} is not installed: {remedy}")
    return max(found, key=lambda mpi: mpi.version)


@cache
def _has_mpi_header(compiler: str) -> bool:
    try:
        run([compiler, "-fsyntax-only", "-include", "mpi.h", "-x", "c", os.devnull], timeout_s=QUERY_TIMEOUT_S)
    except ProgramFailed:
        return False
    return True


def _compiled(compiler: str, source: Path, options: list[str]) -> Path:
    """Compile, unless this source was already compiled with this compiler.

    Raises
    ------
    ProgramFailed
        If compiling fails; the message has the compiler's output.
    """
    path = shutil.which(compiler)
    if path is None:
        raise Skipped(f"no C compiler {compiler}: apt-get install gcc libc6-dev")
    key = hashlib.sha256("\0".join((path, *options, source.read_text())).encode()).hexdigest()[:16]
    program = _cache_folder() / f"{source.stem}-{key}"
    if not program.exists():
        # Write to a temporary name first: other processes may compile or run the same program.
        unfinished = program.with_suffix(f".{os.getpid()}")
        run([path, *options, "-o", unfinished, source], timeout_s=QUERY_TIMEOUT_S)
        disk.publish(unfinished, program)
    return program


def _cache_folder() -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ripieno"
    disk.make_folders(folder)
    return folder
