"""`Job.broadcast`: the caller's value on ranks, fetched on first use, once per host, also after failures."""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import ripieno as rp
from ripieno.comm.broadcast_variables import LINK_STRATEGIES, BroadcastOptions
from ripieno.wire import packing
from stand_in_engine import StandIn
from varied import exhaustively

TIMEOUT_S = 60.0
TABLE = np.arange(100_000)


def mapped() -> set[str]:
    """Return the inodes of broadcast values mapped here."""
    return set(re.findall(r" (\d+) +/memfd:ripieno-value", Path("/proc/self/maps").read_text()))


def use(comm, nested, other):
    value = nested.value
    assert nested.value is value and other.value == "other"
    assert not comm.allreduce(int(value["table"].flags.writeable or value["list"][0].flags.writeable), op="sum")
    return value["table"][comm.rank], value["list"][0].sum(), value["list"][1]


@pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
@pytest.mark.parametrize("strategy", LINK_STRATEGIES)
def test_every_rank_has_the_value_of_the_caller_read_only(world, workers, strategy):
    nested = {"table": TABLE, "list": [np.ones(5, np.float32), "text"]}
    with world(workers).broadcast(nested, strategy=strategy) as value, world(workers).broadcast("other") as other:
        assert world(workers).run(use, value, other) == [(rank, 5.0, "text") for rank in range(workers)]


def mapped_before_and_after_use(comm, value, users):
    before = mapped()
    if comm.rank in users:
        assert value.value.sum() == TABLE.sum()
    comm.barrier()
    return before, mapped()


def test_a_rank_fetches_when_it_first_uses_a_value_and_shares_it_with_its_host():
    with rp.launch(workers=3, threads=1) as job, job.broadcast(TABLE) as value:
        (root, _, _), (_, first_use, _) = zip(*job.run(mapped_before_and_after_use, value, [1]), strict=True)
        # Rank 0 holds the value as the root, and rank 2 has not used it.
        assert len(root) == 1 and first_use == root
        (_, _, before), (_, _, second_use) = zip(*job.run(mapped_before_and_after_use, value, [2]), strict=True)
        assert before == set() and second_use == root


def released_here(comm, value, rank):
    if comm.rank == rank:
        held = value.value
        value.release()
        value.release()
        with pytest.raises(rp.InputError, match="was released"):
            _ = value.value
        assert held.sum() == TABLE.sum() and repr(value) == "<Broadcast of a ndarray, released>"
        return 0
    return int(value.value[7])


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_may_release_a_value_by_itself(world, rank):
    with world(3).broadcast(TABLE) as value:
        assert world(3).run(released_here, value, rank) == [0 if each == rank else 7 for each in range(3)]


def lengths(comm, *values):
    return [len(each.value) for each in values]


def fail(comm, rank):
    if comm.rank == rank:
        raise ValueError("injected")
    comm.barrier()


def die(comm, rank):
    if comm.rank == rank:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.barrier()


@pytest.mark.parametrize("end", [fail, die])
@pytest.mark.parametrize("rank", [0, 1])
def test_an_unused_value_is_available_after_a_failure(end, rank):
    with rp.launch(workers=2, threads=1) as job, job.broadcast(TABLE) as value, job.broadcast("other") as other:
        pids = list(job.pids)
        with suppress(ValueError, rp.RankFailed):
            job.run(end, rank)
        late = job.broadcast("late")
        assert job.run(lengths, value, other, late) == [[100_000, 5, 4]] * 2
        assert (job.pids == pids) is (end is fail)


def start_on_rank_0_only(comm):
    if comm.rank == 0:
        comm._lasting_variable(packing.pack("unknown to rank 1"), BroadcastOptions("csb"), 0)


def test_ranks_with_different_numbers_of_values_reconnect_and_keep_the_values():
    with rp.launch(workers=2, threads=1) as job, job.broadcast(TABLE) as value:
        job.run(start_on_rank_0_only)
        job._broadcast_generation += 1
        with job.broadcast("after") as after:
            assert (
                job.run(lambda comm, first, second: (int(first.value[7]), second.value), value, after)
                == [(7, "after")] * 2
            )


def test_a_value_reaches_all_ranks_if_one_dies_while_it_is_stored(monkeypatch):
    with rp.launch(workers=3, threads=1, on_failure="respawn") as job:
        # The survivors have a connection for values, and their replacement has none.
        job.broadcast(TABLE).release()
        send = job._send

        def kill_and_send(request):
            monkeypatch.undo()
            os.kill(job.pids[1], signal.SIGKILL)
            send(request)

        monkeypatch.setattr(job, "_send", kill_and_send)
        with pytest.warns(RuntimeWarning, match="restarts on 3 ranks"):
            late = job.broadcast("late")
        assert job.run(lengths, late) == [[4]] * 3


def nothing_is_mapped(comm):
    deadline = time.monotonic() + TIMEOUT_S
    while mapped():
        assert time.monotonic() < deadline, "memory of a released value"
        time.sleep(0.01)


def test_memory_is_freed_when_the_caller_releases_used_and_unused_values():
    with rp.launch(workers=3, threads=1) as job:
        used, unused = job.broadcast(TABLE), job.broadcast(TABLE, strategy="chain")
        job.run(mapped_before_and_after_use, used, [0, 1, 2])
        used.release()
        del unused
        job.run(nothing_is_mapped)


def test_ranks_with_replicas_get_the_value():
    with rp.launch(workers=2, replicas=2, threads=1) as job, job.broadcast(TABLE) as value:
        assert job.run(lambda comm, value: int(value.value[comm.rank]), value) == [0]


def test_an_engine_gets_the_value_once():
    with StandIn().launch(3) as job:
        sent_bytes = [0, 0, 0]
        for member in job.members:

            def counting(kind, packed, rank=member.rank, send=member.channel.send_packed):
                sent_bytes[rank] += packing.blob_bytes(packed)
                send(kind, packed)

            member.channel.send_packed = counting
        with job.broadcast(TABLE) as value:
            assert job.run(lambda comm, value: int(value.value[7]), value) == [7, 7, 7]
        assert TABLE.nbytes <= sent_bytes[0] < TABLE.nbytes + 10_000 and max(sent_bytes[1:]) < 10_000


def test_an_invalid_strategy_is_reported_before_anything_is_sent(world):
    with pytest.raises(rp.InputError, match="strategy='fast': expected one of auto"):
        world(2).broadcast(1, strategy="fast")


def test_a_value_in_a_shared_folder_exists_until_it_is_released(tmp_path):
    with rp.launch(workers=2, threads=1) as job:
        with job.broadcast({"list": [TABLE]}, strategy="shared-file", places=[tmp_path]) as value:
            assert job.run(lambda comm, value: int(value.value["list"][0][7]), value) == [7, 7]
            assert len(list(tmp_path.glob("*.value"))) == 1
        with pytest.raises(rp.BroadcastError, match="is not a folder"):
            job.broadcast(TABLE, strategy="shared-file", places=[tmp_path / "none"])
        with job.broadcast("after", strategy="shared-file", places=[tmp_path]) as value:
            assert job.run(lambda comm, value: value.value, value) == ["after"] * 2
    assert list(tmp_path.iterdir()) == []
