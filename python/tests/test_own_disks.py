"""A fit on emulated hosts that each see only their own disk: no row crosses a network link."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import ripieno as rp
from ripieno.lab import Lab, missing_requirement

cannot_emulate = missing_requirement()
pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(cannot_emulate is not None, reason=cannot_emulate or ""),
]

ROW_COUNT, COLUMN_COUNT, CLUSTER_COUNT = 24_000, 64, 5
# Each host mounts an empty folder over the disks of the other hosts.
PROGRAM = """
import ctypes, json, socket, subprocess, sys
import numpy as np
folder = sys.argv[1]
assert ctypes.CDLL(None).unshare(0x20000) == 0
subprocess.run(["mount", "--make-rprivate", "/"], check=True)
own_host = socket.gethostname()
for host in sys.argv[2:]:
    if host != own_host:
        subprocess.run(["mount", "-t", "tmpfs", "none", f"{folder}/parts/{host}"], check=True)
import ripieno as rp
comm = rp.init()
start, path = np.load(f"{folder}/start.npy"), f"{folder}/parts/partitions.json"
for rows, X in (("shared", path), ("own", rp.input.share(rp.input.open_partitions(path), comm))):
    model = rp.KMeans(len(start), init=start, max_iter=4, tol=0).fit(X, comm=comm, rows=rows)
    parts = comm.gather((rp.input.assign(rp.input.open_partitions(path), comm.hosts)[comm.rank], model.labels_))
    if comm.rank == 0:
        found = {"inertia": model.inertia_, "parts": [(numbers, labels.tolist()) for numbers, labels in parts]}
        with open(f"{folder}/{rows}.json", "w") as file:
            json.dump(found, file)
"""


@pytest.mark.timeout(240)
def test_rows_on_disks_of_hosts_are_clustered_without_crossing_a_link(tmp_path):
    random = np.random.default_rng(0)
    centers = 9 * random.normal(size=(CLUSTER_COUNT, COLUMN_COUNT))
    rows = centers[random.integers(0, CLUSTER_COUNT, ROW_COUNT)] + random.normal(size=(ROW_COUNT, COLUMN_COUNT))
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "start.npy", rows[:CLUSTER_COUNT])
    expected = rp.KMeans(CLUSTER_COUNT, init=rows[:CLUSTER_COUNT], max_iter=4, tol=0).fit(rows)

    with Lab(racks=1, hosts=3, rate="100mbit") as lab:
        names = [host.name for host in lab.hosts]
        path = rp.input.divide(tmp_path / "rows.npy", tmp_path / "parts", partitions=12, replicas=2, nodes=names)
        lab.run([sys.executable, "-c", PROGRAM, str(tmp_path), *names], timeout_s=200, prefix=False)
        links = [each for name, each in lab.counters().items() if name in names]

    counts = [len(part.read()) for part in rp.input.open_partitions(path)]
    numbers = np.split(np.arange(ROW_COUNT), np.cumsum(counts)[:-1])
    for rows_of in ("shared", "own"):
        found = json.loads((tmp_path / f"{rows_of}.json").read_text())
        assert found["inertia"] == pytest.approx(expected.inertia_, rel=1e-12)
        assert sorted(number for own, _ in found["parts"] for number in own) == list(range(12))
        for own, labels in found["parts"]:
            np.testing.assert_array_equal(labels, expected.labels_[np.concatenate([numbers[at] for at in own])])
    # The messages of both fits together take less than a single partition would.
    assert 0 < sum(each.sent_bytes for each in links) < rows.nbytes / 12
