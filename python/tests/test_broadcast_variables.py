"""Broadcast variables on real ranks: contents, memory, and deaths of ranks."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from launcher_environments import TOKEN
from ripieno.comm.broadcast_variables import LINK_STRATEGIES
from ripieno.errors import InputError
from varied import exhaustively
from watching import comes_true

BLOCK_BYTES = 1000
# Small blocks make a broadcast slow enough for events during it.
SLOW_BLOCK_BYTES = 64
SLOW_BYTES = {
    "chain": 2_000_000,
    "splitstream": 2_000_000,
    "tree": 2_000_000,
    "flat": 700_000,
    "csb": 700_000,
    "bittorrent": 400_000,
}
TIMEOUT_S = 60.0


def sample(bytes_count: int) -> np.ndarray:
    return np.random.default_rng(bytes_count).integers(0, 256, bytes_count, np.uint8)


def mapped() -> set[str]:
    """Return the inodes of values mapped here."""
    with open("/proc/self/maps") as maps:
        return set(re.findall(r" (\d+) +/memfd:ripieno-value", maps.read()))


def values_of_all_lengths(comm):
    # The pickle of an array of 0 bytes is shorter than a block. The pickle of 5000 bytes is longer than five blocks.
    for strategy in LINK_STRATEGIES:
        for root in range(comm.world_size):
            for length in (0, 1, BLOCK_BYTES, 5 * BLOCK_BYTES):
                given = sample(length) if comm.rank == root else None
                made = comm.broadcast_variable(
                    given, root, strategy=strategy, block_bytes=BLOCK_BYTES, verify=length != 1, per_host=False
                )
                with made as variable:
                    np.testing.assert_array_equal(variable.value, sample(length), strict=True)


def test_every_rank_gets_the_value_of_every_root(everywhere):
    everywhere(values_of_all_lengths)


def shared_memory(comm):
    before = mapped()
    nested = {"table": np.arange(300_000.0).reshape(-1, 3), "list": [np.ones(5, np.float32), "text"], "none": None}
    with comm.broadcast_variable(nested if comm.rank == 1 else None, root=1) as variable:
        value = variable.value
        assert variable.value is value
        assert value["list"][1] == "text" and value["none"] is None
        np.testing.assert_array_equal(value["table"], nested["table"], strict=True)
        for array in (value["table"], value["list"][0]):
            assert not array.flags.writeable and not array.flags.owndata
        comm.barrier()
        return mapped() - before


def test_the_ranks_of_a_host_share_the_memory_of_read_only_arrays(world):
    inodes = world(3).run(shared_memory)
    assert len(inodes[0]) == 1 and inodes == [inodes[0]] * 3


def released(comm):
    before = mapped()
    variable = comm.broadcast_variable(
        sample(5000) if comm.rank == 0 else None, block_bytes=BLOCK_BYTES, per_host=False
    )
    if comm.rank == 0:
        variable.release()
    comm.barrier()
    if comm.rank == 1:
        first = variable.value
        variable.release()
        np.testing.assert_array_equal(first, sample(5000))
        with pytest.raises(InputError, match="was released"):
            _ = variable.value
        del first
    comm.barrier()
    if comm.rank == 2:
        np.testing.assert_array_equal(variable.value, sample(5000))
        variable.release()
    deadline = time.monotonic() + TIMEOUT_S
    while mapped() - before:
        assert time.monotonic() < deadline, "the memory of an unused value was not freed"
        time.sleep(0.01)


def test_a_value_exists_until_all_ranks_have_released_it(world):
    world(3).run(released)


def delivered(comm):
    with comm.broadcast_variable(sample(5000) if comm.rank == 1 else None, 1, per_host=False) as variable:
        _ = variable.value
        deadline = time.monotonic() + TIMEOUT_S
        while comm.rank == 1 and variable.delivery() != ([0, 2], [], []):
            assert time.monotonic() < deadline, variable.delivery()
            time.sleep(0.01)
        if comm.rank != 1:
            assert variable.delivery() is None


def test_the_root_lists_the_ranks_that_have_the_value(world):
    world(3).run(delivered)


def wrong_arguments(comm):
    with pytest.raises(InputError, match="strategy='fast': expected one of auto"):
        comm.broadcast_variable(1, strategy="fast")
    with pytest.raises(InputError, match="block_bytes=0"):
        comm.broadcast_variable(1, block_bytes=0)
    with pytest.raises(InputError, match="degree=0"):
        comm.broadcast_variable(1, degree=0)
    with pytest.raises(InputError, match="degree=2 with strategy='chain': only csb, csb-llcf, bittorrent use it"):
        comm.broadcast_variable(1, strategy="chain", degree=2)
    with pytest.raises(InputError, match="root=7"):
        comm.broadcast_variable(1, root=7)
    comm.barrier()


def test_wrong_arguments_are_reported_before_anything_is_sent(world):
    world(2).run(wrong_arguments)


def groups(comm):
    part = comm.split(comm.rank % 2)
    with part.broadcast_variable(comm.rank if part.rank == 0 else None, per_host=False) as variable:
        return variable.value


def test_a_group_has_variables_of_its_own(world):
    assert world(5).run(groups) == [0, 1, 0, 1, 0]


# Ranks that are not ended when one of them fails. The victim signals itself during the program.
PROGRAM = """
import os, sys, time
import numpy as np
import ripieno as rp
strategy, victim, signal_number, size, block_bytes, heartbeat_timeout_s = sys.argv[1], *map(int, sys.argv[2:7])
comm = rp.init(heartbeat_timeout_s=heartbeat_timeout_s)
right = np.random.default_rng(size).integers(0, 256, size, np.uint8)
given = right if comm.rank == 0 else None
places = sys.argv[7:]
variable = comm.broadcast_variable(
    given, strategy=strategy, block_bytes=block_bytes, per_host=False, places=places
)
comm.barrier()
if comm.rank == victim:
    native = variable._require_open()
    native.start_fetch()
    # The other ranks know this rank once it has some bytes of the value, or all of them as the root.
    while not any(native.progress()[:2]):
        time.sleep(0.001)
    os.kill(os.getpid(), signal_number)
