"""Broadcast variables over emulated network links, one of which fails during the broadcast."""

from __future__ import annotations

import sys
import threading
import time

import pytest
from ripieno.lab import Lab, missing_requirement
from varied import exhaustively

cannot_emulate = missing_requirement()
pytestmark = pytest.mark.skipif(cannot_emulate is not None, reason=cannot_emulate or "")

TIMEOUT_S = 60.0
DISCONNECTED = 2
#: Takes two seconds on a network link.
VALUE_BYTES = 2_500_000
PROGRAM = """
import sys, time
from pathlib import Path
import numpy as np
import ripieno as rp
strategy, size, disconnected, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
comm = rp.init(heartbeat_timeout_s=5.0)
expected = np.random.default_rng(0).integers(0, 256, size, np.uint8)
variable = comm.broadcast_variable(expected if comm.rank == 0 else None, strategy=strategy)
if comm.rank == disconnected:
    native = variable._native
    native.start_fetch()
    while not native.progress()[0]:
        time.sleep(0.001)
    (folder / "begun").touch()
try:
    outcome = "right" if (variable.value == expected).all() else "wrong"
except rp.BroadcastError as error:
    outcome = f"failed: {error}"
while comm.rank == 0 and (variable.delivery() is None or sum(map(len, variable.delivery())) < comm.world_size - 1):
    time.sleep(0.01)
if comm.rank == 0:
    outcome += f", lost {variable.delivery().lost}"
(folder / f"{comm.rank}.part").write_text(outcome)
(folder / f"{comm.rank}.part").rename(folder / str(comm.rank))
# Other ranks fetch from this one until the test ends it.
while True:
    time.sleep(1)
"""


@pytest.mark.parametrize("strategy", ["csb", *exhaustively("chain", "splitstream", "bittorrent")])
def test_all_other_ranks_get_the_value_when_a_link_fails_meanwhile(strategy, tmp_path):
    words = [sys.executable, "-c", PROGRAM, strategy, str(VALUE_BYTES), str(DISCONNECTED), str(tmp_path)]
    with Lab(hosts=4, rate="10mbit") as lab:
        ranks = threading.Thread(
            target=lab.run, args=(words,), kwargs={"timeout_s": TIMEOUT_S, "prefix": False, "keep_going": True}
        )
        ranks.start()
        deadline = time.monotonic() + TIMEOUT_S
        while not (tmp_path / "begun").exists():
            assert ranks.is_alive() and time.monotonic() < deadline
            time.sleep(0.001)
        lab.fail(lab.hosts[DISCONNECTED].name)
        files = [tmp_path / str(rank) for rank in range(4)]
        while not all(file.exists() for file in files):
            assert ranks.is_alive(), [file.name for file in files if not file.exists()]
            time.sleep(0.01)
        lab.down()
        ranks.join()

    output = [file.read_text() for file in files]
    assert output[0] == f"right, lost [{DISCONNECTED}]"
    assert [output[1], output[3]] == ["right", "right"]
    assert output[DISCONNECTED].startswith("failed: ") and "rank 0" in output[DISCONNECTED]
