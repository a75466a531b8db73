"""Checkpoints in the memory of the ranks: restored contents equal the stored ones as long as one rank holds them."""

from __future__ import annotations

import operator
import os
import signal
import time
from itertools import chain

import numpy as np
import pytest
import ripieno as rp
from injected_faults import kill_once
from varied import exhaustively

ROUNDS = 30


def add_up(comm, folder, victims, at):
    """Sum over rounds of all ranks. After a death only the current round is repeated."""
    number, total = comm.restore("sum") or (0, np.zeros(100))
    first = number
    while number < ROUNDS:
        if number == at:
            kill_once(comm, folder, victims)
        total = total + comm.allreduce(np.full(100, number + 1.0)) / comm.world_size
        number += 1
        comm.checkpoint("sum", (number, total), shared=True)
        # The checkpoint is a copy.
        total += 0.0
    return first, total[0], comm.restarts_on_failure


@pytest.mark.parametrize("at", [17, *exhaustively(0, 1)])
@pytest.mark.parametrize("victims", [[0, 1], *exhaustively([0], [2])])
@pytest.mark.parametrize("policy", ["shrink", "respawn"])
def test_shared_state_exists_while_one_rank_is_alive(tmp_path, policy, victims, at):
    with rp.launch(workers=3, threads=1, on_failure=policy) as job:
        with pytest.warns(RuntimeWarning):
            results = job.run(add_up, tmp_path, victims, at)
        assert results == [(at, ROUNDS * (ROUNDS + 1) / 2, True)] * (3 if policy == "respawn" else 3 - len(victims))
        # Another program finds no checkpoint, and starts from the beginning.
        assert job.run(add_up, tmp_path, (), 0)[0][0] == 0


def count_rounds(comm, folder, count, seen):
    """Count the rounds of all ranks. After a death of rank 1, each state continues on the rank that restores it."""
    states = comm.restore("round")
    if states is None:
        states = {comm.rank: 0}
    done = comm.allreduce(max(states.values(), default=0), op="max")
    parts = len(states)
    # These additions are replaced by the ones in the checkpoint.
    comm.checkpoint("round", done)
    for number in range(done, 6):
        count.add(1)
        seen.add([number])
        comm.checkpoint("round", number + 1)
        if number == 3:
            count.add(100)
            kill_once(comm, folder, (1,))
        comm.barrier()
    return parts


@pytest.mark.parametrize("policy", ["respawn", *exhaustively("shrink")])
def test_additions_to_accumulators_are_restored_with_the_state(tmp_path, policy):
    with rp.launch(workers=3, threads=1, on_failure=policy) as job:
        count, seen = job.accumulator(0), job.accumulator([], add=operator.add)
        with pytest.warns(RuntimeWarning):
            job.run(count_rounds, tmp_path, count, seen)
        ranks = job.workers
    # Additions after the last checkpoint are dropped with the run that has made them.
    assert count.value == 3 * 4 + ranks * 2
    assert sorted(seen.value) == sorted([*range(4)] * 3 + [4, 5] * ranks)


def keep_rows(comm, folder, victims, rows):
    """Keep the rows of each rank in checkpoints, and return them after a failure."""
    kept = comm.restore("rows")
    if kept is None:
        kept = {comm.rank: np.array_split(rows, comm.world_size)[comm.rank]}
    received = sorted(kept)
    mine = np.concatenate([kept[rank] for rank in received] or [rows[:0]])
    for number in range(3):
        comm.checkpoint("rows", mine)
        if number == 2:
            kill_once(comm, folder, victims)
        comm.barrier()
    return received, mine.tolist()


@pytest.mark.parametrize("victim", [3, *exhaustively(0, 1, 2)])
@pytest.mark.parametrize("policy", ["shrink", "respawn"])
def test_own_state_of_ranks_is_copied_to_neighbors(tmp_path, policy, victim):
    rows = np.arange(103)
    with rp.launch(workers=4, threads=1, on_failure=policy) as job, pytest.warns(RuntimeWarning):
        results = job.run(keep_rows, tmp_path, (victim,), rows)
    received = [ranks for ranks, _ in results]
    assert sorted(chain.from_iterable(received)) == [0, 1, 2, 3]
    assert sorted(chain.from_iterable(mine for _, mine in results)) == rows.tolist()
    if policy == "respawn":
        assert received[victim] == [] and sorted([victim, (victim + 1) % 4]) == sorted(received[(victim + 1) % 4])


def test_a_state_is_lost_if_neighbors_die_together(tmp_path):
    with rp.launch(workers=4, threads=1, on_failure="shrink") as job, pytest.warns(RuntimeWarning):
        results = job.run(keep_rows, tmp_path, (1, 2), np.arange(103))
    # Rank 1's checkpoint is lost, so all ranks start from the beginning.
    assert sorted(chain.from_iterable(mine for _, mine in results)) == list(range(103))
    assert [ranks for ranks, _ in results] == [[0], [1]]


def half_written(comm, folder):
    """Die on one rank within a checkpoint, which leaves the previous one."""
    kept = comm.restore("state")
    if kept is None:
        comm.checkpoint("state", "old")
        if comm.rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        comm.checkpoint("state", "new")
        time.sleep(60)
    return kept


def test_the_last_complete_checkpoint_is_restored(tmp_path):
    with rp.launch(workers=3, threads=1, on_failure="respawn") as job, pytest.warns(RuntimeWarning):
        assert job.run(half_written, tmp_path) == [{}, {0: "old", 1: "old"}, {2: "old"}]


@pytest.mark.parametrize("workers", [1, 2])
def test_errors_are_reported_and_the_next_program_has_no_checkpoint(workers):
    def program(comm):
        assert comm.restore("a") is None and comm.restore("b") is None
        comm.checkpoint("a", comm.rank)
        comm.checkpoint("b", {"x": np.arange(5)}, shared=True)
        with pytest.raises(rp.InputError, match="a checkpoint of this name is not shared"):
            comm.checkpoint("a", 1, shared=True)
        with pytest.raises(rp.InputError, match="name: a int: expected a str"):
            comm.restore(1)
        with pytest.raises(rp.InputError, match="belong to the communicator of the world"):
            comm.split(0).checkpoint("a", 1)
        with pytest.raises(rp.SerializationError):
            comm.checkpoint("c", (each for each in ()))
        return comm.restore("a"), comm.restore("b")["x"].tolist(), comm.restarts_on_failure

    with rp.launch(workers=workers) as job:
        for _ in range(2):
            assert job.run(program) == [({rank: rank}, [0, 1, 2, 3, 4], False) for rank in range(workers)]