try:
    outcome = "right" if (variable.value == right).all() else "wrong"
except rp.BroadcastError as error:
    outcome = str(error)
if comm.rank == 0 and victim != 0:
    while variable.delivery() is None or sum(map(len, variable.delivery())) < comm.world_size - 1:
        time.sleep(0.01)
    outcome += f", lost {variable.delivery().lost}"
print(outcome, flush=True)
# Until it is killed: others fetch from here.
sys.stdin.read()
"""


def outcomes(
    strategy: str,
    victim: int,
    signal_number: int,
    workers: int = 4,
    heartbeat_timeout_s: int = 10,
    continues_after_s: float | None = None,
    places: Sequence[Path] = (),
) -> list[str]:
    """Return the final output of each rank except the victim, or of all if a suspended victim continues."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    common = {**os.environ, "WORLD_SIZE": str(workers), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
              "RIPIENO_TOKEN": TOKEN}  # fmt: skip
    words = [sys.executable, "-c", PROGRAM, strategy, str(victim), str(int(signal_number)),
             str(SLOW_BYTES[strategy]), str(SLOW_BLOCK_BYTES), str(heartbeat_timeout_s), *places]  # fmt: skip
    with ExitStack() as stack:
        ranks = []
        for rank in range(workers):
            child = subprocess.Popen(words, env={**common, "RANK": str(rank)}, text=True,
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
            stack.callback(child.wait)
            stack.callback(child.kill)
            end_child = threading.Timer(TIMEOUT_S, child.kill)
            end_child.start()
            stack.callback(end_child.cancel)
            ranks.append(child)
        if continues_after_s is not None:
            stat = Path(f"/proc/{ranks[victim].pid}/stat")
            assert comes_true(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", TIMEOUT_S)
            time.sleep(continues_after_s)
            ranks[victim].send_signal(signal.SIGCONT)
            victim = -1
        return [child.stdout.readline().strip() for rank, child in enumerate(ranks) if rank != victim]


@pytest.mark.parametrize("strategy", ["csb", *exhaustively(*(name for name in SLOW_BYTES if name != "csb"))])
def test_the_other_ranks_get_the_value_when_a_rank_is_killed_during_the_broadcast(strategy):
    assert outcomes(strategy, 2, signal.SIGKILL) == ["right, lost [2]", "right", "right"]


@pytest.mark.parametrize("strategy", ["chain", *exhaustively("csb", "bittorrent", "splitstream")])
def test_a_rank_that_hangs_is_not_waited_for(strategy):
    assert outcomes(strategy, 1, signal.SIGSTOP, heartbeat_timeout_s=4) == ["right, lost [1]", "right", "right"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("strategy", list(SLOW_BYTES))
def test_a_rank_that_is_suspended_for_less_than_the_heartbeat_timeout_gets_the_value(strategy):
    found = outcomes(strategy, 1, signal.SIGSTOP, continues_after_s=7.0)
    assert found == ["right, lost []", "right", "right", "right"]


def test_the_root_that_dies_is_named():
    found = outcomes("csb", 0, signal.SIGKILL)
    assert len(found) == 3
    assert all("rank 0, the root of the broadcast, is lost" in outcome for outcome in found), found


@pytest.mark.parametrize("strategy", ["csb", *exhaustively("chain", "bittorrent")])
def test_copies_in_files_replace_a_root_that_dies_during_the_broadcast(strategy, tmp_path):
    assert outcomes(strategy, 0, signal.SIGKILL, places=[tmp_path]) == ["right"] * 3
    # One folder has all copies. A killed root leaves them.
    assert len(list(tmp_path.glob("*.value"))) == 3


def with_copies(comm, folder):
    root = 1 % comm.world_size
    given = sample(5 * BLOCK_BYTES) if comm.rank == root else None
    with comm.broadcast_variable(given, root, places=[folder / "a", folder / "b"], verify=False) as variable:
        np.testing.assert_array_equal(variable.value, sample(5 * BLOCK_BYTES), strict=True)
        comm.barrier()
        names = sorted(path.relative_to(folder).parts[0] for path in folder.glob("*/*.value"))
        comm.barrier()
    while comm.broadcast(len(list(folder.glob("*/*.value")))):
        comm.broadcast_variable(0, root).release()
    return names


def test_a_value_has_three_copies_until_all_ranks_have_released_it(world, tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
    assert world(3).run(with_copies, tmp_path) == [["a", "a", "b"]] * 3


def spoil_values() -> None:
    """Overwrite the memory of this process's values, as a faulty process would."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if "memfd:ripieno-value" in os.readlink(f"/proc/self/fd/{name}"):
                os.pwrite(int(name), bytes(os.fstat(int(name)).st_size), 0)
        except FileNotFoundError:
            pass  # The descriptor of the directory listing, which is closed.


def fetched_late_from_spoilt_memory(comm, strategy):
    right = sample(60 * BLOCK_BYTES)
    given = right if comm.rank == 0 else None
    with comm.broadcast_variable(given, strategy=strategy, block_bytes=BLOCK_BYTES, per_host=False) as variable:
        if comm.rank == 1:
            np.testing.assert_array_equal(variable.value, right)
            spoil_values()
        comm.barrier()
        if comm.rank == 2:
            np.testing.assert_array_equal(variable.value, right)
        comm.barrier()
        while comm.rank == 0 and (variable.delivery() is None or len(variable.delivery().acknowledged) < 2):
            time.sleep(0.001)
        return variable.delivery()


@pytest.mark.parametrize("strategy", ["csb", *exhaustively("csb-llcf", "bittorrent")])
def test_corrupt_blocks_are_fetched_again_and_their_source_is_reported(world, strategy):
    # A rank may fetch all blocks from the faster of two complete sources, the root.
    for _ in range(5):
        delivery = world(3).run(fetched_late_from_spoilt_memory, strategy)[0]
        if delivery.corruptions:
            break

    assert (delivery.acknowledged, delivery.lost) == ([1, 2], [])
    assert {(wrong.source, wrong.receiver) for wrong in delivery.corruptions} == {(1, 2)}
    # Two corrupt blocks, and blocks already requested.
    assert 1 <= len(delivery.corruptions) <= 6


def recorded(comm):
    value = sample(5 * BLOCK_BYTES) if comm.rank == 0 else None
    made = [
        comm.broadcast_variable(value, strategy="chain", block_bytes=BLOCK_BYTES, per_host=False, record=record)
        for record in (True, False)
    ]
    for variable in made:
        _ = variable.value
    comm.barrier()
    found, nothing = (variable.recorded() for variable in made)
    assert nothing == ([], 0) and found.left_out_bytes == 0
    return [] if comm.rank == 0 else found.fetches


def test_fetches_are_recorded_with_their_sources_if_requested(world):
    for rank, fetches in enumerate(world(3).run(recorded)[1:], start=1):
        blob_bytes = sum(fetch.size_bytes for fetch in fetches)
        assert 5 * BLOCK_BYTES < blob_bytes < 6 * BLOCK_BYTES
        # On a busy machine a rank may have got another source meanwhile, and partial blocks.
        assert {fetch.block for fetch in fetches} == set(range(6))
        assert {fetch.sender for fetch in fetches} <= set(range(3)) - {rank}
        assert all(0 <= fetch.start_s <= fetch.end_s < TIMEOUT_S for fetch in fetches)
