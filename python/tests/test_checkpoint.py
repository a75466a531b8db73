"""Checkpoints of map-reduce jobs: stored and restored contents, and rejected files."""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import ripieno as rp
from full_disk import files_of_at_most
from ripieno.checkpoints.folder import FILE, CheckpointContents, Checkpoints
from ripieno.errors import CheckpointError
from varied import exhaustively

PROGRAM = "0123"
#: The file of the checkpoint before the last one.
OLDER = f"{FILE}-1"
SMALL = CheckpointContents(3, np.arange(4.0), {"tolerance": 0.5})


def checkpoints_in(folder: Path, name: str = "job", program: str = PROGRAM) -> Checkpoints:
    return Checkpoints(folder, name, program)


def saved(folder: Path, contents: CheckpointContents = SMALL) -> Path:
    """Write a checkpoint that no process has open, and return its folder."""
    with closing(checkpoints_in(folder)) as checkpoints:
        checkpoints.save(contents)
    return checkpoints.folder


def loaded(folder: Path, **options: str) -> CheckpointContents | None:
    with closing(checkpoints_in(folder, **options)) as checkpoints:
        return checkpoints.load()


def content(folder: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in folder.iterdir()}


# Values


def test_values_round_trip_unchanged(tmp_path):
    groups = rp.KeyValues(["a", "b", "a"], [1, 2, 3]).combined("concat")
    state = {
        "numbers": [None, True, 3, 2**80, 0.1, float("-inf"), "é"],
        ("a", 1): (np.float32(0.1), np.int8(-3), np.bool_(True)),
        2: {"fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "empty": np.empty((0, 3)), "zero": np.array(5)},
        "strings": np.array(["x", "yz"]),
        "records": np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        "rows": rp.KeyValues(["fig", "été", ""], np.arange(6.0).reshape(3, 2)),
        "numbered": rp.KeyValues([3, 1]),
        "groups": groups,
        "table": rp.Table({2: np.ones((2, 2)), 5: np.zeros(1)}, combine="max"),
    }
    folder = saved(tmp_path, CheckpointContents(1, None, state))

    back = loaded(tmp_path).state

    assert repr(back["numbers"]) == repr(state["numbers"]) and list(back) == list(state)
    assert [(type(each), each) for each in back["a", 1]] == [(type(each), each) for each in state["a", 1]]
    for name, array in state[2].items():
        np.testing.assert_array_equal(back[2][name], array)
        assert back[2][name].dtype == array.dtype and back[2][name].shape == array.shape
    for name in ("strings", "records"):
        assert back[name].dtype == state[name].dtype and (back[name] == state[name]).all()
    for name in ("rows", "numbered", "groups"):
        assert type(back[name]) is type(state[name])
        assert back[name].to_arrow().equals(state[name].to_arrow())
    assert list(back["table"]) == [2, 5] and back["table"].combiner == state["table"].combiner
    # None of these values needs a pickle.
    assert b'"pickle"' not in (folder / FILE).read_bytes()


def test_other_objects_are_pickled_and_unpicklable_ones_are_reported(tmp_path):
    saved(tmp_path, CheckpointContents(1, None, {"set": {1, 2}, "where": Path("a")}))

    assert loaded(tmp_path).state == {"set": {1, 2}, "where": Path("a")}
    with pytest.raises(rp.SerializationError, match="a generator cannot be kept in a checkpoint"):
        saved(tmp_path, CheckpointContents(2, (each for each in ()), {}))
    assert loaded(tmp_path).iteration == 1


# Incomplete checkpoints, and checkpoints of other jobs


def test_a_checkpoint_torn_anywhere_is_refused(tmp_path):
    folder = saved(tmp_path)
    whole = content(folder)
    for name, data in whole.items():
        for length in range(len(data)):
            (folder / name).write_bytes(data[:length])
            with pytest.raises(rp.CheckpointError) as caught:
                loaded(tmp_path)
            assert name in str(caught.value) and "torn" in str(caught.value)
            assert f"delete {folder} to start again" in str(caught.value)
        (folder / name).write_bytes(data)

    # Nothing was removed.
    assert content(folder) == whole and loaded(tmp_path).iteration == 3


def test_an_older_checkpoint_replaces_a_torn_one(tmp_path):
    def reopened():
        kept = Checkpoints(tmp_path, "job", "program", keep=2)
        with warnings.catch_warnings(record=True) as issued:
            warnings.simplefilter("always")
            found = kept.load()
        return kept, found, [str(each.message) for each in issued]

    kept, _, _ = reopened()
    for iteration in range(1, 5):
        kept.save(CheckpointContents(iteration, np.full(3, iteration), {}))
    kept.close()
    folder = tmp_path / "job"
    assert sorted(each.name for each in folder.iterdir()) == [FILE, OLDER]

    kept, found, messages = reopened()
    assert (found.iteration, messages) == (4, [])
    kept.close()
    for tear in (
        lambda: (folder / FILE).write_bytes((folder / FILE).read_bytes()[:-9]),
        lambda: (folder / FILE).unlink(),
    ):
        tear()
        kept, found, messages = reopened()
        assert found.iteration == 3 and found.result.tolist() == [3, 3, 3]
        assert all("an older one is used" in text for text in messages)
        kept.save(CheckpointContents(4, np.full(3, 4), {}))
        kept.close()

    for name in (FILE, OLDER):
        (folder / name).write_text("torn")
    kept = Checkpoints(tmp_path, "job", "program", keep=2)
    with pytest.raises(CheckpointError, match="checkpoint is torn"):
        kept.load()
    kept.close()


def test_a_changed_byte_is_found(tmp_path):
    folder = saved(tmp_path)
    for name, data in content(folder).items():
        for index in range(0, len(data), 7):
            changed = bytearray(data)
            changed[index] ^= 1
            (folder / name).write_bytes(changed)
            with pytest.raises(rp.CheckpointError):
                loaded(tmp_path)
        (folder / name).write_bytes(data)


def test_a_checkpoint_of_another_job_program_or_format_is_refused(tmp_path):
    folder = saved(tmp_path)
    with pytest.raises(rp.CheckpointError, match="is of another program"):
        loaded(tmp_path, program="other")
    shutil.copytree(folder, tmp_path / "namesake")
    with pytest.raises(rp.CheckpointError, match="is of the job 'job', not of 'namesake'"):
        loaded(tmp_path, name="namesake")
    file = folder / FILE
    file.write_bytes(file.read_bytes().replace(b"checkpoint 2", b"checkpoint 3"))
    with pytest.raises(rp.CheckpointError, match="has format 3, and this Ripieno reads format 2"):
        loaded(tmp_path)


def test_unfinished_files_are_removed(tmp_path):
    folder = saved(tmp_path)
    whole = content(folder)
    (folder / ".checkpoint.part").write_bytes(b"half")
    (folder / "notes.txt").write_bytes(b"of the user")

    assert loaded(tmp_path).iteration == 3
    assert content(folder) == whole | {"notes.txt": b"of the user"}


SAVING = """
import sys
from pathlib import Path
import numpy as np
from ripieno.errors import CheckpointError
from ripieno.checkpoints.folder import Checkpoints, CheckpointContents

checkpoints, iteration = Checkpoints(Path(sys.argv[1]), "job", sys.argv[2]), 0
while True:
    iteration += 1
    result, state = np.full(5000, float(iteration)), {"half": np.full(99, iteration // 2)}
    checkpoints.save(CheckpointContents(iteration, result, state))
    print(iteration, flush=True)
"""


@pytest.mark.parametrize("saves", [4, *exhaustively(1, 9)])
def test_a_driver_killed_at_any_time_leaves_a_whole_checkpoint(tmp_path, saves):
    command = [sys.executable, "-c", SAVING, str(tmp_path), PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
        for _ in range(saves):
            output = int(driver.stdout.readline())
        driver.kill()

    back = loaded(tmp_path)

    assert back.iteration >= output
    assert (back.result == back.iteration).all() and (back.state["half"] == back.iteration // 2).all()
    assert content(tmp_path / "job").keys() == {FILE}


def test_two_jobs_of_one_name_do_not_run_at_the_same_time(tmp_path):
    first = checkpoints_in(tmp_path)
    with pytest.raises(rp.CheckpointError, match="is in use by another process"):
        checkpoints_in(tmp_path)
    checkpoints_in(tmp_path, name="other").close()
    first.close()
    checkpoints_in(tmp_path).close()


def test_a_first_checkpoint_that_cannot_be_written_leaves_none(tmp_path):
    checkpoints = checkpoints_in(tmp_path)
    message = (
        f"the new checkpoint in {checkpoints.folder}: .*; there is none before it, so the job starts from the beginning"
    )
    with files_of_at_most(200), pytest.raises(rp.CheckpointError, match=message):
        checkpoints.save(CheckpointContents(1, np.arange(1e4), {}))

    assert content(checkpoints.folder) == {}
    checkpoints.close()
    assert loaded(tmp_path) is None


@pytest.mark.parametrize("limit_bytes", [200, 2000])
def test_a_checkpoint_that_cannot_be_written_leaves_the_last_one(tmp_path, limit_bytes):
    checkpoints = checkpoints_in(tmp_path)
    checkpoints.save(SMALL)
    whole = content(checkpoints.folder)
    # The file ends within the first line of values, or within a blob.
    too_much = CheckpointContents(4, np.ones(5), {"large": np.arange(1e4), "long": ["text"] * 1000})

    message = f"{checkpoints.folder}: .*; the last one is still there"
    with files_of_at_most(limit_bytes), pytest.raises(rp.CheckpointError, match=message):
        checkpoints.save(too_much)

    assert content(checkpoints.folder) == whole
    checkpoints.save(CheckpointContents(4, np.ones(5), {}))
    checkpoints.close()
    assert loaded(tmp_path).iteration == 4
