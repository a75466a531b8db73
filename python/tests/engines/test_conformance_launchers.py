"""Guarantees of all launchers: their ranks compute the same results as local workers, bitwise."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import conformance_programs as programs
import injected_faults
import launched
import numpy as np
import pytest
import ripieno as rp

RANKS = 4
CLUSTERS = 7
# The command of each launcher, and the package to install if it is missing.
LAUNCHERS = {
    "ripieno": (f"ripieno run --no-prefix -n {RANKS} --threads 1", "ripieno"),
    "openmpi": (f"mpirun.openmpi -n {RANKS} ripieno run --threads 1", "openmpi-bin"),
    "hydra": (f"mpiexec.hydra -n {RANKS} ripieno run --threads 1", "mpich"),
    "slurm": (f"srun -N 2 -n {RANKS} -K ripieno run --threads 1", "slurm-client"),
}

SCRIPT = f"""
import sys
sys.path[:0] = {[str(Path(module.__file__).parent) for module in (programs, injected_faults)]!r}
import conformance_programs as programs
import numpy as np
import ripieno as rp

comm = rp.init()
assert programs.summed(comm, 1_250_000) == (comm.rank, {RANKS}, True)
assert [programs.counted(comm) for _ in range(3)] == [1, 2, 3]
assert programs.many_sums(comm, 2, 10) == [{RANKS} * (1000.0**2 + round) for round in range(10)]
assert programs.print_much(comm, 500) == {RANKS}
digest, _ = programs.told_and_returned(comm, comm.broadcast(np.arange(6_250_000.0)))
assert len(set(comm.allgather(digest))) == 1
centroids, labels, inertia = programs.clustered(comm, np.load("rows.npy"), {CLUSTERS})
where_rows_lie = programs.fit_where_rows_lie(comm, np.load("all.npy"), "parts/partitions.json")
if comm.rank == 0:
    np.savez("found.npz", centroids=centroids, labels=np.concatenate(labels), inertia=inertia)
    np.savez("own.npz", *where_rows_lie)
"""

PRINTED = "".join(f"line {line} of rank {rank}" for rank in range(RANKS) for line in range(500))


@pytest.fixture(params=LAUNCHERS)
def start(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the command prefix of each launcher for starting ranks."""
    words, package = LAUNCHERS[request.param][0].split(), LAUNCHERS[request.param][1]
    variables = {**launched.VARIABLES, **launched.OPEN_MPI, "HOME": str(tmp_path)}
    if request.param == "slurm":
        variables |= request.getfixturevalue("slurm").variables
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} not installed: apt-get install {package}")
    return words


def test_ranks_that_encrypt_all_their_connections_connect_and_compute(start: list[str], tmp_path: Path, monkeypatch):
    monkeypatch.setenv("RIPIENO_TLS", "1")
    (tmp_path / "script.py").write_text("import ripieno as rp\n\nassert rp.init(links='tcp').allreduce(1) == 4\n")

    done = subprocess.run([*start, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr[-4000:]


def test_ranks_compute_the_results_of_local_workers(start: list[str], tmp_path: Path):
    rows = np.random.default_rng(1).normal(size=(3000, 6)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    (tmp_path / "script.py").write_text(SCRIPT)
    all_rows, _ = programs.rows_and_partitions(tmp_path)
    of_all = rp.KMeans(4, random_state=0).fit(all_rows)
    expected = rp.KMeans(CLUSTERS, init=rows[:CLUSTERS], max_iter=5, tol=0, workers=RANKS, threads=1).fit(rows)

    done = subprocess.run([*start, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr[-4000:]
    # Launchers may interleave lines of several ranks, but lose nothing.
    assert [done.stdout.count(str(digit)) for digit in range(10)] == [PRINTED.count(str(digit)) for digit in range(10)]
    with np.load(tmp_path / "found.npz") as found:
        assert found["centroids"].tobytes() == expected.cluster_centers_.tobytes()
        assert found["labels"].tobytes() == expected.labels_.tobytes()
        assert found["inertia"] == expected.inertia_
    with np.load(tmp_path / "own.npz") as found:
        inertia, labels, inertia_of_parts = found.values()
        assert (inertia, inertia_of_parts) == pytest.approx((of_all.inertia_, of_all.inertia_), rel=1e-12)
        np.testing.assert_array_equal(labels, of_all.labels_)
