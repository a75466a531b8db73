"""Tests that repeated launches in one process, with jobs that succeed or fail in any way, leak no resources.

Every test run includes a few. ``RIPIENO_LAUNCHES=300`` and ``RIPIENO_SOAK_S=3600`` set the number of launches, and the
duration of mixed jobs. ``make soak`` and ``make soak-hour`` run many, and print the counts.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import ripieno as rp
from engines.launched import OPEN_MPI
from page_viewers import watching_page
from ripieno.launch.process import forked
from stand_in_engine import StandIn
from watching import comes_true, open_descriptors, shared_files

LAUNCHES = int(os.environ.get("RIPIENO_LAUNCHES", "6"))
SOAK_S = float(os.environ.get("RIPIENO_SOAK_S", "0"))
#: Warm-up launches, during which pools of libraries fill up.
WARM_UP_LAUNCHES = 3
#: Maximum growth of the caller's maps and resident memory per launch: allocator fragmentation, which decreases. A leak
#: per launch would be at least a page and a map.
EXTRA_MAPS_PER_LAUNCH, EXTRA_BYTES_PER_LAUNCH = 0.1, 2048
#: Allowance for maps and memory of a few launches.
EXTRA_MAPS, EXTRA_BYTES = 16, 8 << 20
#: Maximum memory of a process that starts workers. Jobs with other imports replace such processes.
MAX_CHILD_BYTES = 256 << 20
#: Joined threads leave the system's list a moment later.
SETTLE_TIMEOUT_S = max(20.0, SOAK_S / 6)
#: Number of sections of the mixed jobs. The resources are printed after each.
SECTIONS = 4
#: No job may fail because other programs keep the processors busy.
PATIENT = {"rendezvous_timeout_s": 1800, "heartbeat_timeout_s": 300.0}
PATIENT_DASK = {
    f"DASK_DISTRIBUTED__COMM__TIMEOUTS__{name}": f"{PATIENT['rendezvous_timeout_s']} s" for name in ("CONNECT", "TCP")
}
#: Size of the disk that a job fills.
DISK_BYTES = 2 << 20


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path, monkeypatch):
    """Give the tested processes a temporary folder of their own, whose files are counted."""
    (folder := tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("RIPIENO_RENDEZVOUS_TIMEOUT_S", str(PATIENT["rendezvous_timeout_s"]))
    monkeypatch.setattr(forked, "RENDEZVOUS_TIMEOUT_S", PATIENT["rendezvous_timeout_s"])


@dataclass(frozen=True)
class ResourceCounts:
    """The resources of this process."""

    descriptors: tuple[str, ...]
    threads: int
    children: int
    shared_files: tuple[str, ...]
    temporary_files: tuple[str, ...]
    maps: int
    resident_bytes: int
    #: Memory of the processes that start workers, which outlast jobs.
    children_bytes: int

    @classmethod
    def now(cls) -> ResourceCounts:
        """Count after collecting unreferenced objects."""
        gc.collect()
        tasks = list(Path("/proc/self/task").iterdir())
        children = [child for task in tasks for child in descendants(task)]
        return cls(
            descriptors=tuple(open_descriptors()),
            threads=len(tasks),
            children=len(children),
            shared_files=tuple(shared_files()),
            temporary_files=tuple(sorted(map(str, Path(tempfile.gettempdir()).rglob("*")))),
            maps=len(Path("/proc/self/maps").read_text().splitlines()),
            resident_bytes=resident_bytes("self"),
            children_bytes=sum(map(resident_bytes, children)),
        )

    @property
    def fixed(self) -> tuple[object, ...]:
        """Return the counts that must be equal after each job."""
        return self.descriptors, self.threads, self.children, self.shared_files, self.temporary_files

    def differences(self, now: ResourceCounts) -> list[tuple[object, object]]:
        """Return the counts that have changed, as pairs of removed and added entries."""
        pairs = zip(self.fixed, now.fixed, strict=True)
        as_sets = [(set(old), set(new)) if isinstance(old, tuple) else (old, new) for old, new in pairs]
        return [(old - new, new - old) if isinstance(old, set) else (old, new) for old, new in as_sets if old != new]

    def rows(self) -> dict[str, str]:
        """Return the counts as texts."""
        return {
            "descriptors": str(len(self.descriptors)),
            "threads": str(self.threads),
            "child processes": str(self.children),
            "files in `/dev/shm`": str(len(self.shared_files)),
            "files in the temporary folder": str(len(self.temporary_files)),
            "memory maps": str(self.maps),
            "resident memory": f"{self.resident_bytes / 2**20:.1f} MiB",
            "resident memory of child processes": f"{self.children_bytes / 2**20:.1f} MiB",
        }


def descendants(task: Path) -> list[str]:
    """Return the processes that a thread and its child processes have started; none if it ends meanwhile."""
    try:
        children = (task / "children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return children + [found for child in children for found in descendants(Path("/proc", child, "task", child))]


def resident_bytes(process: str) -> int:
    """Return the resident memory of a process, 0 if it has ended."""
    try:
        return int(Path("/proc", process, "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (FileNotFoundError, ProcessLookupError):
        return 0


def assert_bounded_growth(before: ResourceCounts, now: ResourceCounts, job_count: int) -> None:
    """Compare resources after `job_count` jobs with those before."""
    assert now.fixed == before.fixed
    assert now.maps - before.maps <= EXTRA_MAPS + EXTRA_MAPS_PER_LAUNCH * job_count
    assert now.resident_bytes - before.resident_bytes <= EXTRA_BYTES + EXTRA_BYTES_PER_LAUNCH * job_count
    assert now.children_bytes <= now.children * MAX_CHILD_BYTES


def markdown(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a Markdown table."""
    columns = list(header)
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def resource_table(counts: dict[str, ResourceCounts]) -> str:
    """Return resources at different times as a Markdown table."""
    columns = [found.rows() for found in counts.values()]
    return markdown(["", *counts], [[name, *(column[name] for column in columns)] for name in columns[0]])


