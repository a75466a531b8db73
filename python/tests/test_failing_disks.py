"""Every writer on disks that fail: a reader finds the old or the new contents, and no unfinished file stays.

A seed determines a schedule: a writer, the calls of the file system that fail or write less than requested, and a power
loss. ``make soak`` plays 100,000. To replay a failed one, run ``RIPIENO_SCHEDULES=17..18 pytest`` with this file.
"""

from __future__ import annotations

import dataclasses
import errno
import io
import json
import os
import random
import re
import shutil
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import ripieno as rp
from failing_disk import FailingDisk, PowerLoss
from full_disk import files_of_at_most
from rich.console import Console
from ripieno import flight
from ripieno.algorithms.result_folder import ResultFolder
from ripieno.checkpoints.folder import CheckpointContents, Checkpoints
from ripieno.cli.fits import FitRun
from ripieno.comm import file_distribution, shared_files
from ripieno.errors import BroadcastError, CheckpointError, InputError
from ripieno.features import extraction
from ripieno.files import disk, results
from ripieno.files.tables import ARRAY_FORMATS, write_array, write_table
from ripieno.flight import trace
from ripieno.input.dividing import divide
from ripieno.input.partitions import FILE_NAME, open_partitions
from ripieno.launch import racks
from ripieno.simulation import link_costs, pictures

SCHEDULES = range(*map(int, os.environ.get("RIPIENO_SCHEDULES", "0..400").split("..")))
ERRORS = (OSError, InputError, BroadcastError, CheckpointError)
Snapshot = dict[str, bytes]


@dataclass(frozen=True)
class Writer:
    """A writer of two versions of its contents below a folder, and its reader.

    `read` returns the contents, by default all files with visible names. A writer of a cache returns after failures.
    """

    write: Callable[[Path, int], object]
    read: Callable[[Path], object] | None = None
    is_cache: bool = False


def numbers(version: int) -> np.ndarray:
    return np.arange(50 + version, dtype=np.int64) * (version + 1)


def write_numbers(suffix: str, root: Path, version: int) -> None:
    if suffix == ".npy":
        write_array(numbers(version), root / "out.npy", ["a"])
    else:
        write_table({"a": numbers(version)}, root / f"out{suffix}")


def model(version: int) -> rp.PCA:
    rows = np.random.default_rng(version).normal(size=(30, 3))
    return rp.PCA(2).fit(rows)


def write_model(root: Path, version: int) -> None:
    models()[version].save(root / "new" / "model", overwrite=True)


@cache
def models() -> list[rp.PCA]:
    return [model(0), model(1)]


@cache
def source_folder() -> TemporaryDirectory[str]:
    """Return the inputs of the writers."""
    folder = TemporaryDirectory(prefix="ripieno-sources-")
    for version in range(2):
        lines = "".join(f"line {number} of {version}\n" for number in range(40))
        Path(folder.name, f"{version}.txt").write_text(lines)
    return folder


def source(version: int) -> Path:
    return Path(source_folder().name) / f"{version}.txt"


def write_partitions(root: Path, version: int) -> None:
    divide.divide(source(version), root / "parts", partitions=2, replicas=2, overwrite=True)


def write_updated(root: Path, version: int) -> None:
    """Write a header and then rows, as the extraction of pictures does."""
    rows = np.full((4, 8), version, np.float32)
    with results.new_file(root / "vectors.npy") as part:
        offset = extraction._write_header(part, rows.shape, "float32")
        with disk.update(part) as file:
            file.seek(offset)
            file.write(rows.data)


def write_text_vectors(root: Path, version: int) -> None:
    options = SimpleNamespace(column_count=3, corners=lambda height, width: [(0, 0), (0, 8)])
    vectors = np.full((2, 3), version, np.float32)
    with results.new_file(root / "vectors.txt") as part:
        extraction._write_text(part, vectors, [extraction.Picture("p", 16, 8)], options)


def write_checkpoint(keep: int, root: Path, version: int) -> None:
    checkpoints = Checkpoints(root / "checkpoints", "job", "program", keep=keep)
    try:
        checkpoints.load()
        checkpoints.save(CheckpointContents(version, numbers(version), {"same": numbers(0)}))
    finally:
        checkpoints.close()


def read_checkpoint(keep: int, root: Path) -> object:
    checkpoints = Checkpoints(root / "checkpoints", "job", "program", keep=keep)
    try:
        found = checkpoints.load()
    finally:
        checkpoints.close()
    assert not [path for path in (root / "checkpoints" / "job").iterdir() if path.name.startswith(".")]
    if found is None:
        return None
    assert (found.result == numbers(found.iteration)).all() and (found.state["same"] == numbers(0)).all()
    return found.iteration


