"""Broadcast variables through files on a shared file system: copies, digests, full disks, leftovers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import ripieno as rp
from ripieno.comm import shared_files
from ripieno.errors import InputError
from ripieno.wire import packing
from varied import exhaustively

TABLE = np.arange(50_000)
TIMEOUT_S = 60.0


def use(comm, places):
    nested = {"list": [TABLE, "text"]} if comm.rank == 1 % comm.world_size else None
    root = 1 % comm.world_size
    own_places = places if comm.rank == root else ()
    with comm.broadcast_variable(nested, root, strategy="shared-file", places=own_places) as variable:
        # Rank 0 of three has nothing to fetch.
        if comm.rank > 0 or comm.world_size < 3:
            packed_s = variable.serialization_s
            array, text = variable.value["list"]
            assert not array.flags.writeable and text == "text" and (array == TABLE).all()
            assert variable.value is variable.value and variable.serialization_s > packed_s
        comm.barrier()
        return sorted(path.name for place in places if "://" not in place for path in Path(place).glob("*.value"))


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
def test_a_value_has_at_most_three_copies_and_is_deleted_after_release(world, tmp_path, workers, count):
    places = [str(tmp_path / str(at)) for at in range(count)]
    for place in places:
        os.mkdir(place)
    job = world(workers)
    names = job.run(use, places)
    assert [len(each) for each in names] == [min(count, 3)] * workers and len(set(names[0])) == 1
    job.run(use_and_wait, places[0], tmp_path)


def use_and_wait(comm, place, folder):
    """The root of another variable removes files that are no longer read."""
    root = 1 % comm.world_size
    deadline = time.monotonic() + TIMEOUT_S
    is_left = True
    while comm.broadcast(is_left):
        comm.broadcast_variable("next", root, strategy="shared-file", places=place).release()
        comm.barrier()
        # The file of this turn exists until the next.
        is_left = len(list(Path(folder).glob("*/*"))) > 2
        assert time.monotonic() < deadline


def test_a_url_is_accepted_as_a_place(world, tmp_path):
    assert world(2).run(use, [f"file://{tmp_path}"]) == [[], []]


def written(tmp_path, count):
    places = [str(tmp_path / str(at)) for at in range(count)]
    for place in places:
        os.mkdir(place)
    return shared_files.write(packing.pack(TABLE), places)


def test_wrong_or_missing_copies_are_skipped_and_reported_if_none_is_right(tmp_path):
    file = written(tmp_path, 3)
    with open(file.names[1], "r+b") as copy:
        copy.seek(1000)
        copy.write(b"damaged")
    os.unlink(file.names[2])
    for first in range(5):
        np.testing.assert_array_equal(packing.read_blob(file.read(first)), TABLE)
    with open(file.names[0], "ab") as copy:
        copy.write(b"longer")
    with pytest.raises(rp.BroadcastError) as caught:
        file.read(1)
    for name in file.names:
        assert name in str(caught.value)
    file.remove()
    assert list(tmp_path.glob("*/*")) == []


def test_a_full_disk_is_reported_and_no_file_remains(tmp_path):
    script = """
import resource, signal, sys
import numpy as np
from ripieno.comm import shared_files
from ripieno.wire import packing
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
shared_files.write(packing.pack(np.zeros(50_000)), sys.argv[1:])
"""
    os.mkdir(tmp_path / "a")
    ended = subprocess.run([sys.executable, "-c", script, tmp_path / "a"], capture_output=True, text=True, check=False)
    assert "BroadcastError: a value of 400," in ended.stderr and "cannot be written" in ended.stderr
    assert str(tmp_path / "a") in ended.stderr and list(tmp_path.glob("a/*")) == []


HOLD = """
import sys
from ripieno.comm import shared_files
shared_files.READERS_MAX = 1
with shared_files.reading_slot(sys.argv[1]):
    print("reads", flush=True)
    sys.stdin.read()
"""


def test_readers_of_a_folder_take_turns_and_a_killed_one_releases_its_turn(tmp_path, monkeypatch):
    [name] = written(tmp_path, 1).names
    monkeypatch.setattr(shared_files, "READERS_MAX", 1)
    monkeypatch.setattr(shared_files, "SLOT_WAIT_S", 0.2)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "reads\n"
        with (
            pytest.raises(InputError, match=r"1 other processes have been reading it for 0\.2 s"),
            shared_files.reading_slot(name),
        ):
            pass
        os.kill(other.pid, signal.SIGKILL)
        other.wait()
    with shared_files.reading_slot(name):
        pass


def wrong_arguments(comm):
    with pytest.raises(InputError, match="expected places=, a folder or URL"):
        comm.broadcast_variable(1, comm.rank, strategy="shared-file")
    with pytest.raises(InputError, match=r"places=5: expected a folder or URL"):
        comm.broadcast_variable(1, comm.rank, strategy="csb", places=[5])


def test_places_and_shared_files_need_each_other(world):
    world(1).run(wrong_arguments)
