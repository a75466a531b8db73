"""What all benchmarks share: samples, figures beside peers and limits, processes that run as ranks, builds."""

from __future__ import annotations

import os
import platform
import re
import secrets
import shutil
import socket
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
BENCHES = REPOSITORY / "benches"
BUILD = REPOSITORY / "target" / "benches"
# No run of a program takes longer than this.
TIMEOUT_S = 900.0


class Skipped(Exception):
    """A part that cannot be measured here; the text says why and what to do about it."""


@dataclass(frozen=True)
class Samples:
    """Seconds of repeated measurements of one thing."""

    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        return statistics.median(self.seconds)

    @property
    def best_s(self) -> float:
        return min(self.seconds)

    @property
    def worst_s(self) -> float:
        return max(self.seconds)


@dataclass(frozen=True)
class Figure:
    """One measured case: ours, its peers and its limit, all from one run.

    Parameters
    ----------
    case, row
        What was measured, e.g. "2 ranks, native" and "64 KiB"; a table shows the rows of a case.
    ours, peers
        Seconds; alternated, so that what disturbs one disturbs all.
    limit_s
        Seconds that no implementation can beat, and `limit` what that is.
    work
        What the rate counts, in units of `rate_unit` times seconds.
    targets
        What ours is to be at most, in multiples of the best "peer" and of the "limit".
    """

    case: str
    row: str
    ours: Samples
    peers: dict[str, Samples]
    limit_s: float | None
    limit: str
    work: float
    rate_unit: str
    targets: dict[str, float]

    @property
    def best_peer(self) -> tuple[str, Samples] | None:
        """The peer with the least median."""
        return min(self.peers.items(), key=lambda peer: peer[1].median_s, default=None)

    @property
    def to_peer(self) -> float | None:
        """Our median over the best peer's: below 1 is faster."""
        return None if self.best_peer is None else self.ours.median_s / self.best_peer[1].median_s

    @property
    def best_to_peer(self) -> float | None:
        """The same of the best runs, which other load on the machine disturbs less."""
        return self.ours.best_s / min(peer.best_s for peer in self.peers.values()) if self.peers else None

    @property
    def to_limit(self) -> float | None:
        """Our median over the limit."""
        return None if self.limit_s is None else self.ours.median_s / self.limit_s

    @property
    def reached(self) -> bool | None:
        """Whether all targets are reached, None if there is nothing to hold one against."""
        ratios = {"peer": self.to_peer, "limit": self.to_limit}
        verdicts = [ratio <= target for name, target in self.targets.items() if (ratio := ratios[name]) is not None]
        return all(verdicts) if verdicts else None

    def as_json(self) -> dict[str, object]:
        """All of it, with the derived figures."""
        derived = ("to_peer", "best_to_peer", "to_limit", "reached")
        return asdict(self) | {name: getattr(self, name) for name in derived}


@dataclass
class Report:
    """What a benchmark found out, and what it had to leave out."""

    name: str
    figures: list[Figure] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        """For machines to read."""
        figures = [figure.as_json() for figure in self.figures]
        return {"benchmark": self.name, "figures": figures, "remarks": self.remarks}


def size_text(size_bytes: int) -> str:
    """``65536`` as ``64 KiB``."""
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:g} {unit}"
    return f"{size_bytes} B"


def duration_text(seconds: float) -> str:
    """Seconds in the unit that suits them."""
    unit, factor = unit_of(seconds)
    return f"{seconds / factor:.3g} {unit}"


def unit_of(seconds: float) -> tuple[str, float]:
    """The unit that suits a duration, and its seconds."""
    units = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
    return next(((unit, factor) for unit, factor in units if seconds >= factor), ("ns", 1e-9))


def core_count() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    models = re.findall(r"^model name\s*:\s*(.+)$", _text("/proc/cpuinfo"), re.MULTILINE)
    return {
        "processor": models[0] if models else platform.processor() or platform.machine(),
        "cores": core_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "load": round(os.getloadavg()[0], 1),
    }


def run(command: Sequence[str | Path], *, env: dict[str, str] | None = None) -> str:
    """Run a program to its end; its output, or an error with what it complained about."""
    done = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{Path(command[0]).name} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def run_ranks(commands: Sequence[Sequence[str | Path]], *, address: str = "127.0.0.1", port: int | None = None) -> str:
    """Run one program per rank, told of each other by the environment; what rank 0 printed."""
    shared = {
        "WORLD_SIZE": str(len(commands)),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port or _free_port()),
        "RIPIENO_TOKEN": secrets.token_hex(32),
    }
    ranks: list[subprocess.Popen[str]] = []
    try:
        for rank, command in enumerate(commands):
            env = {**os.environ, **shared, "RANK": str(rank)}
            stdout = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
            words = [str(word) for word in command]
            ranks.append(subprocess.Popen(words, env=env, stdout=stdout, stderr=subprocess.PIPE, text=True))
        output = [rank.communicate(timeout=TIMEOUT_S) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    for number, rank in enumerate(ranks):
        if rank.returncode != 0:
            raise RuntimeError(f"rank {number} ended with {rank.returncode}: {output[number][1].strip()[-2000:]}")
    return output[0][0]


def example(name: str, *, quick: bool) -> Path:
    """Build an example of the crate `ripieno`, optimized unless `quick`; where it lies."""
    if shutil.which("cargo") is None:
        raise Skipped("no Rust toolchain: install one, cargo must be on the path")
    profile = [] if quick else ["--release"]
    # The whole workspace, as the tests build it: what they have built is not built again with other features.
    run(["cargo", "build", "--quiet", "--locked", "--workspace", "--example", name, *profile,
         "--manifest-path", REPOSITORY / "Cargo.toml"])  # fmt: skip
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    return target / ("debug" if quick else "release") / "examples" / name


def open_mpi(source: str) -> Path:
    """Compile one of our MPI programs; where it lies."""
    if shutil.which("mpicc") is None or shutil.which("mpirun") is None:
        raise Skipped("Open MPI is not installed: apt-get install openmpi-bin libopenmpi-dev")
    if "Open MPI" not in run(["mpirun", "--version"]):
        raise Skipped("mpirun is another MPI's: the settings here are Open MPI's")
    return _compiled("mpicc", source, ["-O3", "-march=native"])


def shared_object(source: str) -> Path:
    """Compile one of our C files for LD_PRELOAD."""
    return _compiled("cc", source, ["-O2", "-shared", "-fPIC"])


def free_blas() -> None:
    """Let OpenBLAS, and with it sgemm and peers, use all that the processor has; it is told before NumPy is imported.

    OpenBLAS knows processors by number and takes one that is newer than itself for a much older one, and some images
    hold it down so that results are the same everywhere: at half the speed or less.
    """
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.pop(name, None)
    if re.search(r"\bavx512vl\b", _text("/proc/cpuinfo")):
        os.environ["OPENBLAS_CORETYPE"] = "SkylakeX"


def samples_by_size(output: str) -> dict[int, list[float]]:
    """Read lines of "BYTES SECONDS"."""
    found: dict[int, list[float]] = {}
    for line in output.splitlines():
        size, seconds = line.split()[:2]
        found.setdefault(int(size), []).append(float(seconds))
    return found


def _compiled(compiler: str, source: str, options: list[str]) -> Path:
    BUILD.mkdir(parents=True, exist_ok=True)
    program = BUILD / Path(source).stem
    run([compiler, *options, "-o", program, BENCHES / source])
    return program


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