def write_copies(root: Path, version: int) -> None:
    for place in ("a", "b"):
        disk.make_folders(root / place)
    shared_files.write_copies(lambda file: file.write(numbers(version).data), 1, [str(root / "a"), str(root / "b")])


def read_copies(root: Path) -> object:
    contents = {path.read_bytes() for path in root.rglob("*.value") if not path.name.startswith(".")}
    assert contents <= {numbers(0).tobytes(), numbers(1).tobytes()}
    return numbers(1).tobytes() in contents


def write_distributed(root: Path, version: int) -> None:
    original = file_distribution._read(source(version), None, verify=True)
    entry = file_distribution._entry(source(version), original)
    options = file_distribution._Options([entry], str(root / "there" / "out.txt"), "chain", True, False)
    output = file_distribution._OutputFile(entry, options, 0, "host")
    output.open(str(source(version)))
    try:
        if output.row.state == file_distribution.FAILED:
            raise InputError(output.row.error)
        output._write(None)
    finally:
        output.close(keep=False)


def write_result(root: Path, version: int) -> None:
    """Write the folder of a command, then its report, whose loss is a warning."""
    names = ("model.json", "report.html", "centroids.npy")
    run = SimpleNamespace(out=root / "result", _replaceable=names, console=Console(file=io.StringIO()))
    FitRun.write_folder(run, {"centroids": numbers(version)}, {"algorithm": "kmeans", "version": version})
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore", UserWarning)
        FitRun.end(run, lambda part: disk.write_text(part, f"<p>{version}</p>"), "done")


def read_result(root: Path) -> object:
    """Return the version of the arrays; the report has the same version, or is missing."""
    if not (root / "result").exists():
        return None
    result = ResultFolder.read(root / "result")
    version = result.entry("version", int)
    assert (result.array("centroids", None) == numbers(version)).all()
    report = root / "result" / "report.html"
    assert not report.exists() or f"<p>{version}</p>" in report.read_text()
    return version


def record(version: int) -> dict[str, object]:
    """Return the records of a rank about its collectives."""
    empty = {"records": [], "waits": [], "clocks": {}}
    return {"rank": 0, "world_size": 1, "job": "job", "host": f"host{version}", "clock": "clock", **empty}


def write_records(root: Path, version: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        flight._write({**record(version), "folder": str(root)})


def read_records(root: Path) -> object:
    return [json.loads(path.read_text())["host"] for path in root.glob("*.flight.json") if path.name[0] != "."]


def write_costs(root: Path, version: int) -> None:
    with mock.patch.object(link_costs, "_path", lambda hosts: root / "costs" / "x.json"):
        fields = dict.fromkeys(each.name for each in dataclasses.fields(link_costs.MeasuredCosts))
        costs = {"hosts": [f"host{version}"], "nodes": [0], "racks": [None]}
        link_costs.store(link_costs.MeasuredCosts(**fields | costs))


WRITERS = {
    **{suffix: Writer(partial(write_numbers, suffix)) for suffix in ARRAY_FORMATS},
    "picture": Writer(lambda root, version: pictures.write(f"<svg>{version}</svg>", root / "out.html")),
    "cache": Writer(lambda root, version: racks._store({"a": str(version)}, root / "x" / "racks.json"), is_cache=True),
    "model": Writer(write_model),
    "partitions": Writer(write_partitions),
    "vectors": Writer(write_updated),
    "text vectors": Writer(write_text_vectors),
    "one checkpoint": Writer(partial(write_checkpoint, 1), partial(read_checkpoint, 1)),
    "two checkpoints": Writer(partial(write_checkpoint, 2), partial(read_checkpoint, 2)),
    "result": Writer(write_result, read_result),
    "trace": Writer(lambda root, version: trace.write([record(version)], root / "trace.json")),
    "records": Writer(write_records, read_records, is_cache=True),
    "costs": Writer(write_costs, is_cache=True),
    "copies": Writer(write_copies, read_copies),
    "distributed": Writer(write_distributed),
}


def snapshot(root: Path) -> Snapshot:
    """Return the files whose names are visible."""
    paths = [path for path in root.rglob("*") if path.is_file()]
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in paths
        if not any(name.startswith(".") for name in path.relative_to(root).parts)
    }


def refill(root: Path, files: Snapshot) -> None:
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)


