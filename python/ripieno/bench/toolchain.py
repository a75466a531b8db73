"""Requirements of the peers: launchers and compilers, programs compiled on first use, interpreters with torch."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ripieno.bench.processes import ProgramFailed, run
from ripieno.errors import RipienoError

# Timeout of compilers and version queries, which normally end long before.
QUESTION_TIMEOUT_S = 60.0
SYSTEM_PYTHON = "/usr/bin/python3"


class Skipped(RipienoError):
    """A measurement cannot run here; the message gives the reason and a remedy."""


@dataclass(frozen=True)
class Mpi:
    """An installed MPI: its launcher, its compiler, and the Debian package of its headers."""

    launcher: str
    compiler: str
    headers: str

    def compiled(self, source: Path) -> Path:
        """Compile one of our C programs for this MPI, and return its path.

        Raises
        ------
        Skipped
            If its headers are not installed, which may be missing although the compiler exists.
        """
        if not _has_mpi_header(self.compiler):
            raise Skipped(f"{self.compiler} finds no mpi.h, which is not installed: apt-get install {self.headers}")
        return _compiled(self.compiler, source, ["-O3", "-march=native"])


@cache
def open_mpi() -> Mpi:
    """Return Open MPI.

    Raises
    ------
    Skipped
        If it is not installed.
    """
    found = _find("Open MPI", "libopenmpi-dev", ("mpirun.openmpi", "mpicc.openmpi"), ("mpirun", "mpicc"))
    if found is None:
        raise Skipped("Open MPI is not installed: apt-get install openmpi-bin libopenmpi-dev")
    return found


@cache
def mpich() -> Mpi:
    """Return MPICH.

    Raises
    ------
    Skipped
        If it is not installed.
    """
    found = _find(
        "HYDRA", "libmpich-dev", ("mpirun.mpich", "mpicc.mpich"), ("mpiexec.hydra", "mpicc"), ("mpirun", "mpicc")
    )
    if found is None:
        raise Skipped("MPICH is not installed: apt-get install mpich libmpich-dev")
    return found


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
    question = (
        "import numpy, torch.distributed as d; raise SystemExit(not getattr(d, 'is_gloo_available', d.is_available)())"
    )
    try:
        run([python, "-c", question], timeout_s=QUESTION_TIMEOUT_S)
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
    except ProgramFailed as why:
        raise Skipped(f"OpenMP: the C compiler cannot make programs with it: {why}") from None


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
            run(words, timeout_s=QUESTION_TIMEOUT_S)
            Path(shutil.make_archive(f"{folder}/made", "zip", f"{folder}/classes")).rename(archive)
    return archive


def _find(version: str, headers: str, *pairs: tuple[str, str]) -> Mpi | None:
    """Return the first launcher with this version text, with its compiler."""
    for launcher, compiler in pairs:
        paths = shutil.which(launcher), shutil.which(compiler)
        if paths[0] and paths[1] and version in run([paths[0], "--version"], timeout_s=QUESTION_TIMEOUT_S):
            return Mpi(paths[0], paths[1], headers)
    return None


@cache
def _has_mpi_header(compiler: str) -> bool:
    try:
        run([compiler, "-fsyntax-only", "-include", "mpi.h", "-x", "c", os.devnull], timeout_s=QUESTION_TIMEOUT_S)
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
        run([path, *options, "-o", unfinished, source], timeout_s=QUESTION_TIMEOUT_S)
        unfinished.rename(program)
    return program


def _cache_folder() -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ripieno"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
