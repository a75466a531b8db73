"""Memory of broadcast values: limit, spilling to disk, and validity of arrays whose values were spilled."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
from ripieno.comm import value_memory
from ripieno.errors import InputError
from varied import exhaustively

VALUE_BYTES = 1_000_000
# The limit for other tests in the same processes: their values are not spilled to disk.
HIGH_LIMIT_BYTES = 1 << 40
TIMEOUT_S = 60.0


def sample(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, VALUE_BYTES, np.uint8)


def in_memory() -> int:
    """Return the number of in-memory values that this process has mapped."""
    with open("/proc/self/maps") as maps:
        return len(set(re.findall(r" (\d+) +/memfd:ripieno-value", maps.read())))


def await_true(is_true, text: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_true():
        assert time.monotonic() < deadline, text
        time.sleep(0.01)


def beyond_the_limit(comm, folder, per_host):
    before = in_memory()
    # Space for two values with their overhead, in addition to the other values of this process.
    held = comm.broadcast_memory(limit_bytes=1, spill_directory=folder).held_bytes
    limit = held + 2 * VALUE_BYTES + 10_000
    initial = comm.broadcast_memory(limit_bytes=limit, spill_directory=folder)
    assert initial.limit_bytes == limit and initial.spill_directory == folder
    variables, values = [], []
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        for seed in range(5):
            value = sample(seed) if comm.rank == 0 else None
            variables.append(comm.broadcast_variable(value, per_host=per_host))
            values.append(variables[-1].value)
            # A value is removed from memory before the next arrives.
            await_true(lambda: comm.broadcast_memory().held_bytes <= limit, "values stay in memory")
            comm.barrier()
    addresses = [array.ctypes.data for array in values]
    holds_values = comm.rank == 0 or not per_host
    spilled = comm.broadcast_memory().spilled_count - initial.spilled_count
    assert (spilled >= 3) == holds_values, spilled
    messages = [str(each.message) for each in issued if each.category is RuntimeWarning]
    assert len(messages) == holds_values and all("broadcast values exceed" in each for each in messages), messages
    # Processes that have mapped the value unmap it, too.
    await_true(lambda: in_memory() - before <= 2, "memory of values that were written to disk")
    for seed, (variable, array, address) in enumerate(zip(variables, values, addresses, strict=True)):
        np.testing.assert_array_equal(array, sample(seed), strict=True)
        assert variable.value is array and array.ctypes.data == address and not array.flags.writeable
    left = os.listdir(folder)
    comm.barrier()
    for variable in variables:
        variable.release()
    for seed, array in enumerate(values):
        np.testing.assert_array_equal(array, sample(seed), strict=True)
    del array
    values.clear()
    await_true(lambda: comm.broadcast_memory().held_bytes <= held, "memory of released values")
    comm.broadcast_memory(limit_bytes=HIGH_LIMIT_BYTES)
    comm.barrier()
    return left


@pytest.mark.parametrize("per_host", [True, False])
@pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
def test_values_beyond_the_limit_move_to_disk_and_arrays_in_use_stay(world, tmp_path, workers, per_host):
    assert world(workers).run(beyond_the_limit, str(tmp_path), per_host) == [[]] * workers, "files have no names"


def value_larger_than_the_limit(comm, folder):
    held = comm.broadcast_memory(limit_bytes=1000, spill_directory=folder).held_bytes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with comm.broadcast_variable(sample(9) if comm.rank == 0 else None, strategy="chain") as variable:
            np.testing.assert_array_equal(variable.value, sample(9), strict=True)
            assert comm.broadcast_memory().held_bytes <= held
            comm.barrier()
    comm.broadcast_memory(limit_bytes=HIGH_LIMIT_BYTES)


@pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
def test_a_value_that_is_larger_than_the_limit_is_served_from_disk(world, tmp_path, workers):
    world(workers).run(value_larger_than_the_limit, str(tmp_path))


FULL = """
import json, os, sys
import numpy as np
import ripieno as rp
comm = rp.init()
comm.broadcast_memory(limit_bytes=1_000_000, spill_directory=sys.argv[1])
def outcome(root, size):
    try:
        with comm.broadcast_variable(np.ones(size, np.uint8) if comm.rank == root else None, root) as variable:
            return int(variable.value.sum())
    except (MemoryError, rp.BroadcastError) as error:
        return f"{type(error).__name__}: {error}"
