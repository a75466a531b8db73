"""Beyond a memory limit rows go to temporary files, with unchanged results."""

from __future__ import annotations

import os

import numpy as np
import pytest
import ripieno as rp
from full_disk import files_of_at_most
from ripieno import keyed
from varied import exhaustively

LIMIT_BYTES = 50_000


def rows_of(rank: int, kind: str) -> rp.KeyValues:
    random = np.random.default_rng(rank)
    keys = random.integers(0, 10_000, 20_000)
    if kind == "string":
        return rp.KeyValues(np.char.add("key ", keys.astype("U")), random.random((20_000, 2)))
    return rp.KeyValues(keys, random.random(20_000))


def same_within_a_limit(comm, folder, kind):
    mine = rows_of(comm.rank, kind)
    for combine in ("sum", "concat", np.hypot):
        for partitioner in (None, lambda keys: np.arange(len(keys)) * 0 + comm.world_size - 1):
            options = {"combine": combine, "partitioner": partitioner}
            free, statistics = keyed.regroup(comm, mine, **options)
            limited, limited_statistics = keyed.regroup(
                comm, mine, memory_limit=LIMIT_BYTES, spill_directory=folder, **options
            )
            assert statistics["spilled_bytes"] == 0 < limited_statistics["spilled_bytes"]
            if combine is np.hypot:
                # Rows that do not fit are reduced in several passes.
                assert free.sorted().to_arrow().column("key").equals(limited.sorted().to_arrow().column("key"))
                np.testing.assert_allclose(free.sorted().values, limited.sorted().values, rtol=1e-12)
            else:
                assert free.to_arrow().column("key").equals(limited.to_arrow().column("key"))
                assert free.values.tobytes() == limited.values.tobytes()
    assert os.listdir(folder) == []


@pytest.mark.parametrize("p", [2, *exhaustively(1)])
@pytest.mark.parametrize("kind", ["int64", "string"])
def test_results_are_the_same_within_a_memory_limit(world, p, kind, tmp_path):
    world(p).run(same_within_a_limit, str(tmp_path), kind)


def spills_to_a_full_disk(comm, folder):
    emitter = keyed.Emitter(comm.world_size, memory_limit=LIMIT_BYTES, spill_directory=folder)
    if comm.rank == 1:
        with files_of_at_most(4096):
            emitter.add(rows_of(1, "int64"))
    return keyed.regroup(comm, emitter)


def test_a_full_disk_raises_to_the_caller_and_leaves_no_file(tmp_path):
    with rp.launch(workers=2) as job, pytest.raises(rp.SpillError, match=str(tmp_path)) as caught:
        job.run(spills_to_a_full_disk, str(tmp_path))

    assert caught.value.__cause__.rank == 1
    assert "memory_limit" in str(caught.value) and "spill_directory" in str(caught.value)
    assert os.listdir(tmp_path) == []


def assert_every_call_raises(error, emitter, rows):
    whole = keyed.Emitter(1)
    whole.add(rows)
    for call in (lambda: emitter.add(rows), emitter.combined, lambda: emitter.absorb(whole)):
        with pytest.raises(type(error)) as caught:
            call()
        assert caught.value is error


def test_an_emitter_whose_function_failed_stays_unusable():
    def fold(left, right):
        raise ArithmeticError("no")

    emitter = keyed.Emitter(1, fold)
    emitter.add(rows_of(1, "int64"))
    with pytest.raises(ArithmeticError) as caught:
        emitter.combined()

    assert_every_call_raises(caught.value, emitter, rows_of(1, "int64"))


def test_one_process_that_cannot_spill_raises(tmp_path):
    emitter = keyed.Emitter(1, memory_limit=LIMIT_BYTES, spill_directory=tmp_path)
    with files_of_at_most(4096), pytest.raises(rp.SpillError, match=str(tmp_path)) as caught:
        emitter.add(rows_of(1, "string"))

    # Memory is available again, but only some of the rows were added.
    assert_every_call_raises(caught.value, emitter, rows_of(1, "string"))
    assert os.listdir(tmp_path) == []
