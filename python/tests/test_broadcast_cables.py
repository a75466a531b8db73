"""Broadcast variables over emulated cables, with a cable pulled during the broadcast."""

from __future__ import annotations

import sys
import threading
import time

import pytest
from ripieno.lab import Lab, why_not

cannot_emulate = why_not()
pytestmark = pytest.mark.skipif(cannot_emulate is not None, reason=cannot_emulate or "")

PATIENCE_S = 60.0
PULLED = 2
#: Takes two seconds on a cable.
VALUE_BYTES = 2_500_000
PROGRAM = """
import sys, time
from pathlib import Path
import numpy as np
import ripieno as rp
strategy, size, pulled, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
comm = rp.init()
right = np.random.default_rng(0).integers(0, 256, size, np.uint8)
variable = comm.broadcast_variable(right if comm.rank == 0 else None, strategy=strategy)
if comm.rank == pulled:
    native = variable._native
    native.start_fetch()
    while not native.progress()[0]:
        time.sleep(0.001)
    (folder / "begun").touch()
try:
    outcome = "right" if (variable.value == right).all() else "wrong"
except rp.BroadcastError as error:
    outcome = f"failed: {error}"
while comm.rank == 0 and (variable.delivery() is None or sum(map(len, variable.delivery())) < comm.world_size - 1):
    time.sleep(0.01)
if comm.rank == 0:
    outcome += f", lost {variable.delivery().lost}"
(folder / f"{comm.rank}.part").write_text(outcome)
(folder / f"{comm.rank}.part").rename(folder / str(comm.rank))
# Until it is ended: others fetch from here.
while True:
    time.sleep(1)
"""


@pytest.mark.parametrize("strategy", ["chain", "splitstream", "csb", "bittorrent"])
def test_the_rest_get_the_value_when_a_cable_is_pulled_on_the_way(strategy, tmp_path):
    words = [sys.executable, "-c", PROGRAM, strategy, str(VALUE_BYTES), str(PULLED), str(tmp_path)]
    with Lab(hosts=4, rate="10mbit") as lab:
        ranks = threading.Thread(
            target=lab.run, args=(words,), kwargs={"timeout_s": PATIENCE_S, "prefix": False, "keep_going": True}
        )
        ranks.start()
        deadline = time.monotonic() + PATIENCE_S
        while not (tmp_path / "begun").exists():
            assert ranks.is_alive() and time.monotonic() < deadline
            time.sleep(0.001)
        lab.fail(lab.hosts[PULLED].name)
        files = [tmp_path / str(rank) for rank in range(4)]
        while not all(file.exists() for file in files):
            assert ranks.is_alive(), [file.name for file in files if not file.exists()]
            time.sleep(0.01)
        lab.down()
        ranks.join()

    output = [file.read_text() for file in files]
    assert output[0] == f"right, lost [{PULLED}]"
    assert [output[1], output[3]] == ["right", "right"]
    assert output[PULLED].startswith("failed: ") and "rank 0" in output[PULLED]