def sum_values(comm: rp.Communicator, values: np.ndarray) -> float:
    """Add up values of all ranks."""
    return float(comm.allreduce(values)[-1])


def kill_one_rank(comm: rp.Communicator, mark: Path, victim: int) -> int:
    """Run a program with one death of a rank."""
    comm.barrier()
    if comm.rank == victim and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return comm.allreduce(1)


def continue_on_survivors(comm: rp.Communicator, victim: int) -> int:
    """Run a program that continues without a rank."""
    if comm.rank == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        try:
            return comm.allreduce(1)
        except rp.RankFailed:
            comm = comm.shrink()


def test_launches_leak_no_resources(capsys):
    def launch_once(number: int) -> None:
        links = "tcp" if number % 2 else "shared-memory"
        with rp.launch(workers=2, threads=1, links=links) as job:
            assert job.run(sum_values, np.full(20_000, 1.0)) == [2.0, 2.0]

    for number in range(WARM_UP_LAUNCHES):
        launch_once(number)
    before = ResourceCounts.now()
    for number in range(LAUNCHES):
        launch_once(number)
        is_equal = comes_true(lambda: ResourceCounts.now().fixed == before.fixed, SETTLE_TIMEOUT_S)
        assert is_equal, before.differences(ResourceCounts.now())
    now = ResourceCounts.now()
    if "RIPIENO_LAUNCHES" in os.environ:
        with capsys.disabled():
            print(f"\n{LAUNCHES} launches:\n{resource_table({'before': before, 'after': now})}")
    assert_bounded_growth(before, now, LAUNCHES)


def launch(**options) -> rp.Job:
    """Launch a job that waits for a busy machine."""
    return rp.launch(threads=1, **PATIENT, **options)


def plain(draw: random.Random, folder: Path) -> None:
    """Run programs on one job, a broadcast value, and another number of ranks."""
    with launch(workers=draw.choice((2, 3)), links=draw.choice(("shared-memory", "tcp"))) as job:
        table = job.broadcast(np.arange(50_000))
        assert job.run(lambda comm: int(table.value[-1])) == [49_999] * job.workers
        job.resize(2)
        assert job.run(sum_values, np.ones(100_000)) == [2.0, 2.0]


def raising(draw: random.Random, folder: Path) -> None:
    """Run a program that raises on one rank."""

    def program(comm: rp.Communicator) -> None:
        comm.barrier()
        if comm.rank == 1:
            raise ValueError("on purpose")
        comm.barrier()

    with launch(workers=2) as job, pytest.raises(ValueError, match="on purpose"):
        job.run(program)


def failing(draw: random.Random, folder: Path) -> None:
    """Run a job with a dying rank."""
    with launch(workers=3) as job, pytest.raises(rp.RankFailed):
        job.run(kill_one_rank, folder / "mark", draw.randrange(3))


def surviving(draw: random.Random, folder: Path) -> None:
    """Run a program that restarts, without the dead ranks or with a spare."""
    policy = draw.choice(("shrink", "respawn"))
    spares = draw.randrange(2) if policy == "respawn" else 0
    with launch(workers=3, on_failure=policy, spares=spares) as job:
        left = 2 if policy == "shrink" else 3
        assert job.run(kill_one_rank, folder / "mark", draw.randrange(3)) == [left] * left