found = [outcome(0, 900_000), outcome(0, 3_000_000), outcome(0, 900_000)]
comm.barrier()
with open(f"{comm.rank}.json", "w") as file:
    json.dump([comm.rank, found, os.listdir(sys.argv[1])], file)
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed")
@pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
def test_a_full_disk_is_reported_leaves_no_file_and_later_values_arrive(tmp_path, workers):
    (tmp_path / "program.py").write_text(FULL)
    run = f"{sys.executable} -m ripieno run --workers {workers} --no-prefix program.py disk"
    script = f"mkdir disk && mount -t tmpfs -o size=1m none disk && {run}"
    made = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script], cwd=tmp_path, text=True, capture_output=True, timeout=2 * TIMEOUT_S
    )
    if "mount:" in made.stderr or "unshare:" in made.stderr:
        pytest.skip(f"no file system can be mounted: {made.stderr}")
    assert made.returncode == 0, made.stderr
    for rank, found, left in [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(workers)]:
        first, large, last = found
        assert (first, last, left) == (900_000, 900_000, []), found
        if rank == 0:
            assert large.startswith("MemoryError") and "cannot go to disk: No space left" in large, large
            assert "RIPIENO_BROADCAST_MEMORY" in large
        else:
            assert large.startswith("BroadcastError") and "rank 0" in large, large


@pytest.mark.parametrize(("text", "limit_bytes"), [("8MB", 8_000_000), ("2 GiB", 2 << 30), ("17", 17)])
def test_the_environment_sets_the_limit(monkeypatch, text, limit_bytes):
    monkeypatch.setenv(value_memory.VARIABLE, text)
    assert value_memory.ProcessMemory().usage().limit_bytes == limit_bytes


def test_the_default_limit_is_half_of_the_memory(monkeypatch):
    monkeypatch.delenv(value_memory.VARIABLE, raising=False)
    monkeypatch.setattr(value_memory, "memory_limit_bytes", lambda: 2_000_000)
    assert value_memory.ProcessMemory().usage().limit_bytes == 1_000_000


def test_tmpdir_determines_where_values_are_stored(monkeypatch, tmp_path):
    monkeypatch.setattr(value_memory.tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert value_memory._spill_directory() == str(tmp_path)
    monkeypatch.delenv("TMPDIR")
    assert value_memory._spill_directory() == "/var/tmp"


def test_a_process_that_can_write_to_no_directory_has_broadcast_values_in_memory(monkeypatch):
    def none():
        raise FileNotFoundError("no usable temporary directory")

    monkeypatch.setattr(value_memory.os, "access", lambda *_: False)
    monkeypatch.setattr(value_memory.tempfile, "gettempdir", none)
    assert value_memory.ProcessMemory().usage().held_bytes == 0


def test_wrong_limits_are_reported(monkeypatch):
    for text in ("much", "0", "-1"):
        description = pytest.raises(InputError, match=f"{value_memory.VARIABLE}='{text}': expected a size")
        # A process reads the variable once, so the test creates a new object.
        with monkeypatch.context() as patch, description:
            patch.setenv(value_memory.VARIABLE, text)
            value_memory.ProcessMemory()
    with pytest.raises(InputError, match="limit_bytes=0"):
        value_memory.broadcast_memory(0, None)
    with pytest.raises(InputError, match="expected limit_bytes, too"):
        value_memory.broadcast_memory(None, "/tmp")
    with pytest.raises(InputError, match="expected a directory"):
        value_memory.broadcast_memory(10, "/no such folder")