@cache
def clean_run(name: str, has_old: bool) -> tuple[Snapshot, object, object, int]:
    """Return the old files, the results of readers before and after a clean write, and the number of calls."""
    writer = WRITERS[name]
    with TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        root.mkdir()
        if has_old:
            writer.write(root, 0)
        files = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        old = found(writer, root)
        refill(root, files)
        counted = FailingDisk(root, random.Random(0))
        with counted.installed():
            writer.write(root, 1)
        return files, old, found(writer, root), counted.call_count


def found(writer: Writer, root: Path) -> object:
    return snapshot(root) if writer.read is None else writer.read(root)


def play(root: Path, seed: int) -> tuple[str, str]:
    """Play one schedule; return the name of the writer and the result of its reader."""
    chance = random.Random(seed)
    name = chance.choice(list(WRITERS))
    writer, has_old = WRITERS[name], chance.random() < 0.7
    files, old, new, calls = clean_run(name, has_old)
    refill(root, files)
    fails = chance.random() < 0.8
    loses = not fails or chance.random() < 0.5
    double = FailingDisk(
        root,
        chance,
        fail_at=chance.randrange(calls) if fails else None,
        power_loss_at=chance.randrange(calls + 10) if loses and chance.random() < 0.8 else None,
        exchanges=chance.random() < 0.7,
    )
    error: BaseException | None = None
    with double.installed():
        try:
            writer.write(root, 1)
        except PowerLoss as caught:
            error = caught
        except ERRORS as caught:
            error = caught
            assert not re.search(r"\.part\b", str(caught)), (name, caught)
    if not loses and not isinstance(error, PowerLoss):
        check_clean(name, root, files, double.failed)
        assert name != "copies" or error is None or "remove" in double.failed or snapshot(root) == files
    if loses:
        double.lose_power()
    is_written = error is None and not writer.is_cache
    allowed = [new] if is_written else [old, new]
    state = found(writer, root)
    if state not in allowed and (loses or disk.OLD_SUFFIX in str(error)) and not is_written:
        check_reported(name, root)
        return name, "an error that names the old contents"
    assert state in allowed, (name, error)
    return name, "the new contents" if state == new else "the old contents"


def check_clean(name: str, root: Path, files: Snapshot, failed: set[str]) -> None:
    """Assert that no unfinished file stays, if it could be removed."""
    hidden = [path for path in root.rglob(".*") if not path.is_dir()]
    assert "remove" in failed or not hidden, (name, hidden, failed)
    # If a folder cannot be synced or renamed, its complete older contents stay.
    for folder in (path for path in root.rglob(".*") if path.is_dir() and "remove" not in failed):
        older = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        assert older == {Path(path).name: content for path, content in files.items()} != {}, (name, folder)


def check_reported(name: str, root: Path) -> None:
    """Assert that a reader of a folder whose replacement was interrupted names the older contents."""
    readers = {
        "model": lambda: rp.PCA.load(root / "new" / "model"),
        "partitions": lambda: open_partitions(root / "parts" / FILE_NAME),
        "result": lambda: ResultFolder.read(root / "result"),
    }
    with pytest.raises(InputError, match=r"interrupted, and .*\.old has the older contents"):
        readers[name]()


def test_readers_find_old_or_new_contents_after_failures_and_power_losses(capsys):
    outcomes: Counter[tuple[str, str]] = Counter()
    with TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        for seed in SCHEDULES:
            try:
                outcomes[play(Path(folder) / "root", seed)] += 1
            except BaseException as error:
                error.add_note(f"schedule {seed}")
                raise
    if "RIPIENO_SCHEDULES" in os.environ:
        with capsys.disabled():
            print(f"\n{outcomes.total()} schedules of {len({name for name, _ in outcomes})} writers")
            for (name, outcome), count in sorted(outcomes.items()):
                print(f"  {name}: {outcome} after {count}")


def test_a_scratch_array_that_does_not_fit_is_an_error(tmp_path):
    with files_of_at_most(1000):
        with pytest.raises(OSError, match=str(tmp_path)), disk.scratch_array(tmp_path, (1000,), np.float64):
            pass
        with disk.scratch_array(tmp_path, (10, 2), np.float64) as array:
            assert array.shape == (10, 2)


@pytest.mark.parametrize(("number", "is_copied"), [(errno.EXDEV, True), (errno.EPERM, True), (errno.ENOSPC, False)])
def test_a_link_becomes_a_copy_only_where_links_are_impossible(number, is_copied, tmp_path, monkeypatch):
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", fail)
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("text")
    if is_copied:
        disk.link(one, other)
        assert other.read_text() == "text"
    else:
        with pytest.raises(OSError, match=os.strerror(number)):
            disk.link(one, other)
        assert not other.exists()