def shrinking(draw: random.Random, folder: Path) -> None:
    """Run a job that shrinks."""
    with launch(workers=3, on_failure="shrink") as job:
        assert job.run(continue_on_survivors, draw.randrange(3)) == [2, 2]


def replicated(draw: random.Random, folder: Path) -> None:
    """Run a job with replicated ranks and one death."""
    victim = draw.randrange(4)

    def program(comm: rp.Communicator) -> int:
        if comm.rank == victim:
            os.kill(os.getpid(), signal.SIGKILL)
        logical = comm.replicate(2)
        return logical.allreduce(1) + logical.allreduce(1)

    with launch(workers=4, replicas=2) as job:
        assert job.run(program) == [4, 4]


def fitting(draw: random.Random, folder: Path) -> None:
    """Run a fit with a checkpoint."""
    rows = np.random.default_rng(draw.randrange(100)).normal(size=(500, 4))
    rp.KMeans(5, workers=2, threads=1, checkpoint=folder / "kept").fit(rows)


def scripted(draw: random.Random, folder: Path) -> None:
    """Run a script with `ripieno run`."""
    script = folder / "script.py"
    script.write_text("import ripieno as rp\nassert rp.init().allreduce(1) == 2\n")
    command = [sys.executable, "-c", "from ripieno.cli.run import run_command; run_command(prog_name='ripieno run')"]
    subprocess.run([*command, "-n", "2", str(script)], check=True, capture_output=True)


def watched(draw: random.Random, folder: Path) -> None:
    """Run a job whose dashboard has 50 viewers, and a peer without its token."""
    with ExitStack() as stack:
        with launch(workers=2, dashboard=True) as job:
            viewers = stack.enter_context(watching_page(job.dashboard.link, viewer_count=50, flood_count=1))
            for _ in range(draw.randrange(1, 20)):
                assert job.run(sum_values, np.ones(50_000)) == [2.0, 2.0]
        assert min(updates for updates, _ in viewers.counts()) > 0
        job.dashboard.close()


def restarted(draw: random.Random, folder: Path) -> None:
    """Run jobs in an engine whose processes are killed, and which starts again."""
    engine = StandIn()
    with engine.launch(2, **PATIENT) as job:
        assert job.run(sum_values, np.ones(1000)) == [2.0, 2.0]
        for process in engine.run.processes:
            process.kill()
        with pytest.raises(rp.RankFailed):
            job.run(sum_values, np.ones(1000))
    with engine.launch(2, **PATIENT) as job:
        assert job.run(sum_values, np.ones(1000)) == [2.0, 2.0]


def mpi_restarted(draw: random.Random, folder: Path) -> None:
    """Run jobs in Open MPI, whose launcher ends with a rank and starts again."""

    def launched() -> rp.Job:
        return launch(engine="mpirun", command="mpirun.openmpi", workers=2, slots=2)

    with launched() as job, pytest.raises(rp.RankFailed):
        job.run(kill_one_rank, folder / "mark", draw.randrange(2))
    with launched() as job:
        assert job.run(sum_values, np.ones(1000)) == [2.0, 2.0]


DASK_SCRIPT = """
import json, numpy as np, ripieno as rp, sys
from distributed import Client, LocalCluster

def program(comm, values):
    return float(comm.allreduce(values)[-1])

if __name__ == "__main__":
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "host": "127.0.0.1"}
    for _ in range(2):
        with LocalCluster(**options, local_directory=sys.argv[1]) as cluster, Client(cluster) as client:
            for _ in range(2):
                with rp.launch(2, engine="dask", client=client, threads=1, **json.loads(sys.argv[2])) as job:
                    assert job.run(program, np.ones(1000)) == [2.0, 2.0]
"""


def dask_restarted(draw: random.Random, folder: Path) -> None:
    """Run jobs in a Dask cluster that starts again."""
    script = folder / "script.py"
    script.write_text(DASK_SCRIPT)
    command = [sys.executable, script, folder, json.dumps(PATIENT)]
    done = subprocess.run(command, env=os.environ | PATIENT_DASK, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@contextmanager
def small_disk(place: Path) -> Iterator[None]:
    """Mount a file system of `DISK_BYTES`."""
    place.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", place], check=True, capture_output=True
    )
    try:
        yield
    finally:
        subprocess.run(["umount", place], check=True)


def can_mount(folder: Path) -> bool:
    """Return whether this process may mount file systems."""
    try:
        with small_disk(folder / "tried"):
            return True
    except subprocess.CalledProcessError:
        return False


def spill(comm: rp.Communicator, folder: Path) -> int:
    """Combine keyed data that exceed the memory limit."""
    rows = rp.KeyValues(np.arange(20_000), np.ones(20_000))
    return len(comm.regroup(rows, combine="sum", memory_limit=1 << 16, spill_directory=folder).keys)


def nearly_full(draw: random.Random, folder: Path) -> None:
    """Write checkpoints, spilled data and a model to a disk that is nearly full, and then to the emptied disk."""
    disk = folder / "disk"
    rows = np.random.default_rng(draw.randrange(100)).normal(size=(500, 40))
    model = rp.PCA(20).fit(rows)

    def regroup() -> None:
        with launch(workers=2) as job:
            assert sum(job.run(spill, disk)) == 20_000

    steps: list[Callable[[], object]] = [
        lambda: rp.KMeans(200, workers=2, threads=1, max_iter=3, checkpoint=disk / "checkpoints").fit(rows),
        regroup,
        lambda: model.save(disk / "model", overwrite=True),
    ]
    with small_disk(disk):
        filler = disk / "filler"
        filler.write_bytes(bytes(DISK_BYTES - draw.randrange(1, 50) * 4096))
        failed = 0
        for step in draw.sample(steps, len(steps)):
            try:
                step()
            except (OSError, rp.RipienoError) as error:
                assert "No space left" in str(error) or "the disk is full" in str(error)
                failed += 1
        filler.unlink()
        for step in steps:
            step()
        assert not list(disk.rglob("*.part"))
    FULL_DISKS["writers that failed"] += failed
    FULL_DISKS["writers"] += len(steps)


#: Counts of the writers on disks that are nearly full.
FULL_DISKS: Counter[str] = Counter()
Kind = Callable[[random.Random, Path], None]
KINDS: tuple[Kind, ...] = (
    plain,
    raising,
    failing,
    surviving,
    shrinking,
    replicated,
    fitting,
    scripted,
    watched,
    restarted,
)


def possible_kinds(folder: Path) -> tuple[Kind, ...]:
    """Return the kinds of jobs that are possible on this machine."""
    others = {
        mpi_restarted: shutil.which("mpirun.openmpi") is not None,
        dask_restarted: importlib.util.find_spec("distributed") is not None,
        nearly_full: can_mount(folder),
    }
    return (*KINDS, *(kind for kind, is_possible in others.items() if is_possible))


def shuffled(draw: random.Random, kinds: Sequence[Kind]) -> Iterator[Kind]:
    """Yield all kinds in random order, again and again."""
    while True:
        yield from draw.sample(kinds, len(kinds))


@pytest.mark.exhaustive
def test_jobs_of_all_kinds_leak_no_resources(tmp_path, capsys, monkeypatch):
    draw, counts = random.Random(0), Counter()
    for name, value in OPEN_MPI.items():
        monkeypatch.setenv(name, value)
    kinds = possible_kinds(tmp_path)

    def run_job(kind: Kind) -> None:
        counts[kind.__name__] += 1
        (folder := tmp_path / f"{kind.__name__}-{counts[kind.__name__]}").mkdir()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            kind(draw, folder)
        shutil.rmtree(folder)

    # Each kind has modules to import, and pools to fill.
    for kind in kinds:
        run_job(kind)
    before = ResourceCounts.now()
    times = {"before": before}
    counts.clear()
    FULL_DISKS.clear()
    begin, order = time.monotonic(), shuffled(draw, kinds)
    for section in range(1, SECTIONS + 1):
        while (elapsed_s := time.monotonic() - begin) < SOAK_S * section / SECTIONS or not counts:
            kind = next(order)
            run_job(kind)
            is_equal = comes_true(lambda: ResourceCounts.now().fixed == before.fixed, SETTLE_TIMEOUT_S)
            assert is_equal, (kind.__name__, before.differences(ResourceCounts.now()))
        times[f"{elapsed_s:.0f} s"] = ResourceCounts.now()
        if SOAK_S:
            with capsys.disabled():
                print(f"\n{counts.total()} jobs, load {os.getloadavg()[0]:.1f}\n")
                print(markdown(["jobs", "number"], sorted(counts.items())))
                print(f"\nDisks that are nearly full: {dict(FULL_DISKS)}\n\n{resource_table(times)}", flush=True)
        assert_bounded_growth(before, ResourceCounts.now(), counts.total())
